// Package remote is what the worlds of remote APIs share: addresses that are fit for a secret, a
// circuit breaker, and a late look where no answer is no proof.
package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/seed-62bf7108/unwind/activities"
)

// Breaker is the circuit breaker of one direction, so that failing forwards never block an unwind.
type Breaker struct {
	breaker *gobreaker.TwoStepCircuitBreaker[any]
	pause   time.Duration
	opened  atomic.Int64 // when it last opened, in Unix nanoseconds
}

// NewBreaker makes a breaker that opens for a pause once so many consecutive calls have failed as
// isUnavailable says. A request that was refused shows that the API works.
func NewBreaker(name string, trips uint32, pause time.Duration, isUnavailable func(error) bool) *Breaker {
	b := &Breaker{pause: pause}
	b.breaker = gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name: name, Timeout: pause, MaxRequests: 1, Interval: time.Minute, BucketPeriod: 10 * time.Second,
		ReadyToTrip:  func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= trips },
		IsSuccessful: func(err error) bool { return err == nil || !isUnavailable(err) },
		// Our own cancellation says nothing about the API.
		IsExcluded: func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				b.opened.Store(time.Now().UnixNano())
			}
		},
	})
	return b
}

// Run calls f unless the breaker is open: then it returns BreakerOpen with the time to wait.
func (b *Breaker) Run(f func() error) error {
	done, err := b.breaker.Allow()
	if err != nil {
		wait := b.pause - time.Since(time.Unix(0, b.opened.Load()))
		if errors.Is(err, gobreaker.ErrTooManyRequests) || wait < time.Second {
			wait = time.Second // another call is probing right now
		}
		open := activities.Errorf(activities.BreakerOpen, "%s: %v; nothing is sent for %s", b.breaker.Name(), err,
			wait.Round(time.Second))
		open.NextRetry = wait
		return open
	}
	err = errors.New("panic")
	defer func() { done(err) }()
	err = f()
	return err
}

// LookLate makes a late sweep look again at the outcome of an undo that saw nothing, where a
// request may still arrive.
func LookLate(u activities.Undone, delay time.Duration) activities.Undone {
	u.LookAgain = delay
	u.Observed += fmt.Sprintf("; that is no proof yet, so a late sweep looks again in %s", delay)
	return u
}

// CheckURL refuses what is no address of an API. A secret is sent in the clear to this machine
// alone.
func CheckURL(address string, hasSecret bool) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("give an address as in https://host/path")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New(
			"an address has no user, password, query or fragment here: it is shown to people; give a secret by its name")
	case hasSecret && u.Scheme == "http" && !isLoopback(u.Hostname()):
		return fmt.Errorf("the secret would go to %s in the clear; use https", u.Host)
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
