package calls

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// A workflow that somebody has paused hears nobody, while its timers run on. So whenever a limit
// has passed, it is asked for how long the workflow was paused since the limit began to count, and
// the limit is put off by that.

// PausedSince returns for how long the workflow was paused since then. Where that cannot be known,
// the limit stands.
func PausedSince(ctx workflow.Context, since time.Time) time.Duration {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	calm = workflow.WithLocalActivityOptions(calm, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: time.Minute, Summary: "ask for how long the task was paused",
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2,
			MaximumInterval: 10 * time.Second},
	})
	var paused time.Duration
	if err := workflow.ExecuteLocalActivity(calm, protocol.PausedActivity, since).Get(calm, &paused); err != nil {
		workflow.GetLogger(ctx).Warn("for how long the task was paused is not known", "error", err)
	}
	return paused
}
