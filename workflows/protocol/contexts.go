package protocol

import (
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/packed"
)

// A context is the state of an agent, such as its conversation, as the agent has given it to its
// session. It may hold secrets, so it must not be in a history, where every argument of an update
// or an activity is. It goes to a host as the argument of a query, which leaves no trace, and is
// stored there in a journal. The session is then told its digest, and remembers that.

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
	// Savepoint is the one that it was given with. Seq is the sequence number of the last step before
	// it, and At when it came.
	Savepoint string    `json:"savepoint,omitempty"`
	Seq       int       `json:"seq,omitempty"`
	At        time.Time `json:"at,omitzero"`
}

// Anywhere is the context without the host that has it, which may be another one when a request is
// repeated.
func (c Context) Anywhere() Context {
	c.Host, c.Queue = "", ""
	return c
}

// ContextsType serves the queries QueryKeep and QueryContext for the host of the worker that
// answers them: no argument, no result.
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
