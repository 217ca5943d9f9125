package engine

import (
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// startLateSweep starts the late sweep of a closing task, which outlives it, and returns its id.
func (t *Task) startLateSweep(ctx workflow.Context, rechecks []compensations.Recheck) string {
	if t.variant.Round >= maxRounds {
		return "none: this was the last of " + activities.CountOf(maxRounds, "look")
	}
	info := workflow.GetInfo(ctx)
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	id := t.lateSweepID(ctx, servedTask(ctx))
	child := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(calm, workflow.ChildWorkflowOptions{
		WorkflowID: id, ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_ABANDON,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		TypedSearchAttributes: protocol.ServingAttributes(t.Compiled.Agent, servedTask(ctx)),
		StaticSummary:         "late sweep of " + info.WorkflowExecution.ID,
	}), protocol.LateSweepType, protocol.LateSweepRequest{Task: info.WorkflowExecution.ID, Round: t.variant.Round +
		1, Rechecks: rechecks})
	if err := child.GetChildWorkflowExecution().Get(calm, nil); err != nil {
		return id + " (not started: " + err.Error() + ")"
	}
	return id
}

// maxWorkflowID is the longest id that every Temporal server takes.
const maxWorkflowID = 255

func (t *Task) lateSweepID(ctx workflow.Context, task string) string {
	run := fmt.Sprintf("%s-%d", workflow.GetInfo(ctx).WorkflowExecution.RunID, t.variant.Round+1)
	id := fmt.Sprintf("late-sweep-%s-%s", task, run)
	if len(id) > maxWorkflowID {
		return "late-sweep-" + run
	}
	return id
}

// maxRounds bounds how often the same undo is checked again.
const maxRounds = 5
