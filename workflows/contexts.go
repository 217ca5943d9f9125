package workflows

import (
	"regexp"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// RegisterContexts registers ContextsType for a host.
func RegisterContexts(to Registrar, store protocol.ContextStore) {
	to.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		if err := workflow.SetQueryHandler(ctx, protocol.QueryKeep, store.Keep); err != nil {
			return err
		}
		return workflow.SetQueryHandler(ctx, protocol.QueryContext, store.Read)
	}, workflow.RegisterOptions{Name: protocol.ContextsType})
}

// maxContexts is how many contexts a session remembers besides those of its savepoints.
const maxContexts = 20

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// checkContext refuses what describes no context.
func checkContext(c protocol.Context) error {
	switch {
	case !digestForm.MatchString(string(c.Digest)) || c.Queue == "" || c.Size < 0:
		return protocol.RefuseRequestf(protocol.BadRequest, "context: digest, size and queue must be those that keeping it has returned")
	case len(c.Name) > payload.MaxName || len(c.Queue) > payload.MaxWhy || len(c.Host) > payload.MaxWhy:
		return protocol.RefuseRequestf(protocol.BadRequest, "context: its name can have at most %d bytes", payload.MaxName)
	}
	return nil
}

// confirmContext has the host of a context confirm that it is stored there, before its request is answered, and remove others that the
// session knows no more.
func (t *agentTask) confirmContext(ctx workflow.Context, c protocol.Context) error {
	info := workflow.GetInfo(ctx)
	options := activityOptions("confirm the context " + c.Digest.Short())
	options.TaskQueue, options.ScheduleToStartTimeout, options.ScheduleToCloseTimeout = c.Queue, hostWait, 2*hostWait
	t.session.compiling++
	// One that was known before, and is given again, may be about to be removed: then its host says that it does not have it.
	_ = workflow.Await(ctx, func() bool { return !slices.Contains(t.session.forgetting, c.Digest) })
	forget := t.forgottenAt(c)
	t.session.giving, t.session.forgetting = append(t.session.giving, c.Digest), append(t.session.forgetting, forget...)
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), protocol.ContextActivity, protocol.ContextRequest{
		WorkflowID: info.WorkflowExecution.ID, FirstRunID: info.FirstRunID, Digest: c.Digest, Forget: forget,
	}).Get(ctx, nil)
	t.session.compiling--
	t.session.giving, t.session.forgetting = without(t.session.giving, c.Digest), without(t.session.forgetting, forget...)
	if err == nil {
		t.session.forgotten = slices.DeleteFunc(t.session.forgotten, func(k protocol.Context) bool { return k.Queue == c.Queue && slices.Contains(forget, k.Digest) })
	}
	if err != nil {
		return protocol.RefuseRequestf(protocol.BadRequest, "context: host %s does not have it: %s", payload.Clip(c.Host, payload.MaxName), payload.Clip(compensations.Reason(err), payload.MaxWhy))
	}
	return t.checkTakes()
}

// maxForgotten is how many contexts a session has its hosts remove. What is beyond goes with the session.
const maxForgotten = 500

// forget notes that a context is known no more, so that its host need not have it.
func (s *session) forget(c protocol.Context) {
	if len(s.forgotten) < maxForgotten {
		s.forgotten = append(s.forgotten, protocol.Context{Digest: c.Digest, Queue: c.Queue})
	}
}

// forgottenAt are contexts that the host of c need not have any more: nothing refers to them.
func (t *agentTask) forgottenAt(c protocol.Context) (digests []activities.Digest) {
	isNeeded := map[activities.Digest]bool{c.Digest: true}
	for _, d := range t.session.giving {
		isNeeded[d] = true
	}
	for _, k := range t.session.contexts {
		isNeeded[k.Digest] = true
	}
	for _, part := range t.session.redos.parts {
		if part.Context != nil {
			isNeeded[part.Context.Digest] = true
		}
	}
	for _, k := range t.session.forgotten {
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
func (t *agentTask) rememberContext(ctx workflow.Context, c protocol.Context, savepoint string) *protocol.Context {
	c.Savepoint, c.Seq, c.At = savepoint, t.saga.Last(), workflow.Now(ctx)
	all := append(slices.Clone(t.session.contexts), c)
	more := -maxContexts
	for _, k := range all {
		if !t.isOfSavepoint(k) {
			more++
		}
	}
	t.session.contexts = nil
	for _, k := range all {
		if !t.isOfSavepoint(k) && more > 0 {
			t.session.forget(k)
			more--
			continue
		}
		t.session.contexts = append(t.session.contexts, k)
	}
	return &c
}

func (t *agentTask) isOfSavepoint(c protocol.Context) bool {
	_, isKnown := t.savepoints.places[c.Savepoint]
	return isKnown && c.Savepoint != ""
}

// contextOf is the context of a savepoint; nil if it has none.
func (t *agentTask) contextOf(savepoint string) *protocol.Context {
	for _, c := range t.session.contexts {
		if savepoint != "" && c.Savepoint == savepoint {
			return &c
		}
	}
	return nil
}

// dropContexts forgets the contexts of what was undone: they come after a place that was gone back to.
func (t *agentTask) dropContexts(from int) {
	var kept []protocol.Context
	for _, c := range t.session.contexts {
		if c.Seq < from {
			kept = append(kept, c)
		} else {
			t.session.forget(c)
		}
	}
	t.session.contexts = kept
}

// maxSince is how many steps a view lists since the last context.
const maxSince = 1000

// sinceContext lists the steps on the ledger that came after the last context, or all of them.
func (t *agentTask) sinceContext() (since []string) {
	seq := 0
	if n := len(t.session.contexts); n > 0 {
		seq = t.session.contexts[n-1].Seq
	}
	for _, e := range t.saga.Entries() {
		if e.Seq > seq {
			since = append(since, e.Step)
		}
	}
	return since[max(0, len(since)-maxSince):]
}

func (t *agentTask) handleContext(ctx workflow.Context, c protocol.Context) (protocol.Answer, error) {
	return t.serve(ctx, c.Anywhere(), t.checkGrows, func(ctx workflow.Context, q *request) error {
		if err := t.confirmContext(ctx, c); err != nil {
			return err
		}
		if err := t.admit(ctx, "context", payload.SizeOf(c)); err != nil {
			return err
		}
		q.context = t.rememberContext(ctx, c, "")
		return nil
	})
}

func (t *agentTask) validateContext(ctx workflow.Context, c protocol.Context) error {
	isKnown, err := t.checkRequest(ctx, c.Anywhere())
	if isKnown || err != nil {
		return err
	}
	return first(t.checkGrows, func() error { return checkContext(c) })
}
