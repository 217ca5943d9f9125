package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// A workflow that somebody has paused hears nobody, while its timers run on. So whenever a limit has passed, it is asked for how long
// the workflow was paused since the limit began to count, and the limit is put off by that.

// pausedSince returns for how long the workflow was paused since then. Where that cannot be known, the limit stands.
func pausedSince(ctx workflow.Context, since time.Time) time.Duration {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	calm = workflow.WithLocalActivityOptions(calm, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: time.Minute, Summary: "ask for how long the task was paused",
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second},
	})
	var paused time.Duration
	if err := workflow.ExecuteLocalActivity(calm, protocol.PausedActivity, since).Get(calm, &paused); err != nil {
		workflow.GetLogger(ctx).Warn("for how long the task was paused is not known", "error", err)
	}
	return paused
}

// deadline is that of a whole task. The zero value never passes.
type deadline struct {
	began time.Time
	limit time.Duration
	timer workflow.Future
}

// watch sets the timer to what is left.
func (d *deadline) watch(ctx workflow.Context, paused time.Duration) {
	left := max(d.began.Add(d.limit+paused).Sub(workflow.Now(ctx)), time.Millisecond)
	d.timer = workflow.NewTimerWithOptions(ctx, left, workflow.TimerOptions{Summary: "the task's deadline"})
}

func (d *deadline) isDue() bool { return d.timer != nil && d.timer.IsReady() }

// end returns why the task ends; nil if it was paused, so that it has time left.
func (d *deadline) end(ctx workflow.Context) *compensations.Cause {
	paused := pausedSince(ctx, d.began)
	if workflow.Now(ctx).Sub(d.began) < d.limit+paused {
		d.watch(ctx, paused)
		return nil
	}
	return deadlineCause(d.limit)
}
