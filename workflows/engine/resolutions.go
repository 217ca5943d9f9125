package engine

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// statementOf is what must be signed of a resolution, and whether it must be.
func (t *Task) statementOf(r protocol.Resolution) (s activities.Statement, isSigned bool) {
	if t.Parks.Holds(r.Step) {
		view := t.Schedule.ByID[r.Step].park.view
		return view.Statement(t.proofs.task, r), view.Token != ""
	}
	undo, _ := t.Saga.UndoOf(r.Step)
	return undo.Statement(t.proofs.task, r.Resolution), undo.Token != ""
}

// checkSigned refuses a resolution that must be signed, and is not.
func (t *Task) checkSigned(r protocol.Resolution) error {
	switch _, isSigned := t.statementOf(r); {
	case !isSigned:
	case r.Signature == "":
		return fmt.Errorf("step %q: %w", r.Step, errUnsigned)
	case r.Clip() != r.Resolution:
		return fmt.Errorf("step %q: who or why is too long to be kept: shorten it, and sign that", r.Step)
	}
	return nil
}

// resolveProved carries out a resolution, once it is proved if it must be: those of one step in their
// order, each if it still fits then.
func (t *Task) resolveProved(ctx workflow.Context, r protocol.Resolution) (d *parkDecision, err error) {
	if _, isSigned := t.statementOf(r); !isSigned {
		return t.carryOut(r)
	}
	err = t.proofs.inTurn(ctx, r.Step, func(ctx workflow.Context) error {
		if err := t.CheckResolution(r); err != nil {
			return err
		}
		s, _ := t.statementOf(r)
		if r.Key, err = t.proofs.verify(ctx, s, r.Signature); err != nil {
			return err
		}
		r.Task = s.Task
		d, err = t.carryOut(r)
		return err
	})
	return d, err
}

// carryOut has a resolution decide about a step that has failed, or an undo; of an undo the decision
// is nil.
func (t *Task) carryOut(r protocol.Resolution) (*parkDecision, error) {
	if t.Parks.Holds(r.Step) {
		return t.Parks.Decide(r)
	}
	if err := r.CheckUndo(); err != nil {
		return nil, err
	}
	return nil, t.Saga.Resolve(r.Clip())
}
