package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
)

// sendAlerts reports undos that need a person, or wait for their host, to the worker's webhook. The details and the metrics show
// them even if the webhook cannot be reached.
func (t *agentTask) sendAlerts(ctx workflow.Context, undos []compensations.StepReport) {
	what := undos[0].Step
	if more := len(undos) - 1; more > 0 {
		what += fmt.Sprintf(" and %d more", more)
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute, ScheduleToCloseTimeout: 15 * time.Minute, Summary: "alert: " + what,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	})
	info := workflow.GetInfo(ctx)
	alerts := make([]Alert, 0, len(undos))
	for _, s := range undos {
		alerts = append(alerts, Alert{
			Task: info.WorkflowExecution.ID, Run: info.WorkflowExecution.RunID, Step: s.Step, Action: s.Action,
			State: compensations.UndoState(s.State), Reason: s.Reason, Digest: s.Digest, At: workflow.Now(ctx),
		})
	}
	for len(alerts) > 0 {
		batch := keepFirst(alerts, maxAlerted)
		alerts = alerts[len(batch):]
		if err := workflow.ExecuteActivity(ctx, AlertActivity, batch).Get(ctx, nil); err != nil {
			t.notes = append(t.notes, "nobody was alerted about step "+what+": "+compensations.Reason(err))
		}
	}
}
