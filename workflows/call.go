package workflows

import (
	"cmp"
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// maxAttempts bounds the attempts that a task file may ask for.
const maxAttempts = 1_000_000

// breakerPatience is how long a forward waits for a circuit breaker before it fails.
const breakerPatience = time.Hour

// forwardWait is how long a forward stays on the queue of a host before it shows as waiting for that host, where the step does not say.
// It is then scheduled again, for as long as it takes, and shown again after twice that time, up to maxHostWait.
const (
	forwardWait = 10 * time.Minute
	maxHostWait = time.Hour
)

// calls bounds how many activities of a task's steps run at once, and the size of their arguments: all that are scheduled in one
// workflow task go in one message, and a server that refuses it refuses it for ever.
type calls struct {
	slots     workflow.Semaphore
	bytes     workflow.Semaphore
	isHolding func() bool // whether starting is suspended for now
	// waits is called each time when no worker has taken a call of a step in time, and isServed when the call has ended. By default
	// nothing is called.
	waits    func(ctx workflow.Context, s task.Step)
	isServed func(s task.Step)
}

func newCalls(ctx workflow.Context, isHolding func() bool) *calls {
	return &calls{
		slots: workflow.NewSemaphore(ctx, maxInFlight), bytes: workflow.NewSemaphore(ctx, maxScheduled), isHolding: isHolding,
		waits: func(workflow.Context, task.Step) {}, isServed: func(task.Step) {},
	}
}

// acquire waits until an activity with an argument of so many bytes may be scheduled.
func (c *calls) acquire(ctx workflow.Context, size int64) error {
	if err := c.slots.Acquire(ctx, 1); err != nil {
		return err
	}
	err := c.bytes.Acquire(ctx, size)
	if err != nil {
		c.slots.Release(1)
	}
	return err
}

func (c *calls) release(size int64) {
	c.slots.Release(1)
	c.bytes.Release(size)
}

// callStep runs one activity of a step. A stopping worker or an open circuit breaker does not use up an attempt: the activity is
// scheduled again. The error is errHeld while starting is suspended.
func callStep[T any](ctx workflow.Context, c *calls, s task.Step, activityType, summary string, argument activities.Forward) (T, error) {
	options := workflow.ActivityOptions{
		TaskQueue:              s.Place.Queue,
		ScheduleToStartTimeout: cmp.Or(s.Undo.HostWait, forwardWait),
		StartToCloseTimeout:    s.Timeout,
		HeartbeatTimeout:       s.Heartbeat,
		WaitForCancellation:    true, // its undo must not begin before it has ended or is known to be lost
		Summary:                payload.Clip(summary, activities.MaxSummary),
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: s.Retry.Backoff, MaximumInterval: s.Retry.Max, BackoffCoefficient: 2,
			MaximumAttempts: int32(min(s.Retry.Attempts, maxAttempts)), //nolint:gosec // bounded
		},
	}
	size := int64(min(payload.SizeOf(argument), maxScheduled))
	began, pause := workflow.Now(ctx), time.Second
	defer c.isServed(s)
	for {
		var result T
		if err := c.acquire(ctx, size); err != nil {
			return result, err
		}
		if c.isHolding() {
			c.release(size)
			return result, errHeld
		}
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), activityType, argument).Get(ctx, &result)
		c.release(size)
		var timeout *temporal.TimeoutError
		switch {
		case errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START && ctx.Err() == nil:
			options.ScheduleToStartTimeout = min(2*options.ScheduleToStartTimeout, maxHostWait)
			c.waits(ctx, s)
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

// isUnknown reports whether err leaves open whether the forward has acted.
func isUnknown(err error) bool {
	var timeout *temporal.TimeoutError
	return isType(err, activities.UnknownOutcome) || errors.As(err, &timeout)
}
