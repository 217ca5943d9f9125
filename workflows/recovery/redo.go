package recovery

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// FindRollback finds the rollback to redo for a workflow id: that workflow itself, or the only
// rollback of that task; where that was redone and rolled back again, the last one.
func (s Server) FindRollback(ctx context.Context, id string) (Run, error) {
	run, err := s.Describe(ctx, id, "")
	if err != nil {
		return run, err
	}
	if err := run.checkType(); err != nil {
		return run, err
	}
	if slices.Contains(GoForward, run.Type) {
		if run, err = s.rollbackOf(ctx, run); err != nil {
			return run, err
		}
		last, err := s.findRedo(ctx, run)
		if err != nil {
			return run, err
		}
		if last.Type == protocol.RollbackType { // else it is redone, which Redo says
			run = last
		}
	}
	if run.Type != protocol.RollbackType {
		return run, refusef(Foreign, id, "%s is a %s: there is nothing to redo", id, run.Type)
	}
	return run, s.checkOver(ctx, run)
}

// checkOver refuses a rollback that has not ended; if it died, its recovery must have ended.
func (s Server) checkOver(ctx context.Context, rollback Run) error {
	last, err := s.LastRecovery(ctx, rollback)
	switch {
	case err != nil:
		return err
	case last.Alive():
		return refusef(Alive, last.WorkflowID, "%s is still rolling back: wait for its end", last.WorkflowID)
	case last.Dead():
		return refusef(Dead, last.WorkflowID, "%s was %s in the middle: recover it", last.WorkflowID, last.Ending())
	}
	return nil
}

// rollbackOf finds the rollback of a task: that of the whole task, otherwise the only one of a part
// of it.
func (s Server) rollbackOf(ctx context.Context, task Run) (Run, error) {
	if task.Alive() {
		return task, refusef(Alive, task.WorkflowID, "task %s is running: it was not rolled back", task.WorkflowID)
	}
	whole := protocol.RollbackID(protocol.RollbackRequest{Chain: task.Chain})
	run, err := s.Describe(ctx, whole, "")
	if WhyOf(err) != Unknown {
		return run, err
	}
	ids, err := s.listPartRollbacks(ctx, task.Chain)
	if err != nil {
		return run, err
	}
	switch len(ids) {
	case 0:
		return run, refusef(Ended, task.WorkflowID, "task %s was not rolled back: there is nothing to redo", task.WorkflowID)
	case 1:
		return s.Describe(ctx, ids[0], "")
	}
	return run, refusef(NoSuchPart, task.WorkflowID, "task %s was rolled back in parts: name one of %s", task.WorkflowID,
		strings.Join(ids, ", "))
}

// Redo starts the redo of a rollback found by FindRollback. dc is the data converter that the
// rollback was started with.
func (s Server) Redo(ctx context.Context, rollback Run, who string, dc converter.DataConverter) (Run, error) {
	of, err := s.readRequest(ctx, rollback, dc)
	if err != nil {
		return Run{}, err
	}
	if err := (ledgerReader{s, dc}).checkOrder(ctx, rollback, of); err != nil {
		return Run{}, err
	}
	r := protocol.RedoRequest{Rollback: rollback.Chain, Task: of.Chain, Who: who}
	return s.startOnce(ctx, rollback, protocol.RedoID(rollback.Chain), protocol.RedoType, "redo "+of.WorkflowID,
		rollback.Part, r)
}

// CanRedo says whether the redo of a rollback would begin now, and find something to redo.
func (s Server) CanRedo(ctx context.Context, rollback Run, dc converter.DataConverter) (bool, error) {
	of, err := s.readRequest(ctx, rollback, dc)
	if err != nil {
		return false, err
	}
	err = (ledgerReader{s, dc}).checkOrder(ctx, rollback, of)
	var input protocol.RedoInput
	if err == nil {
		input, err = s.RedoInput(ctx, protocol.RedoID(rollback.Chain),
			protocol.RedoRequest{Rollback: rollback.Chain, Task: of.Chain}, dc)
	}
	switch {
	case WhyOf(err) != "":
		return false, nil
	case err != nil:
		return false, err
	}
	var document struct{ Session *struct{} }
	return len(input.Tokens) > 0 && json.Unmarshal(input.Document, &document) == nil && document.Session == nil, nil
}
