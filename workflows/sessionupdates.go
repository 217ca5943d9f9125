package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// sessionUpdates are the updates of a session.
func (t *agentTask) sessionUpdates() []update {
	nothing := func(workflow.Context) error { return t.checkTakes() }
	return []update{
		{protocol.UpdateOpen, t.handleOpen, nothing},
		{protocol.UpdateStep, t.handleStep, t.validateStep},
		{protocol.UpdateSavepoint, t.handleSavepoint, t.validateSavepoint},
		{protocol.UpdateNote, t.handleNote, t.validateNote},
		{protocol.UpdateContext, t.handleContext, t.validateContext},
		{protocol.UpdateRollback, t.handleRollback, t.validateRollback},
		{protocol.UpdateRedo, t.handleRedo, t.validateRedo},
		{protocol.UpdateResolveStep, t.handleResolveStep, t.validateResolveStep},
		{protocol.UpdateFinish, t.handleFinish, t.validateFinish},
		{protocol.UpdateAbort, t.handleAbort, t.validateAbort},
		{protocol.UpdateAwait, t.handleAwait, t.validateAwait},
	}
}

func (t *agentTask) handleOpen(ctx workflow.Context) (protocol.Answer, error) {
	return t.serve(ctx, nil, t.checkTakes, func(workflow.Context, *request) error { return nil })
}

func (t *agentTask) handleStep(ctx workflow.Context, r protocol.StepRequest) (protocol.Answer, error) {
	return t.serve(ctx, r, t.checkGrows, func(ctx workflow.Context, q *request) error {
		compiled, err := t.compileSteps(ctx, r.Steps)
		if err != nil {
			return err
		}
		q.steps = t.addSteps(compiled)
		return nil
	})
}

func (t *agentTask) validateStep(ctx workflow.Context, r protocol.StepRequest) error {
	isKnown, err := t.checkRequest(ctx, r)
	if isKnown || err != nil {
		return err
	}
	if err := t.checkGrows(); err != nil {
		return err
	}
	named, ids, err := t.nameSteps(r.Steps)
	if err != nil {
		return err
	}
	a, err := t.addition(t.session.document, named, ids, nil)
	if err != nil {
		return err
	}
	return t.checkSteps(a)
}

// checkSteps checks steps before a request is accepted.
func (t *agentTask) checkSteps(additions ...task.Addition) error {
	if t.variant.check == nil {
		return nil
	}
	for _, a := range additions {
		if err := t.variant.check(a); err != nil {
			return protocol.RefuseRequestf(protocol.BadRequest, "%v", err)
		}
	}
	return nil
}

func (t *agentTask) handleSavepoint(ctx workflow.Context, r protocol.SavepointRequest) (protocol.Answer, error) {
	check := func() error { return first(t.checkGrows, func() error { return t.checkSavepoint(r.Name) }) }
	return t.serve(ctx, r, check, func(ctx workflow.Context, q *request) error {
		if r.Context != nil {
			if err := first(func() error { return t.confirmContext(ctx, *r.Context) }, check); err != nil {
				return err
			}
		}
		if err := t.admit(ctx, "savepoint", savepointBytes+payload.SizeOf(r)); err != nil {
			return err
		}
		t.savepoints.add(r.Name, t.saga.Last()+1)
		q.savepoint = r.Name
		if r.Context != nil {
			q.context = t.rememberContext(ctx, *r.Context, r.Name)
		}
		return nil
	})
}

func (t *agentTask) validateSavepoint(ctx workflow.Context, r protocol.SavepointRequest) error {
	isKnown, err := t.checkRequest(ctx, r)
	if isKnown || err != nil {
		return err
	}
	return first(t.checkGrows, func() error { return t.checkSavepoint(r.Name) }, func() error {
		if r.Context == nil {
			return nil
		}
		return checkContext(*r.Context)
	})
}

