package engine

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// statementOf is what must be signed of a resolution, and whether it must be.
func (t *Task) statementOf(r protocol.Resolution) (s activities.Statement, isSigned bool) {
	if r.Do == protocol.DoEdit {
		g := protocol.GateView{}
		if s := t.Schedule.ByID[r.Step]; s != nil && s.Gate != nil {
			g = s.Gate.view
		}
		return g.StatementOfEdit(t.proofs.task, r), g.Signed
	}
	if t.Parks.Holds(r.Step) {
		view := t.Schedule.ByID[r.Step].park.view
		return view.Statement(t.proofs.task, r), view.Signed
	}
	undo, _ := t.Saga.UndoOf(r.Step)
	return undo.Statement(t.proofs.task, r.Resolution), undo.Signed
}

// checkSigned refuses a resolution that must be signed, and is not, and one that could not be kept as it
// was signed.
func (t *Task) checkSigned(r protocol.Resolution) error {
	switch _, isSigned := t.statementOf(r); {
	case r.Signature == "" && isSigned:
		return fmt.Errorf("step %q: %w", r.Step, errUnsigned)
	case r.Signature != "" && r.Clip() != r.Resolution:
		return fmt.Errorf("step %q: who or why is too long to be kept: shorten it, and sign that", r.Step)
	}
	return nil
}

// resolveProved carries out a resolution that must be signed, once it is proved, if it still fits then.
// It is called when it is the turn of the resolution.
func (t *Task) resolveProved(ctx workflow.Context, r protocol.Resolution) (*parkDecision, error) {
	if _, err := t.findResolved(r); err != nil {
		return nil, err
	}
	s, _ := t.statementOf(r)
	key, err := t.proofs.verify(ctx, s, r.Signature)
	if err != nil {
		return nil, err
	}
	r.Key = key
	return t.carryOut(r)
}

// carryOut has a resolution decide about a step at a gate, a step that has failed, or an undo; of an
// undo the decision is nil.
func (t *Task) carryOut(r protocol.Resolution) (*parkDecision, error) {
	if r.Do == protocol.DoEdit {
		return t.edit(r)
	}
	if t.Parks.Holds(r.Step) {
		return t.Parks.Decide(r)
	}
	if err := r.CheckUndo(); err != nil {
		return nil, err
	}
	r.Task = t.proofs.task
	return nil, t.Saga.Resolve(r.Clip())
}
