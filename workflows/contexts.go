package workflows

import (
	"encoding/json"
	"regexp"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/packed"
)

// A context is the state of an agent, such as its conversation, as the agent has given it to its session. It may hold secrets, so it
// must not be in a history, where every argument of an update or an activity is. It goes to a host as the argument of a query, which
// leaves no trace, and is stored there in a journal. The session is then told its digest, and remembers that.

// Context describes what an agent has given to its session.
type Context struct {
	// Name is the agent's own.
	Name string `json:"name,omitempty"`
	// Digest is that of its bytes, and Size their number.
	Digest activities.Digest `json:"digest"`
	Size   int               `json:"size"`
	// Host has it, and serves Queue.
	Host  string `json:"host"`
	Queue string `json:"queue"`
	// Savepoint is the one that it was given with. Seq is the sequence number of the last step before it, and At when it came.
	Savepoint string    `json:"savepoint,omitempty"`
	Seq       int       `json:"seq,omitempty"`
	At        time.Time `json:"at,omitzero"`
}

// anywhere is the context without the host that has it, which may be another one when a request is repeated.
func (c Context) anywhere() Context {
	c.Host, c.Queue = "", ""
	return c
}

// ContextsType serves the queries QueryKeep and QueryContext for the host of the worker that answers them: no argument, no result.
const ContextsType = "Contexts"

// Queries of ContextsType.
const (
	// QueryKeep keeps a context: argument GivenContext, result Context.
	QueryKeep = "keep"
	// QueryContext reads one: argument ContextRequest, result GivenContext.
	QueryContext = "context"
)

// ContextRequest names a context: it is the argument of QueryContext, and of ContextActivity.
type ContextRequest struct {
	// WorkflowID and FirstRunID are those of its session.
	WorkflowID string            `json:"workflowId"`
	FirstRunID string            `json:"firstRunId"`
	Digest     activities.Digest `json:"digest,omitempty"`
	// Forget are contexts that the session knows no more: ContextActivity removes them.
	Forget []activities.Digest `json:"forget,omitempty"`
}

// GivenContext is a context with its bytes. A long one is packed.
type GivenContext struct {
	ContextRequest

	Content []byte `json:"content"`
}

type bareContext GivenContext

// MarshalJSON packs a long context. It fails if that has more than packed.Max bytes.
func (g GivenContext) MarshalJSON() ([]byte, error) { return packed.Marshal(bareContext(g)) }

// UnmarshalJSON reads what MarshalJSON has written.
func (g *GivenContext) UnmarshalJSON(raw []byte) error {
	return packed.Unmarshal(raw, (*bareContext)(g))
}

// ContextStore keeps contexts on its host.
type ContextStore interface {
	Keep(given GivenContext) (Context, error)
	Read(r ContextRequest) (GivenContext, error)
}

// RegisterContexts registers ContextsType for a host.
func RegisterContexts(to Registrar, store ContextStore) {
	to.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		if err := workflow.SetQueryHandler(ctx, QueryKeep, store.Keep); err != nil {
			return err
		}
		return workflow.SetQueryHandler(ctx, QueryContext, store.Read)
	}, workflow.RegisterOptions{Name: ContextsType})
}

// maxContexts is how many contexts a session remembers besides those of its savepoints.
const maxContexts = 20

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// checkContext refuses what describes no context.
func checkContext(c Context) error {
	switch {
	case !digestForm.MatchString(string(c.Digest)) || c.Queue == "" || c.Size < 0:
		return refuseRequestf(BadRequest, "context: digest, size and queue must be those that keeping it has returned")
	case len(c.Name) > maxName || len(c.Queue) > maxWhy || len(c.Host) > maxWhy:
		return refuseRequestf(BadRequest, "context: its name can have at most %d bytes", maxName)
	}
	return nil
}

