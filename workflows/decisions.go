package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
)

// Updates that decide what waits for a person, in every task, recovery, rollback and redo. They mean the same as the signals of the
// same names and take the same arguments, and each answers with a DecisionAnswer once it has taken effect. One that decides nothing is
// refused with NothingDecided and leaves no trace in the history.
const (
	// UpdateApprove opens a gate: argument Decision.
	UpdateApprove = SignalApprove
	// UpdateReject ends the task at a gate: argument Decision.
	UpdateReject = SignalReject
	// UpdateResolve decides about an undo that is parked or waits for its host, or about a step that is parked: argument Resolution.
	UpdateResolve = compensations.SignalResolve
)

// NothingDecided is the type of the ApplicationError with which an update that decides nothing is refused: nothing waits at that step, or
// something other than the digest says. The message says which.
const NothingDecided = "NothingDecided"

// DecisionAnswer is what an update that decides has come to.
type DecisionAnswer struct {
	Step string `json:"step"`
	// State is that of the step behind its gate, or after its park.
	State StepState `json:"state,omitempty"`
	// Undo is that of the undo that was decided about.
	Undo compensations.UndoState `json:"undo,omitempty"`
	// Phase is that of the task, and Cause why it goes no further.
	Phase Phase                `json:"phase"`
	Cause *compensations.Cause `json:"cause,omitempty"`
}

// update is an update that a workflow takes. What validate refuses leaves no trace in the history.
type update struct {
	name             string
	handle, validate any
}

// handleUpdates takes updates, in a fixed order: those that have arrived before are handled here.
func (t *agentTask) handleUpdates(ctx workflow.Context) error {
	for _, u := range append(t.sessionUpdates(), t.decisionUpdates()...) {
		if err := workflow.SetUpdateHandlerWithOptions(ctx, u.name, u.handle, workflow.UpdateHandlerOptions{Validator: u.validate}); err != nil {
			return err
		}
	}
	return nil
}

func (t *agentTask) decisionUpdates() []update {
	decide := func(approved bool) func(workflow.Context, Decision) (DecisionAnswer, error) {
		return func(ctx workflow.Context, d Decision) (DecisionAnswer, error) { return t.decideGate(ctx, d, approved) }
	}
	validate := func(_ workflow.Context, d Decision) error {
		_, err := t.gates.findGate(d)
		return refuseDecision(err)
	}
	return []update{
		{UpdateTooLarge, func(_ workflow.Context, l TooLarge) error { return l.refusal() }, func(_ workflow.Context, l TooLarge) error { return l.refusal() }},
		{UpdateApprove, decide(true), validate},
		{UpdateReject, decide(false), validate},
		{UpdateResolve, t.decidePark, func(_ workflow.Context, r Resolution) error { return refuseDecision(t.checkResolution(r)) }},
	}
}

// decideGate decides a gate, and answers when its step has gone on, or the task goes no further.
func (t *agentTask) decideGate(ctx workflow.Context, d Decision, approved bool) (DecisionAnswer, error) {
	t.inbox.HandleSignals() // a rejection that came before an approval counts
	gate, err := t.gates.findGate(d)
	if err != nil {
		return DecisionAnswer{}, refuseDecision(err)
	}
	gate.decide(d, approved)
	s := t.schedule.byID[d.Step]
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_ = workflow.Await(ctx, func() bool {
		return s.gate != gate && s.view.State != AtGate || t.ending.cause != nil || t.isLeaving()
	})
	return t.answerDecision(DecisionAnswer{Step: d.Step, State: s.view.State}), nil
}

func (t *agentTask) checkResolution(r Resolution) error {
	if t.parks.holds(r.Step) {
		s, err := t.parks.check(r)
		if err != nil || !r.hasWith() || t.variant.check == nil {
			return err
		}
		a, err := t.correctionOf(s, r.With)
		if err != nil {
			return err
		}
		return t.variant.check(a)
	}
	return first(r.checkUndo, func() error { return t.saga.CheckResolution(r.Clip()) })
}

// decidePark decides about an undo, and answers at once: how the undo goes on may take hours. About a step it answers once the
// decision is carried out.
func (t *agentTask) decidePark(ctx workflow.Context, r Resolution) (DecisionAnswer, error) {
	t.inbox.HandleSignals()
	if t.parks.holds(r.Step) {
		return t.decideStep(ctx, r)
	}
	if err := r.checkUndo(); err != nil {
		return DecisionAnswer{}, refuseDecision(err)
	}
	if err := t.saga.Resolve(r.Clip()); err != nil {
		return DecisionAnswer{}, refuseDecision(err)
	}
	return t.answerDecision(DecisionAnswer{Step: r.Step, Undo: t.saga.UndoState(r.Step)}), nil
}

func (t *agentTask) decideStep(ctx workflow.Context, r Resolution) (DecisionAnswer, error) {
	d, err := t.parks.decide(r)
	if err != nil {
		return DecisionAnswer{}, refuseDecision(err)
	}
	s := t.schedule.byID[r.Step]
	t.awaitDecision(ctx, s, d)
	if d.refusal != nil {
		return DecisionAnswer{}, refuseRequestf(NothingDecided, "%s", compensations.Reason(d.refusal))
	}
	return t.answerDecision(DecisionAnswer{Step: r.Step, State: s.view.State}), nil
}

// awaitDecision waits until a decision about a step is carried out, or the run ends.
func (t *agentTask) awaitDecision(ctx workflow.Context, s *stepRun, d *parkDecision) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_ = workflow.Await(ctx, func() bool {
		return s.park == nil || s.park.decision != d || t.ending.cause != nil || t.isLeaving()
	})
}

func (t *agentTask) answerDecision(a DecisionAnswer) DecisionAnswer {
	a.Phase, a.Cause = t.phase, shortCause(t.ending.cause)
	return a
}

func refuseDecision(err error) error {
	if err == nil {
		return nil
	}
	return refuseRequestf(NothingDecided, "%s", compensations.Reason(err))
}
