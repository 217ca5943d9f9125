package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
)

// sendAlert sends an undo that needs a person, or waits for its host, to the worker's webhook. The details and the metrics show it
// even where the webhook cannot be reached.
func (t *agentTask) sendAlert(ctx workflow.Context, s compensations.StepReport) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute, ScheduleToCloseTimeout: 15 * time.Minute, Summary: "alert: " + s.Step,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	})
	info := workflow.GetInfo(ctx)
	err := workflow.ExecuteActivity(ctx, AlertActivity, Alert{
		Task: info.WorkflowExecution.ID, Run: info.WorkflowExecution.RunID, Step: s.Step, Action: s.Action,
		State: compensations.UndoState(s.State), Reason: s.Reason, Digest: s.Digest, At: workflow.Now(ctx),
	}).Get(ctx, nil)
	if err != nil {
		t.notes = append(t.notes, "nobody was alerted about step "+s.Step+": "+compensations.Reason(err))
	}
}
