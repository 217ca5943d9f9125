package sessions

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// finishSession commits what the session has done.
var finishSession = verb{protocol.UpdateFinish, func(t *session) (handle, validate any) {
	check := func() error { return first(t.checkTakes, t.checkRests) }
	handle = func(ctx workflow.Context) (protocol.Answer, error) {
		return t.serve(ctx, nil, check, func(_ workflow.Context, q *request) error {
			t.Schedule.Open, q.ends = false, true
			t.Silence.Limit = 0
			return nil
		})
	}
	return handle, func(ctx workflow.Context) error {
		isKnown, err := t.checkRequest(ctx, nil)
		if isKnown || err != nil {
			return err
		}
		return check()
	}
}}

// abortSession undoes all that the session has done.
var abortSession = ask[protocol.AbortRequest]{check: (*session).checkAbort,
	carryOut: (*session).abort}.as(protocol.UpdateAbort)

func (t *session) checkAbort(protocol.AbortRequest) error { return t.checkAlive() }

func (t *session) abort(_ workflow.Context, q *request, r protocol.AbortRequest) error {
	q.ends = true
	if t.Ending.Cause == nil {
		cause := engine.CanceledCause()
		cause.Text = "aborted by " + protocol.OrSomebody(payload.Clip(r.Who, payload.MaxName))
		if r.Why != "" {
			cause.Text += ": " + payload.Clip(r.Why, payload.MaxWhy)
		}
		t.Ending.Cause = cause
	}
	return nil
}
