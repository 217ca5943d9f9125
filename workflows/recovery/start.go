package recovery

import (
	"context"
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/workflows"
)

// startOnce starts a workflow about the run from, on that run's task queue. Its id can be used once, ever.
func (s Server) startOnce(ctx context.Context, from Run, id, workflowType, summary string, request any) (Run, error) {
	run, err := s.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: id, TaskQueue: from.Queue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		TypedSearchAttributes:                    workflows.OpenAttributes(from.Agent),
		Memo:                                     map[string]any{memoTask: from.Task},
		StaticSummary:                            summary,
	}, workflowType, request)
	if _, taken := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); taken {
		other, err := s.Describe(ctx, id, "")
		if err != nil {
			return Run{}, err
		}
		return Run{}, refuseTaken(from, other)
	}
	if err != nil {
		return Run{}, fmt.Errorf("start %s: %w", id, err)
	}
	return s.Describe(ctx, run.GetID(), run.GetRunID())
}

// refuseTaken refuses what another workflow does or has done.
func refuseTaken(of, by Run) error {
	verb := map[string]string{
		workflows.RecoverType: "recovered", workflows.RollbackType: "rolled back", workflows.RedoType: "redone",
	}[by.Type]
	switch {
	case by.Alive():
		return refusef(Taken, by.WorkflowID, "%s is already being %s by %s", of.WorkflowID, verb, by.WorkflowID)
	case by.Dead():
		return refusef(Dead, by.WorkflowID, "%s was being %s by %s, which was itself %s: recover that", of.WorkflowID, verb, by.WorkflowID, by.Ending())
	}
	return refusef(Taken, by.WorkflowID, "%s was already %s by %s", of.WorkflowID, verb, by.WorkflowID)
}