// confirmContext has the host of a context confirm that it is stored there, before its request is answered, and remove others that the
// session knows no more.
func (t *agentTask) confirmContext(ctx workflow.Context, c Context) error {
	info := workflow.GetInfo(ctx)
	options := activityOptions("confirm the context " + c.Digest.Short())
	options.TaskQueue, options.ScheduleToStartTimeout, options.ScheduleToCloseTimeout = c.Queue, hostWait, 2*hostWait
	t.session.compiling++
	// One that was known before, and is given again, may be about to be removed: then its host says that it does not have it.
	_ = workflow.Await(ctx, func() bool { return !slices.Contains(t.session.forgetting, c.Digest) })
	forget := t.forgottenAt(c)
	t.session.giving, t.session.forgetting = append(t.session.giving, c.Digest), append(t.session.forgetting, forget...)
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), ContextActivity, ContextRequest{
		WorkflowID: info.WorkflowExecution.ID, FirstRunID: info.FirstRunID, Digest: c.Digest, Forget: forget,
	}).Get(ctx, nil)
	t.session.compiling--
	t.session.giving, t.session.forgetting = without(t.session.giving, c.Digest), without(t.session.forgetting, forget...)
	if err == nil {
		t.session.forgotten = slices.DeleteFunc(t.session.forgotten, func(k Context) bool { return k.Queue == c.Queue && slices.Contains(forget, k.Digest) })
	}
	if err != nil {
		return refuseRequestf(BadRequest, "context: host %s does not have it: %s", clip(c.Host, maxName), clip(compensations.Reason(err), maxWhy))
	}
	return t.checkTakes()
}

// maxForgotten is how many contexts a session has its hosts remove. What is beyond goes with the session.
const maxForgotten = 500

// forget notes that a context is known no more, so that its host need not have it.
func (s *session) forget(c Context) {
	if len(s.forgotten) < maxForgotten {
		s.forgotten = append(s.forgotten, Context{Digest: c.Digest, Queue: c.Queue})
	}
}

// forgottenAt are contexts that the host of c need not have any more: nothing refers to them.
func (t *agentTask) forgottenAt(c Context) (digests []activities.Digest) {
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
func (t *agentTask) rememberContext(ctx workflow.Context, c Context, savepoint string) *Context {
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

func (t *agentTask) isOfSavepoint(c Context) bool {
	_, isKnown := t.savepoints.places[c.Savepoint]
	return isKnown && c.Savepoint != ""
}

// contextOf is the context of a savepoint; nil if it has none.
func (t *agentTask) contextOf(savepoint string) *Context {
	for _, c := range t.session.contexts {
		if savepoint != "" && c.Savepoint == savepoint {
			return &c
		}
	}
	return nil
}

// dropContexts forgets the contexts of what was undone: they come after a place that was gone back to.
func (t *agentTask) dropContexts(from int) {
	var kept []Context
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

func (t *agentTask) handleContext(ctx workflow.Context, c Context) (Answer, error) {
	return t.serve(ctx, c.anywhere(), t.checkGrows, func(ctx workflow.Context, q *request) error {
		if err := t.confirmContext(ctx, c); err != nil {
			return err
		}
		if err := t.admit(ctx, "context", sizeOf(c)); err != nil {
			return err
		}
		q.context = t.rememberContext(ctx, c, "")
		return nil
	})
}

func (t *agentTask) validateContext(ctx workflow.Context, c Context) error {
	isKnown, err := t.checkRequest(ctx, c.anywhere())
	if isKnown || err != nil {
		return err
	}
	return first(t.checkGrows, func() error { return checkContext(c) })
}

// identity is what the same request has in common when it is repeated.
func (r SavepointRequest) identity() SavepointRequest {
	if r.Context != nil {
		c := r.Context.anywhere()
		r.Context = &c
	}
	return r
}

// digestedContent is what DigestOfRequest digests of a request.
func digestedContent(content any) ([]byte, error) {
	switch r := content.(type) {
	case SavepointRequest:
		return json.Marshal(r.identity())
	case Context:
		return json.Marshal(r.anywhere())
	}
	return json.Marshal(content)
}