func (t *agentTask) handleRollback(ctx workflow.Context, r protocol.SessionRollback) (protocol.Answer, error) {
	return t.serve(ctx, r, t.checkTakes, func(_ workflow.Context, q *request) error {
		from, only, err := t.scope(r)
		if err != nil {
			return err
		}
		text := "rolled back by the agent"
		if r.To != "" {
			text += " to savepoint " + r.To
		}
		if r.Branch != nil {
			text += ", kept as branch " + r.Branch.Name
		}
		if r.Why != "" {
			text += ": " + payload.Clip(r.Why, payload.MaxWhy)
		}
		q.rollback = &rollback{
			cause: compensations.Cause{Kind: compensations.RolledBack, Step: only, Text: text}, begun: true, from: from, only: only, request: q.id, to: r.To,
			branch: r.Branch,
		}
		q.context = t.contextOf(r.To)
		t.rollbacks.ask(q.rollback)
		return nil
	})
}

func (t *agentTask) validateRollback(ctx workflow.Context, r protocol.SessionRollback) error {
	isKnown, err := t.checkRequest(ctx, r)
	if isKnown || err != nil {
		return err
	}
	return first(t.checkTakes, func() error { _, _, err := t.scope(r); return err })
}

func (t *agentTask) handleRedo(ctx workflow.Context, r protocol.SessionRedo) (protocol.Answer, error) {
	return t.serve(ctx, r, t.checkGrows, func(ctx workflow.Context, q *request) error { return t.redo(ctx, q, r) })
}

func (t *agentTask) validateRedo(ctx workflow.Context, r protocol.SessionRedo) error {
	isKnown, err := t.checkRequest(ctx, r)
	if isKnown || err != nil {
		return err
	}
	if err := t.checkGrows(); err != nil {
		return err
	}
	part, err := t.findTakenBack(r)
	if err != nil {
		return err
	}
	additions, err := t.additions(part)
	if err != nil {
		return err
	}
	return t.checkSteps(additions...)
}

func (t *agentTask) handleFinish(ctx workflow.Context) (protocol.Answer, error) {
	return t.serve(ctx, nil, func() error { return first(t.checkTakes, t.checkRests) }, func(_ workflow.Context, q *request) error {
		t.schedule.open, q.ends = false, true
		t.executor.silence.limit = 0
		return nil
	})
}

func (t *agentTask) validateFinish(ctx workflow.Context) error {
	isKnown, err := t.checkRequest(ctx, nil)
	if isKnown || err != nil {
		return err
	}
	return first(t.checkTakes, t.checkRests)
}

func (t *agentTask) handleAbort(ctx workflow.Context, r protocol.AbortRequest) (protocol.Answer, error) {
	return t.serve(ctx, r, t.checkAlive, func(_ workflow.Context, q *request) error {
		q.ends = true
		if t.ending.cause == nil {
			cause := canceledCause()
			cause.Text = "aborted by " + protocol.OrSomebody(payload.Clip(r.Who, payload.MaxName))
			if r.Why != "" {
				cause.Text += ": " + payload.Clip(r.Why, payload.MaxWhy)
			}
			t.ending.cause = cause
		}
		return nil
	})
}

func (t *agentTask) validateAbort(ctx workflow.Context, r protocol.AbortRequest) error {
	isKnown, err := t.checkRequest(ctx, r)
	if isKnown || err != nil {
		return err
	}
	return t.checkAlive()
}

// savepointBytes is about what is carried of a savepoint, besides its name and its context.
const savepointBytes = 20

// checkGrows refuses a request that would add to a session which takes no more.
func (t *agentTask) checkGrows() error { return first(t.checkTakes, t.checkNotStuck) }

// checkAlive refuses a request to a session that has ended.
func (t *agentTask) checkAlive() error {
	switch {
	case t.session == nil:
		return t.checkTakes()
	case t.phase == protocol.Closed || t.phase == protocol.Compiling && t.ending.cause != nil:
		return protocol.RefuseRequestf(protocol.SessionOver, "the session has ended")
	}
	return nil
}

func (t *agentTask) handleAwait(ctx workflow.Context, r protocol.AwaitRequest) (protocol.Answer, error) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	t.executor.silence.hear(workflow.Now(ctx))
	q := t.session.answers.requests[r.Request]
	if q == nil {
		return t.recall(r.Request), nil
	}
	return t.answerSoon(ctx, q, func() bool { return false }), nil
}

func (t *agentTask) validateAwait(_ workflow.Context, r protocol.AwaitRequest) error {
	if t.session == nil {
		return t.checkTakes()
	}
	_, isKept := t.session.answers.find(r.Request)
	if t.session.answers.requests[r.Request] == nil && !isKept && !t.session.seen.has(r.Request) {
		return protocol.RefuseRequestf(protocol.BadRequest, "request: the session has had no request %q", payload.Clip(r.Request, payload.MaxName))
	}
	return nil
}

