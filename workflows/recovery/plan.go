package recovery

import (
	"context"
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// FindPlan finds a PlanTask that ended before it had released what its plans left in journals. With
// an empty run id it is the last run of the workflow id.
func (s Server) FindPlan(ctx context.Context, id, runID string) (Run, error) {
	run, err := s.Describe(ctx, id, runID)
	if err != nil {
		return run, err
	}
	return run, run.checkDeadPlan()
}

// checkDeadPlan refuses a run that is no plan, or has cleared it or will.
func (r Run) checkDeadPlan() error {
	switch _, incomplete := endings[r.Status]; {
	case r.Type != protocol.PlanTaskType:
		return refusef(Foreign, r.WorkflowID, "%q is a workflow of type %s, and no plan", r.WorkflowID, r.Type)
	case r.Alive():
		return refusef(Alive, r.WorkflowID, "%s is still planning: it clears its plan itself, also when it is canceled",
			r.WorkflowID)
	case !incomplete || r.Unwind != compensations.Open:
		return refusef(Ended, r.WorkflowID, "%s has cleared its plan itself", r.WorkflowID)
	}
	return nil
}

// ClearPlan starts what releases the rest of a plan that FindPlan has found, unless that runs or is
// done. One that failed is followed by another.
func (s Server) ClearPlan(ctx context.Context, plan Run) (Run, error) {
	id := protocol.ClearPlanID(plan.Chain)
	run, err := s.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: id, TaskQueue: plan.Queue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
	}, protocol.ClearPlanType, plan.Chain)
	if _, taken := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); taken {
		return Run{}, refusef(Taken, id, "%s is being cleared, or was, by %s", plan.WorkflowID, id)
	}
	if err != nil {
		return Run{}, fmt.Errorf("start %s: %w", id, err)
	}
	return s.Describe(ctx, run.GetID(), run.GetRunID())
}
