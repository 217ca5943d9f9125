package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

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
	decide := func(approved bool) func(workflow.Context, protocol.Decision) (protocol.DecisionAnswer, error) {
		return func(ctx workflow.Context, d protocol.Decision) (protocol.DecisionAnswer, error) {
			return t.decideGate(ctx, d, approved)
		}
	}
	validate := func(_ workflow.Context, d protocol.Decision) error {
		_, err := t.gates.findGate(d)
		return protocol.RefuseDecision(err)
	}
	return []update{
		{protocol.UpdateTooLarge, func(_ workflow.Context, l protocol.TooLarge) error { return l.Refusal() }, func(_ workflow.Context, l protocol.TooLarge) error { return l.Refusal() }},
		{protocol.UpdateApprove, decide(true), validate},
		{protocol.UpdateReject, decide(false), validate},
		{protocol.UpdateResolve, t.decidePark, func(_ workflow.Context, r protocol.Resolution) error {
			return protocol.RefuseDecision(t.checkResolution(r))
		}},
	}
}

// decideGate decides a gate, and answers when its step has gone on, or the task goes no further.
func (t *agentTask) decideGate(ctx workflow.Context, d protocol.Decision, approved bool) (protocol.DecisionAnswer, error) {
	t.inbox.HandleSignals() // a rejection that came before an approval counts
	gate, err := t.gates.findGate(d)
	if err != nil {
		return protocol.DecisionAnswer{}, protocol.RefuseDecision(err)
	}
	gate.decide(d, approved)
	s := t.schedule.byID[d.Step]
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_ = workflow.Await(ctx, func() bool {
		return s.gate != gate && s.view.State != protocol.AtGate || t.ending.cause != nil || t.isLeaving()
	})
	return t.answerDecision(protocol.DecisionAnswer{Step: d.Step, State: s.view.State}), nil
}

func (t *agentTask) checkResolution(r protocol.Resolution) error {
	if t.parks.holds(r.Step) {
		s, err := t.parks.check(r)
		if err != nil || !r.HasWith() || t.variant.check == nil {
			return err
		}
		a, err := t.correctionOf(s, r.With)
		if err != nil {
			return err
		}
		return t.variant.check(a)
	}
	return first(r.CheckUndo, func() error { return t.saga.CheckResolution(r.Clip()) })
}

// decidePark decides about an undo, and answers at once: how the undo goes on may take hours. About a step it answers once the
// decision is carried out.
func (t *agentTask) decidePark(ctx workflow.Context, r protocol.Resolution) (protocol.DecisionAnswer, error) {
	t.inbox.HandleSignals()
	if t.parks.holds(r.Step) {
		return t.decideStep(ctx, r)
	}
	if err := r.CheckUndo(); err != nil {
		return protocol.DecisionAnswer{}, protocol.RefuseDecision(err)
	}
	if err := t.saga.Resolve(r.Clip()); err != nil {
		return protocol.DecisionAnswer{}, protocol.RefuseDecision(err)
	}
	return t.answerDecision(protocol.DecisionAnswer{Step: r.Step, Undo: t.saga.UndoState(r.Step)}), nil
}

func (t *agentTask) decideStep(ctx workflow.Context, r protocol.Resolution) (protocol.DecisionAnswer, error) {
	d, err := t.parks.decide(r)
	if err != nil {
		return protocol.DecisionAnswer{}, protocol.RefuseDecision(err)
	}
	s := t.schedule.byID[r.Step]
	t.awaitDecision(ctx, s, d)
	if d.refusal != nil {
		return protocol.DecisionAnswer{}, protocol.RefuseRequestf(protocol.NothingDecided, "%s", compensations.Reason(d.refusal))
	}
	return t.answerDecision(protocol.DecisionAnswer{Step: r.Step, State: s.view.State}), nil
}

// awaitDecision waits until a decision about a step is carried out, or the run ends.
func (t *agentTask) awaitDecision(ctx workflow.Context, s *stepRun, d *parkDecision) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_ = workflow.Await(ctx, func() bool {
		return s.park == nil || s.park.decision != d || t.ending.cause != nil || t.isLeaving()
	})
}

func (t *agentTask) answerDecision(a protocol.DecisionAnswer) protocol.DecisionAnswer {
	a.Phase, a.Cause = t.phase, protocol.ShortCause(t.ending.cause)
	return a
}
