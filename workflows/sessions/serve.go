package sessions

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// recall answers a request of an earlier run.
func (t *session) recall(id string) protocol.Answer {
	if a, isKept := t.answers.find(id); isKept {
		a = t.refresh(a)
		a.Fit()
		return a
	}
	return protocol.Answer{Request: id, Phase: t.Phase, Forgotten: true}
}

// checkRequest reports whether a request was accepted before. It refuses one that asks for
// something else under the same id.
func (t *session) checkRequest(ctx workflow.Context, content any) (isKnown bool, err error) {
	if err := protocol.CheckRequest(content); err != nil {
		return false, err
	}
	id := workflow.GetCurrentUpdateInfo(ctx).ID
	known := protocol.DigestOfRequest(content)
	if !t.seen.has(id) { // it is new, or was refused
		return false, nil
	}
	if q := t.answers.requests[id]; q != nil {
		known = q.digest
	} else if a, isKept := t.answers.find(id); isKept {
		known = a.Digest
	}
	if known != protocol.DigestOfRequest(content) {
		return false,
			protocol.RefuseRequestf(protocol.BadRequest,
				"request %q was made before and asked for something else: each needs an id of its own",
				payload.Clip(id, payload.MaxName))
	}
	return true, nil
}

// serve has a request carried out, once, and answers when it is over, needs a person, or the run
// ends, and within seconds at any rate. check is asked again what a validator was asked, for a
// request that met a session which was being compiled.
func (t *session) serve(ctx workflow.Context, content any, check func() error,
	carryOut func(workflow.Context, *request) error) (protocol.Answer, error) {
	id := workflow.GetCurrentUpdateInfo(ctx).ID
	t.Silence.Hear(workflow.Now(ctx))
	q := t.answers.requests[id]
	switch {
	case q != nil && q.refusal == nil:
	case q == nil && t.seen.has(id):
		return t.recall(id), nil
	default:
		t.answers.drop(q)
		q = &request{id: id, digest: protocol.DigestOfRequest(content), checking: true}
		t.seen.add(id)
		t.answers.add(q)
		t.startRequest(ctx, q, check, carryOut)
	}
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	a := t.answerSoon(calm, q, func() bool { return !q.checking && t.needsPerson() })
	if q.refusal != nil {
		t.answers.drop(q)
		return protocol.Answer{}, q.refusal
	}
	return a, nil
}

// startRequest carries out a request, beside its update: to compile steps, or to have a host
// confirm something, may take minutes.
func (t *session) startRequest(ctx workflow.Context, q *request, check func() error,
	carryOut func(workflow.Context, *request) error) {
	t.Serving++
	calm, done := workflow.NewDisconnectedContext(ctx)
	begun := false
	workflow.GoNamed(calm, "request "+q.id, func(ctx workflow.Context) {
		defer done()
		begun = true
		_ = workflow.Await(ctx, func() bool { return t.Phase != protocol.Compiling || t.Ending.Cause != nil })
		err := check()
		if err == nil {
			err = carryOut(ctx, q)
		}
		if err != nil {
			q.refusal = err
			t.seen.drop(q.id)
		}
		q.checking = false
		t.Serving--
	})
	_ = workflow.Await(calm, func() bool { return begun }) // most are over by then, and need no timer
}

// answerWithin is how long an update that was carried out waits for its end. A server allows a
// workflow few updates that are under way: ten that wait for their steps would keep out everything
// else, also what rejects or aborts. Afterwards QueryAnswer tells the rest.
const answerWithin = 3 * time.Second

// answerSoon answers a request when it is over, or suffices as it stands, and otherwise within
// answerWithin.
func (t *session) answerSoon(ctx workflow.Context, q *request, suffices func() bool) protocol.Answer {
	isDue := func() bool { return t.isRequestOver(q) || suffices() || t.IsLeaving() }
	if !isDue() {
		_, _ = workflow.AwaitWithTimeout(ctx, answerWithin, isDue)
	}
	t.Silence.Hear(workflow.Now(ctx))
	a := t.answer(q)
	q.told = q.told || !a.Pending
	return a
}
