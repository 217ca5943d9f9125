package workflows

import (
	"encoding/json"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// maxRounds bounds how often the same undo is checked again.
const maxRounds = 5

// LateSweep repeats undos that found no effect while a request could still have been on its way. It first waits longer than
// the task itself would.
func LateSweep(ctx workflow.Context, input, carry converter.RawValue) (compensations.Report, error) {
	var r protocol.LateSweepRequest
	decodeInput("its argument", input, &r)
	t, err := newTask(ctx, carry, variant{repairs: true, round: r.Round, continueAsNew: func(ctx workflow.Context, next json.RawMessage) error {
		return workflow.NewContinueAsNewError(ctx, protocol.LateSweepType, protocol.LateSweepRequest{Task: r.Task, Round: r.Round}, next)
	}})
	if err != nil {
		return compensations.Report{}, err
	}
	return t.run(ctx, func(ctx workflow.Context) error {
		if parent := workflow.GetInfo(ctx).ParentWorkflowExecution; parent == nil || parent.ID != r.Task {
			return protocol.Refusef("%s: a late sweep is started by the task that it belongs to, and not by hand", r.Task)
		}
		calm, done := workflow.NewDisconnectedContext(ctx)
		defer done()
		var wait time.Duration
		var entries []activities.Entry
		for _, recheck := range r.Rechecks {
			wait = max(wait, recheck.After)
			entries = append(entries, recheck.Entry)
		}
		t.saga.Adopt(entries)
		_ = workflow.NewTimerWithOptions(calm, wait, workflow.TimerOptions{Summary: "until it is sure"}).Get(calm, nil)
		t.ending.cause = &compensations.Cause{Kind: compensations.Late, Text: fmt.Sprintf("a late look at undos of %s, number %d", r.Task, r.Round)}
		return nil
	})
}

// startLateSweep starts the late sweep of a closing task, which outlives it, and returns its id.
func (t *agentTask) startLateSweep(ctx workflow.Context, rechecks []compensations.Recheck) string {
	if t.variant.round >= maxRounds {
		return "none: this was the last of " + activities.CountOf(maxRounds, "look")
	}
	info := workflow.GetInfo(ctx)
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	id := t.lateSweepID(ctx, servedTask(ctx))
	child := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(calm, workflow.ChildWorkflowOptions{
		WorkflowID: id, ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_ABANDON,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		TypedSearchAttributes: protocol.ServingAttributes(t.compiled.Agent, servedTask(ctx)), StaticSummary: "late sweep of " + info.WorkflowExecution.ID,
	}), protocol.LateSweepType, protocol.LateSweepRequest{Task: info.WorkflowExecution.ID, Round: t.variant.round + 1, Rechecks: rechecks})
	if err := child.GetChildWorkflowExecution().Get(calm, nil); err != nil {
		return id + " (not started: " + err.Error() + ")"
	}
	return id
}

// maxWorkflowID is the longest id that every Temporal server takes.
const maxWorkflowID = 255

func (t *agentTask) lateSweepID(ctx workflow.Context, task string) string {
	run := fmt.Sprintf("%s-%d", workflow.GetInfo(ctx).WorkflowExecution.RunID, t.variant.round+1)
	id := fmt.Sprintf("late-sweep-%s-%s", task, run)
	if len(id) > maxWorkflowID {
		return "late-sweep-" + run
	}
	return id
}
