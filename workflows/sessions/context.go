package sessions

import (
	"regexp"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// maxContexts is how many contexts a session remembers besides those of its savepoints.
const maxContexts = 20

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// checkContext refuses what describes no context.
func checkContext(c protocol.Context) error {
	switch {
	case !digestForm.MatchString(string(c.Digest)) || c.Queue == "" || c.Size < 0:
		return protocol.RefuseRequestf(protocol.BadRequest,
			"context: digest, size and queue must be those that keeping it has returned")
	case len(c.Name) > payload.MaxName || len(c.Queue) > payload.MaxWhy || len(c.Host) > payload.MaxWhy:
		return protocol.RefuseRequestf(protocol.BadRequest, "context: its name can have at most %d bytes", payload.MaxName)
	}
	return nil
}

// confirmContext has the host of a context confirm that it is stored there, before its request is
// answered, and remove others that the session knows no more.
func (t *session) confirmContext(ctx workflow.Context, c protocol.Context) error {
	info := workflow.GetInfo(ctx)
	options := calls.Options("confirm the context " + c.Digest.Short())
	options.TaskQueue, options.ScheduleToStartTimeout, options.ScheduleToCloseTimeout = c.Queue, calls.HostWait,
		2*calls.HostWait
	t.compiling++
	// One that was known before, and is given again, may be about to be removed: then its host says
	// that it does not have it.
	_ = workflow.Await(ctx, func() bool { return !slices.Contains(t.forgetting, c.Digest) })
	forget := t.forgottenAt(c)
	t.giving, t.forgetting = append(t.giving, c.Digest), append(t.forgetting, forget...)
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), protocol.ContextActivity,
		protocol.ContextRequest{
			WorkflowID: info.WorkflowExecution.ID, FirstRunID: info.FirstRunID, Digest: c.Digest, Forget: forget,
		}).Get(ctx, nil)
	t.compiling--
	t.giving, t.forgetting = without(t.giving, c.Digest), without(t.forgetting, forget...)
	if err == nil {
		t.forgotten = slices.DeleteFunc(t.forgotten,
			func(k protocol.Context) bool { return k.Queue == c.Queue && slices.Contains(forget, k.Digest) })
	}
	if err != nil {
		return protocol.RefuseRequestf(protocol.BadRequest, "context: host %s does not have it: %s",
			payload.Clip(c.Host, payload.MaxName), payload.Clip(compensations.Reason(err), payload.MaxWhy))
	}
	return t.checkTakes()
}

// maxForgotten is how many contexts a session has its hosts remove. What is beyond goes with the
// session.
const maxForgotten = 500

// forget notes that a context is known no more, so that its host need not have it.
func (s *session) forget(c protocol.Context) {
	if len(s.forgotten) < maxForgotten {
		s.forgotten = append(s.forgotten, protocol.Context{Digest: c.Digest, Queue: c.Queue})
	}
}

// forgottenAt are contexts that the host of c need not have any more: nothing refers to them.
func (t *session) forgottenAt(c protocol.Context) (digests []activities.Digest) {
	isNeeded := map[activities.Digest]bool{c.Digest: true}
	for _, d := range t.giving {
		isNeeded[d] = true
	}
	for _, k := range t.contexts {
		isNeeded[k.Digest] = true
	}
	for _, part := range t.redos.parts {
		if part.Context != nil {
			isNeeded[part.Context.Digest] = true
		}
	}
	for _, k := range t.forgotten {
		if k.Queue == c.Queue && !isNeeded[k.Digest] && !slices.Contains(digests, k.Digest) {
			digests = append(digests, k.Digest)
		}
	}
	return digests
}

// without returns all without the first of each of some.
func without(all []activities.Digest, some ...activities.Digest) []activities.Digest {
	all = slices.Clone(all)
	for _, d := range some {
		if i := slices.Index(all, d); i >= 0 {
			all = slices.Delete(all, i, i+1)
		}
	}
	return all
}

// rememberContext remembers a context for the present place.
func (t *session) rememberContext(ctx workflow.Context, c protocol.Context, savepoint string) *protocol.Context {
	c.Savepoint, c.Seq, c.At = savepoint, t.Saga.Last(), workflow.Now(ctx)
	all := append(slices.Clone(t.contexts), c)
	more := -maxContexts
	for _, k := range all {
		if !t.isOfSavepoint(k) {
			more++
		}
	}
	t.contexts = nil
	for _, k := range all {
		if !t.isOfSavepoint(k) && more > 0 {
			t.forget(k)
			more--
			continue
		}
		t.contexts = append(t.contexts, k)
	}
	return &c
}

func (t *session) isOfSavepoint(c protocol.Context) bool {
	_, isKnown := t.Savepoints.Places[c.Savepoint]
	return isKnown && c.Savepoint != ""
}

// contextOf is the context of a savepoint; nil if it has none.
func (t *session) contextOf(savepoint string) *protocol.Context {
	for _, c := range t.contexts {
		if savepoint != "" && c.Savepoint == savepoint {
			return &c
		}
	}
	return nil
}

// dropContexts forgets the contexts of what was undone: they come after a place that was gone back
// to.
func (t *session) dropContexts(from int) {
	var kept []protocol.Context
	for _, c := range t.contexts {
		if c.Seq < from {
			kept = append(kept, c)
		} else {
			t.forget(c)
		}
	}
	t.contexts = kept
}

// keepContext remembers a context of the agent's.
var keepContext = ask[protocol.Context]{check: checkGrows[protocol.Context], inspect: (*session).inspectContext,
	carryOut: (*session).keepContext}.as(protocol.UpdateContext)

func (t *session) inspectContext(c protocol.Context) error { return checkContext(c) }

func (t *session) keepContext(ctx workflow.Context, q *request, c protocol.Context) error {
	if err := t.confirmContext(ctx, c); err != nil {
		return err
	}
	if err := t.Admit(ctx, "context", payload.SizeOf(c)); err != nil {
		return err
	}
	q.context = t.rememberContext(ctx, c, "")
	return nil
}
