package sessions

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// awaitRequest answers how an earlier request stands.
var awaitRequest = verb{protocol.UpdateAwait, func(t *session) (handle, validate any) {
	handle = func(ctx workflow.Context, r protocol.AwaitRequest) (protocol.Answer, error) {
		ctx, done := workflow.NewDisconnectedContext(ctx)
		defer done()
		t.Silence.Hear(workflow.Now(ctx))
		q := t.answers.requests[r.Request]
		if q == nil {
			return t.recall(r.Request), nil
		}
		return t.answerSoon(ctx, q, func() bool { return false }), nil
	}
	return handle, func(_ workflow.Context, r protocol.AwaitRequest) error { return t.checkKnown(r.Request) }
}}

// checkKnown refuses the id of a request that there never was.
func (t *session) checkKnown(id string) error {
	_, isKept := t.answers.find(id)
	if t.answers.requests[id] == nil && !isKept && !t.seen.has(id) {
		return protocol.RefuseRequestf(protocol.BadRequest, "request: the session has had no request %q",
			payload.Clip(id, payload.MaxName))
	}
	return nil
}

// answerNow handles QueryAnswer.
func (t *session) answerNow(request string) (protocol.Answer, error) {
	if err := t.checkKnown(request); err != nil {
		return protocol.Answer{}, err
	}
	if q := t.answers.requests[request]; q != nil {
		return t.answer(q), nil
	}
	return t.recall(request), nil
}