// recall answers a request of an earlier run.
func (t *agentTask) recall(id string) protocol.Answer {
	if a, isKept := t.session.answers.find(id); isKept {
		a = t.refresh(a)
		a.Fit()
		return a
	}
	return protocol.Answer{Request: id, Phase: t.phase, Forgotten: true}
}

// checkRequest reports whether a request was accepted before. It refuses one that asks for something else under the same id.
func (t *agentTask) checkRequest(ctx workflow.Context, content any) (isKnown bool, err error) {
	if t.session == nil {
		return false, t.checkTakes()
	}
	if err := protocol.CheckRequest(content); err != nil {
		return false, err
	}
	id := workflow.GetCurrentUpdateInfo(ctx).ID
	known := protocol.DigestOfRequest(content)
	if !t.session.seen.has(id) { // it is new, or was refused
		return false, nil
	}
	if q := t.session.answers.requests[id]; q != nil {
		known = q.digest
	} else if a, isKept := t.session.answers.find(id); isKept {
		known = a.Digest
	}
	if known != protocol.DigestOfRequest(content) {
		return false, protocol.RefuseRequestf(protocol.BadRequest, "request %q was made before and asked for something else: each needs an id of its own", payload.Clip(id, payload.MaxName))
	}
	return true, nil
}

// serve has a request carried out, once, and answers when it is over, needs a person, or the run ends, and within seconds at any rate.
// check is asked again what a validator was asked, for a request that met a session which was being compiled.
func (t *agentTask) serve(ctx workflow.Context, content any, check func() error, carryOut func(workflow.Context, *request) error) (protocol.Answer, error) {
	id := workflow.GetCurrentUpdateInfo(ctx).ID
	t.executor.silence.hear(workflow.Now(ctx))
	q := t.session.answers.requests[id]
	switch {
	case q != nil && q.refusal == nil:
	case q == nil && t.session.seen.has(id):
		return t.recall(id), nil
	default:
		t.session.answers.drop(q)
		q = &request{id: id, digest: protocol.DigestOfRequest(content), checking: true}
		t.session.seen.add(id)
		t.session.answers.add(q)
		t.begin(ctx, q, check, carryOut)
	}
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	a := t.answerSoon(calm, q, func() bool { return !q.checking && t.needsPerson() })
	if q.refusal != nil {
		t.session.answers.drop(q)
		return protocol.Answer{}, q.refusal
	}
	return a, nil
}

// begin carries out a request, beside its update: to compile steps, or to have a host confirm something, may take minutes.
func (t *agentTask) begin(ctx workflow.Context, q *request, check func() error, carryOut func(workflow.Context, *request) error) {
	t.serving++
	calm, done := workflow.NewDisconnectedContext(ctx)
	begun := false
	workflow.GoNamed(calm, "request "+q.id, func(ctx workflow.Context) {
		defer done()
		begun = true
		_ = workflow.Await(ctx, func() bool { return t.phase != protocol.Compiling || t.ending.cause != nil })
		err := check()
		if err == nil {
			err = carryOut(ctx, q)
		}
		if err != nil {
			q.refusal = err
			t.session.seen.drop(q.id)
		}
		q.checking = false
		t.serving--
	})
	_ = workflow.Await(calm, func() bool { return begun }) // most are over by then, and need no timer
}

// answerWithin is how long an update that was carried out waits for its end. A server allows a workflow few updates that are under way:
// ten that wait for their steps would keep out everything else, also what rejects or aborts. Afterwards QueryAnswer tells the rest.
const answerWithin = 3 * time.Second

// answerSoon answers a request when it is over, or suffices as it stands, and otherwise within answerWithin.
func (t *agentTask) answerSoon(ctx workflow.Context, q *request, suffices func() bool) protocol.Answer {
	isDue := func() bool { return t.isRequestOver(q) || suffices() || t.isLeaving() }
	if !isDue() {
		_, _ = workflow.AwaitWithTimeout(ctx, answerWithin, isDue)
	}
	t.executor.silence.hear(workflow.Now(ctx))
	a := t.answer(q)
	q.told = q.told || !a.Pending
	return a
}

func first(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}
