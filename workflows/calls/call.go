package calls

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

// forwardWait is how long a forward stays on the queue of a host before it shows as waiting for
// that host, where the step does not say. It is then scheduled again, for as long as it takes, and
// shown again after twice that time, up to maxHostWait.
const (
	forwardWait = 10 * time.Minute
	maxHostWait = time.Hour
)

// Slots bounds how many activities of a task's steps run at once, and the size of their arguments:
// all that are scheduled in one workflow task go in one message, and a server that refuses it
// refuses it for ever.
type Slots struct {
	slots     workflow.Semaphore
	bytes     workflow.Semaphore
	IsHolding func() bool // whether starting is suspended for now
	// Waits is called each time when no worker has taken a call of a step in time, and isServed when
	// the call has ended. By default nothing is called.
	Waits    func(ctx workflow.Context, s task.Step)
	IsServed func(s task.Step)
	// Defers is called when it is too early for a call, with what it waits for.
	Defers func(s task.Step, why string)
}

func NewSlots(ctx workflow.Context, isHolding func() bool) *Slots {
	return &Slots{
		slots: workflow.NewSemaphore(ctx, MaxInFlight), bytes: workflow.NewSemaphore(ctx, MaxScheduled), IsHolding: isHolding,
		Waits: func(workflow.Context, task.Step) {}, IsServed: func(task.Step) {}, Defers: func(task.Step, string) {},
	}
}

// Acquire waits until an activity with an argument of so many bytes may be scheduled.
func (c *Slots) Acquire(ctx workflow.Context, size int64) error {
	if err := c.slots.Acquire(ctx, 1); err != nil {
		return err
	}
	err := c.bytes.Acquire(ctx, size)
	if err != nil {
		c.slots.Release(1)
	}
	return err
}

func (c *Slots) Release(size int64) {
	c.slots.Release(1)
	c.bytes.Release(size)
}

// RunStep runs one activity of a step. A stopping worker or an open circuit breaker does not use up
// an attempt: the activity is scheduled again. The error is errHeld while starting is suspended.
func RunStep[T any](ctx workflow.Context, c *Slots, s task.Step, activityType, summary string,
	argument activities.Forward) (T, error) {
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
	size := int64(min(payload.SizeOf(argument), MaxScheduled))
	began, pause := workflow.Now(ctx), time.Second
	defer c.IsServed(s)
	for {
		var result T
		if err := c.Acquire(ctx, size); err != nil {
			return result, err
		}
		if c.IsHolding() {
			c.Release(size)
			return result, ErrHeld
		}
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), activityType, argument).Get(ctx, &result)
		c.Release(size)
		var timeout *temporal.TimeoutError
		switch {
		case errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START && ctx.Err() == nil:
			options.ScheduleToStartTimeout = min(2*options.ScheduleToStartTimeout, maxHostWait)
			c.Waits(ctx, s)
		case IsType(err, activities.WorkerStopping) && ctx.Err() == nil:
		case IsType(err, activities.NotYet):
			if err := c.waitUntilDue(ctx, s, err); err != nil {
				return result, err
			}
		case IsType(err, activities.BreakerOpen) && workflow.Now(ctx).Sub(began) < breakerPatience:
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

// waitUntilDue waits for as long as a call has asked, or until starting is suspended: a step may wait
// for days, and neither the next run nor a rollback waits with it.
func (c *Slots) waitUntilDue(ctx workflow.Context, s task.Step, notYet error) error {
	var app *temporal.ApplicationError
	errors.As(notYet, &app)
	c.Defers(s, app.Message())
	_, err := workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{
		Timeout:      max(app.NextRetryDelay(), time.Second),
		TimerOptions: workflow.TimerOptions{Summary: payload.Clip(s.ID+": "+app.Message(), activities.MaxSummary)},
	}, c.IsHolding)
	return err
}

func IsType(err error, t activities.ErrorType) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.Type() == string(t)
}

// IsUnknown reports whether err leaves open whether the forward has acted.
func IsUnknown(err error) bool {
	var timeout *temporal.TimeoutError
	return IsType(err, activities.UnknownOutcome) || errors.As(err, &timeout)
}

// ErrHeld ends the coroutine of a step while starting is suspended: the step continues from there
// after a rollback, or in the next run.
var ErrHeld = errors.New("held")

// MaxInFlight is how many activities of a task run at once: each may have 64 KiB of parameters, and
// all those scheduled in one workflow task are sent in one message of at most 4 MB.
const MaxInFlight = 40

// MaxScheduled is the size of the arguments of the activities that run at once. What was compiled,
// up to 1.4 MB, can go in the same message of at most 4 MB.
const MaxScheduled = 1_500_000
