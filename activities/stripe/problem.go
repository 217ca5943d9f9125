package stripe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v76"

	"github.com/seed-62bf7108/unwind/activities"
)

// problem is an error response, or no response (status 0). It holds only what is safe to pass on:
// messages, and the objects in errors, can hold a client secret.
type problem struct {
	status     int
	kind, code string
	param      string
	request    string
	replayed   bool
	retryAfter time.Duration
	cause      error // status 0: why there is no response
}

func (p *problem) Error() string {
	if p.status == 0 {
		return fmt.Sprintf("no answer from Stripe: %v", p.cause)
	}
	parts := []string{fmt.Sprintf("Stripe answered %d", p.status)}
	for _, s := range []string{p.kind, p.code} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if p.param != "" {
		parts = append(parts, "for parameter "+p.param)
	}
	if p.request != "" {
		parts = append(parts, "(request "+p.request+")")
	}
	return strings.Join(parts, " ")
}

func (p *problem) Unwrap() error { return p.cause }

// problemOf reduces an error of stripe-go to a problem.
func problemOf(err error) error {
	if answered, ok := errors.AsType[*stripe.Error](err); ok {
		p := &problem{status: answered.HTTPStatusCode, kind: string(answered.Type), code: string(answered.Code),
			param: answered.Param, request: answered.RequestID}
		if r := answered.LastResponse; r != nil {
			p.replayed = r.Header.Get("Idempotent-Replayed") == "true"
			if seconds, err := strconv.Atoi(r.Header.Get("Retry-After")); err == nil {
				p.retryAfter = time.Duration(seconds) * time.Second
			}
		}
		return p
	}
	if transport, ok := errors.AsType[*url.Error](err); ok {
		return &problem{cause: transport.Err}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &problem{cause: err}
	}
	// a proxy's page, whose text is not ours to repeat
	return &problem{cause: errors.New("the response is not from the API")}
}

func problemIn(err error) *problem {
	p, _ := errors.AsType[*problem](err)
	return p
}

// isUnavailable says that Stripe, or the network to it, does not work.
func isUnavailable(err error) bool {
	p := problemIn(err)
	return p != nil && (p.status == 0 || p.status >= http.StatusInternalServerError)
}

// isGone says that the object named in the path does not exist.
func isGone(err error) bool {
	p := problemIn(err)
	return p != nil && p.status == http.StatusNotFound
}

// isSpent says that the key was used for another request.
func isSpent(err error) bool {
	p := problemIn(err)
	return p != nil && p.status == http.StatusBadRequest && p.kind == string(stripe.ErrorTypeIdempotency)
}

// isBusy says that another request with this key, or on this object, is running.
func isBusy(err error) bool {
	p := problemIn(err)
	return p != nil && p.status == http.StatusConflict
}

// isDenied says that Stripe understood the request and refused it.
func isDenied(err error) bool {
	p := problemIn(err)
	return p != nil && !isSpent(err) &&
		(p.status == http.StatusBadRequest || p.status == http.StatusPaymentRequired || p.status == http.StatusNotFound)
}

// isStuck says that Stripe replays a status 500 for the key, which does not tell whether the
// request acted.
func isStuck(err error) bool {
	p := problemIn(err)
	return p != nil && p.status >= http.StatusInternalServerError && p.replayed
}

// asActionError turns a problem into a typed error of the contract.
func asActionError(err error) error {
	p := problemIn(err)
	if err == nil || p == nil || errors.Is(err, context.Canceled) {
		return err // a cancellation by the caller is no error of Stripe
	}
	e := activities.Errorf(activities.ActionFailed, "%v", p)
	switch {
	case p.status == 0, p.status >= http.StatusInternalServerError, isBusy(err):
	case p.status == http.StatusTooManyRequests:
		e.NextRetry = max(p.retryAfter, time.Second)
	case p.status == http.StatusUnauthorized, p.status == http.StatusForbidden:
		e.Type, e.Message = activities.Refused, e.Message+"; the worker's key is not valid, or lacks the permission"
	case isSpent(err):
		e.Type, e.Message = activities.Refused, e.Message+"; the step's idempotency key was used for another request"
	case p.status == http.StatusPaymentRequired:
		e.Type, e.Message = activities.ActionDenied, e.Message+"; the payment was declined"
	default:
		e.Type = activities.ActionDenied
	}
	return e
}
