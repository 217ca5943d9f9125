package activities

import (
	"context"
	"time"
)

// Owner is the run of a workflow that a record belongs to. A world stores it in the record, with the entry, so that the
// journal alone tells whose it is.
type Owner struct {
	Workflow string `json:"workflow,omitempty"`
	Run      string `json:"run,omitempty"`
}

type ownerKey struct{}

// WithOwner is what the wrapper puts round every call of an action.
func WithOwner(ctx context.Context, o Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, o)
}

// OwnerOf is the run that the running call belongs to; zero outside a workflow.
func OwnerOf(ctx context.Context) Owner {
	o, _ := ctx.Value(ownerKey{}).(Owner)
	return o
}

// RecordState is where a token stands in its journal.
type RecordState string

// The states of a record. Open and Committed hold what an undo needs; Undone may hold what a redo needs.
const (
	RecordOpen      RecordState = "open"      // its task has not ended, or nobody has looked since
	RecordCommitted RecordState = "committed" // its task has committed: it is kept until Until
	RecordUndone    RecordState = "undone"    // an undo has begun or is done
	RecordReleased  RecordState = "released"  // nothing is left but the tombstone
)

// Record is what a journal holds of one token.
type Record struct {
	Entry Entry       `json:"entry"`
	Owner Owner       `json:"owner"`
	State RecordState `json:"state"`
	// Since is when the record was made; Ended when its task committed or its undo was done.
	Since time.Time `json:"since"`
	Ended time.Time `json:"ended,omitzero"`
	// Until is when a committed record, or what an undone one keeps for a redo, may be released; of one whose undo has begun
	// and not ended, when it may be given up if its task is over.
	Until time.Time `json:"until,omitzero"`
	// Bytes is what it takes on the disk beside the tombstone.
	Bytes int64 `json:"bytes"`
}

// Records is what a world tells about its journal. Its methods may be called at any time, by several processes.
type Records interface {
	// Records lists the tokens of the journal. One that cannot be read is left out, and told in problems.
	Records(ctx context.Context) (records []Record, problems []error, err error)
	// Commit marks an open token as committed until then. A token that is not open stays as it is; marking it twice
	// changes nothing.
	Commit(ctx context.Context, token string, until time.Time) error
	// Claim keeps whose a record is that was found damaged, so that it is not left for ever: it is listed again.
	Claim(ctx context.Context, e Entry) error
	// Abandon gives an undo up that has begun and that nobody will bring to its end: a person has decided to leave the world
	// as it is, and the task is over. It keeps an outcome that says so, which later calls of the undo return; Release then
	// drops the record. A token whose undo has ended, or has not begun, stays as it is.
	Abandon(ctx context.Context, token string) error
	// Forget removes what is left of a released token but its tombstone: the outcome and the rest of the audit trail.
	Forget(ctx context.Context, token string) error
}
