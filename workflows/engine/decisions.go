package engine

import (
	"cmp"

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
func (t *Task) handleUpdates(ctx workflow.Context) error {
	if err := t.extension.Attend(ctx); err != nil {
		return err
	}
	for _, u := range t.decisionUpdates() {
		if err := workflow.SetUpdateHandlerWithOptions(ctx, u.name, u.handle,
			workflow.UpdateHandlerOptions{Validator: u.validate}); err != nil {
			return err
		}
	}
	return nil
}

func (t *Task) decisionUpdates() []update {
	decide := func(approved bool) func(workflow.Context, protocol.Decision) (protocol.DecisionAnswer, error) {
		return func(ctx workflow.Context, d protocol.Decision) (protocol.DecisionAnswer, error) {
			return t.decideGate(ctx, d, approved)
		}
	}
	validate := func(approved bool) func(workflow.Context, protocol.Decision) error {
		return func(_ workflow.Context, d protocol.Decision) error {
			_, err := t.Gates.findGate(d, approved)
			return protocol.RefuseDecision(err)
		}
	}
	return []update{
		{protocol.UpdateTooLarge, func(_ workflow.Context, l protocol.TooLarge) error { return l.Refusal() },
			func(_ workflow.Context, l protocol.TooLarge) error { return l.Refusal() }},
		{protocol.UpdateApprove, decide(true), validate(true)},
		{protocol.UpdateReject, decide(false), validate(false)},
		{protocol.UpdateResolve, t.decidePark, func(_ workflow.Context, r protocol.Resolution) error {
			return protocol.RefuseDecision(cmp.Or(t.CheckResolution(r), t.checkSigned(r)))
		}},
	}
}

// decideGate decides a gate, and answers when its step has gone on, or the task goes no further; at
// once if others have to approve as well.
func (t *Task) decideGate(ctx workflow.Context, d protocol.Decision, approved bool) (protocol.DecisionAnswer, error) {
	t.Inbox.HandleSignals() // a rejection that came before an approval counts
	d.Key = ""              // not for the sender to say
	gate, err := t.Gates.findGate(d, approved)
	switch {
	case err != nil:
	case !gate.view.Signed:
		t.Gates.take(gate, d, approved)
	default:
		err = t.proofs.takeUpdate(ctx, d.Step, func(ctx workflow.Context) (err error) {
			gate, err = t.Gates.takeSigned(ctx, d, approved)
			return err
		})
	}
	if err != nil {
		return protocol.DecisionAnswer{}, protocol.RefuseDecision(err)
	}
	s := t.Schedule.ByID[d.Step]
	if gate.decision == nil {
		return t.answerDecision(protocol.DecisionAnswer{Step: d.Step, State: s.View.State, Waits: gate.view.Waits}), nil
	}
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_ = workflow.Await(ctx, func() bool {
		return s.Gate != gate && s.View.State != protocol.AtGate || t.Ending.Cause != nil || t.IsLeaving()
	})
	return t.answerDecision(protocol.DecisionAnswer{Step: d.Step, State: s.View.State}), nil
}

// CheckResolution refuses a resolution that decides nothing, with all that the worker knows of its
// actions: it is not for a replay.
func (t *Task) CheckResolution(r protocol.Resolution) error {
	s, err := t.findResolved(r)
	if err != nil || s == nil || !r.HasWith() || t.variant.Check == nil {
		return err
	}
	a, err := t.correctionOf(s, r.With)
	if err != nil {
		return err
	}
	return t.variant.Check(a)
}

// findResolved returns the step that a resolution decides about; nil if it decides about an undo.
func (t *Task) findResolved(r protocol.Resolution) (*Step, error) {
	switch {
	case r.Do == protocol.DoEdit:
		return t.findEdited(r)
	case t.Parks.Holds(r.Step):
		return t.Parks.check(r)
	}
	if err := r.CheckUndo(); err != nil {
		return nil, err
	}
	return nil, t.Saga.CheckResolution(r.Clip())
}

// decidePark decides about an undo, and answers at once: how the undo goes on may take hours. About
// a step it answers once the decision is carried out.
func (t *Task) decidePark(ctx workflow.Context, r protocol.Resolution) (protocol.DecisionAnswer, error) {
	t.Inbox.HandleSignals()
	r.Key, r.Task = "", "" // not for the sender to say
	var d *parkDecision
	var err error
	if _, isSigned := t.statementOf(r); !isSigned {
		d, err = t.carryOut(r)
	} else {
		err = t.proofs.takeUpdate(ctx, r.Step, func(ctx workflow.Context) (err error) {
			d, err = t.resolveProved(ctx, r)
			return err
		})
	}
	if err != nil {
		return protocol.DecisionAnswer{}, protocol.RefuseDecision(err)
	}
	if d == nil {
		return t.answerDecision(protocol.DecisionAnswer{Step: r.Step, Undo: t.Saga.UndoState(r.Step)}), nil
	}
	s := t.Schedule.ByID[r.Step]
	t.AwaitDecision(ctx, s, d)
	if d.Refusal != nil {
		return protocol.DecisionAnswer{},
			protocol.RefuseRequestf(protocol.NothingDecided, "%s", compensations.Reason(d.Refusal))
	}
	return t.answerDecision(protocol.DecisionAnswer{Step: r.Step, State: s.View.State}), nil
}

// AwaitDecision waits until a decision about a step is carried out, or the run ends.
func (t *Task) AwaitDecision(ctx workflow.Context, s *Step, d *parkDecision) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_ = workflow.Await(ctx, func() bool {
		return (s.park == nil || s.park.decision != d) && d.isDue() || t.Ending.Cause != nil || t.IsLeaving()
	})
}

func (t *Task) answerDecision(a protocol.DecisionAnswer) protocol.DecisionAnswer {
	a.Phase, a.Cause = t.Phase, protocol.ShortCause(t.Ending.Cause)
	return a
}
