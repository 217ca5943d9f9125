package stripe

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/seed-62bf7108/unwind/activities"
)

// breakerGuard is the circuit breaker of one direction, so that failing forwards never block an
// unwind.
type breakerGuard struct {
	breaker *gobreaker.TwoStepCircuitBreaker[any]
	pause   time.Duration
	opened  atomic.Int64 // when it last opened, in Unix nanoseconds
}

func newGuard(name string, c Config) *breakerGuard {
	g := &breakerGuard{pause: c.BreakerPause}
	g.breaker = gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name: name, Timeout: c.BreakerPause, MaxRequests: 1, Interval: time.Minute, BucketPeriod: 10 * time.Second,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= c.BreakerTrips },
		// A declined card or a bad request of ours shows that Stripe works.
		IsSuccessful: func(err error) bool { return err == nil || !isUnavailable(err) },
		// Our own cancellation says nothing about Stripe.
		IsExcluded: func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				g.opened.Store(time.Now().UnixNano())
			}
		},
	})
	return g
}

// runGuarded calls f unless the breaker is open: then it returns BreakerOpen with the time to wait.
func (g *breakerGuard) runGuarded(f func() error) error {
	done, err := g.breaker.Allow()
	if err != nil {
		wait := g.pause - time.Since(time.Unix(0, g.opened.Load()))
		if errors.Is(err, gobreaker.ErrTooManyRequests) || wait < time.Second {
			wait = time.Second // another call is probing right now
		}
		open := activities.Errorf(activities.BreakerOpen, "%s: %v; nothing is sent for %s", g.breaker.Name(), err,
			wait.Round(time.Second))
		open.NextRetry = wait
		return open
	}
	err = errors.New("panic")
	defer func() { done(err) }()
	err = f()
	return err
}
