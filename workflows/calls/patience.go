package calls

import (
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// Patience says when something that is retried counts as failing: when it was tried a number of
// times, or no worker has taken it for a while. It is tried on then, with ever longer spells before
// the workflow hears of it again: each adds events to the history.
type Patience struct {
	tries int32         // of the next spell
	wait  time.Duration // for a worker
}

// With pauses from a second to a minute between them, firstTries take three minutes, and maxTries
// an hour.
const (
	firstTries = 9
	maxTries   = 60
)

func NewPatience(wait time.Duration) Patience { return Patience{tries: firstTries, wait: wait} }

// Limit has an activity end with the spell.
func (p Patience) Limit(o workflow.ActivityOptions) workflow.ActivityOptions {
	o.ScheduleToStartTimeout = p.wait
	o.RetryPolicy = &temporal.RetryPolicy{
		InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute, MaximumAttempts: p.tries,
	}
	return o
}

// EndSpell returns why an activity fails that is tried on; false if err is final.
func (p *Patience) EndSpell(err error, at activities.Place) (reason string, isTriedOn bool) {
	var app *temporal.ApplicationError
	var timeout *temporal.TimeoutError
	switch {
	case errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START:
		p.wait = min(2*p.wait, maxHostWait)
		return "waiting for " + compensations.DescribePlace(at), true
	case temporal.IsCanceledError(err), errors.As(err, &app) && app.NonRetryable():
		return "", false
	}
	p.tries = min(2*p.tries, maxTries)
	return compensations.Reason(err), true
}
