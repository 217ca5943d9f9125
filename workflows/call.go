package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// maxAttempts bounds what a task file may ask for.
const maxAttempts = 1_000_000

// breakerPatience is how long a forward waits for a circuit breaker before it fails.
const breakerPatience = time.Hour

// calls bounds how many activities of the steps of a task run at once.
type calls struct {
	slots     workflow.Semaphore
	isHolding func() bool // nothing is started for now
}

func newCalls(ctx workflow.Context, isHolding func() bool) *calls {
	return &calls{slots: workflow.NewSemaphore(ctx, maxInFlight), isHolding: isHolding}
}

// callStep runs one activity of a step. A worker that stops, or a breaker that is open, costs no attempt: it is scheduled
// anew. The error is errHeld where nothing is started for now.
func callStep[T any](ctx workflow.Context, c *calls, s task.Step, activityType, summary string, argument activities.Forward) (T, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           s.Place.Queue,
		StartToCloseTimeout: s.Timeout,
		HeartbeatTimeout:    s.Heartbeat,
		WaitForCancellation: true, // it is undone only when it has ended, or is known to be lost
		Summary:             clip(summary, activities.MaxSummary),
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: s.Retry.Backoff, MaximumInterval: s.Retry.Max, BackoffCoefficient: 2,
			MaximumAttempts: int32(min(s.Retry.Attempts, maxAttempts)), //nolint:gosec // bounded
		},
	})
	began, pause := workflow.Now(ctx), time.Second
	for {
		var result T
		if err := c.slots.Acquire(ctx, 1); err != nil {
			return result, err
		}
		if c.isHolding() {
			c.slots.Release(1)
			return result, errHeld
		}
		err := workflow.ExecuteActivity(ctx, activityType, argument).Get(ctx, &result)
		c.slots.Release(1)
		switch {
		case isType(err, activities.WorkerStopping) && ctx.Err() == nil:
		case isType(err, activities.BreakerOpen) && workflow.Now(ctx).Sub(began) < breakerPatience:
			var app *temporal.ApplicationError
			errors.As(err, &app)
			pause = min(max(2*pause, app.NextRetryDelay()), 10*time.Minute)
			if err := workflow.NewTimerWithOptions(ctx, pause, workflow.TimerOptions{
				Summary: "waiting for the circuit breaker of " + s.Uses,
			}).Get(ctx, nil); err != nil {
				return result, err
			}
		default:
			return result, err
		}
	}
}

func isType(err error, t activities.ErrorType) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.Type() == string(t)
}

// isUnknown holds for errors that do not say whether the forward has acted.
func isUnknown(err error) bool {
	var timeout *temporal.TimeoutError
	return isType(err, activities.UnknownOutcome) || errors.As(err, &timeout)
}
