package recovery

import (
	"context"
	"fmt"
	"slices"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/workflows"
)

// FindRollback finds the rollback that redoing a workflow id means: that id's own, or the one rollback of that task.
func (s Server) FindRollback(ctx context.Context, id string) (Run, error) {
	run, err := s.Describe(ctx, id, "")
	if err != nil {
		return run, err
	}
	if err := run.ours(); err != nil {
		return run, err
	}
	if slices.Contains(GoForward, run.Type) {
		if run, err = s.rollbackOf(ctx, run); err != nil {
			return run, err
		}
	}
	switch {
	case run.Type != workflows.RollbackType:
		return run, refusef(Foreign, id, "%s is a %s: there is nothing to redo", id, run.Type)
	case run.Alive():
		return run, refusef(Alive, run.WorkflowID, "%s is still rolling back: wait for its end", run.WorkflowID)
	case run.Dead():
		return run, refusef(Dead, run.WorkflowID, "%s was %s in the middle: recover it", run.WorkflowID, run.Ending())
	}
	return run, nil
}

// rollbackOf finds the rollback of a task: that of the whole task, else the only one of a part of it.
func (s Server) rollbackOf(ctx context.Context, task Run) (Run, error) {
	if task.Alive() {
		return task, refusef(Alive, task.WorkflowID, "task %s is running: it was not rolled back", task.WorkflowID)
	}
	whole := workflows.RollbackID(workflows.RollbackRequest{Chain: task.Chain})
	run, err := s.Describe(ctx, whole, "")
	if WhyOf(err) != Unknown {
		return run, err
	}
	page, err := s.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: s.Namespace, PageSize: most,
		Query: fmt.Sprintf("WorkflowType = '%s' AND WorkflowId STARTS_WITH '%s-'", workflows.RollbackType, whole),
	})
	if err != nil {
		return run, fmt.Errorf("list the rollbacks of task %s: %w", task.WorkflowID, err)
	}
	var ids []string
	for _, e := range page.GetExecutions() {
		ids = append(ids, e.GetExecution().GetWorkflowId())
	}
	switch len(ids) {
	case 0:
		return run, refusef(Ended, task.WorkflowID, "task %s was not rolled back: there is nothing to redo", task.WorkflowID)
	case 1:
		return s.Describe(ctx, ids[0], "")
	}
	return run, refusef(NoSuchPart, task.WorkflowID, "task %s was rolled back in parts: name one of %s", task.WorkflowID, strings.Join(ids, ", "))
}

// Redo starts taking a rollback back that FindRollback has found; dc is the data converter of who started it.
func (s Server) Redo(ctx context.Context, rollback Run, who string, dc converter.DataConverter) (Run, error) {
	history := s.Client.GetWorkflowHistory(ctx, rollback.WorkflowID, rollback.FirstRunID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	first, err := history.Next()
	if err != nil {
		return Run{}, fmt.Errorf("history of %s: %w", rollback.WorkflowID, err)
	}
	var of workflows.RollbackRequest
	if err := dc.FromPayloads(first.GetWorkflowExecutionStartedEventAttributes().GetInput(), &of); err != nil {
		return Run{}, fmt.Errorf("argument of %s: %w", rollback.WorkflowID, err)
	}
	r := workflows.RedoRequest{Rollback: rollback.Chain, Task: of.Chain, Who: who}
	return s.start(ctx, rollback, workflows.RedoID(rollback.Chain), workflows.RedoType, "redo "+of.WorkflowID, r)
}
