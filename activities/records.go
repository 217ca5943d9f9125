package activities

import (
	"context"
	"time"
)

// Owner is the workflow run that a record belongs to. A world stores it in the record, with the
// entry, so that the journal alone tells whose record it is.
type Owner struct {
	Workflow string `json:"workflow,omitempty"`
	Run      string `json:"run,omitempty"`
}

type ownerKey struct{}

// WithOwner adds the owner to the context of a call; the wrapper does it for every call of an
// action.
func WithOwner(ctx context.Context, o Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, o)
}

// OwnerOf returns the run that the call of ctx belongs to; zero outside a workflow.
func OwnerOf(ctx context.Context) Owner {
	o, _ := ctx.Value(ownerKey{}).(Owner)
	return o
}

// RecordState is the state of a token in its journal.
type RecordState string

// The states of a record. Open and Committed hold what an undo needs; Undone may hold what a redo
// needs.
const (
	RecordOpen      RecordState = "open"      // its task has not ended, or retention has not noticed yet
	RecordCommitted RecordState = "committed" // its task has committed: it is kept until Until
	RecordUndone    RecordState = "undone"    // an undo has begun or is done
	RecordReleased  RecordState = "released"  // nothing is left but the tombstone
)

// Record is what a journal holds of one token.
type Record struct {
	Entry Entry       `json:"entry"`
	Owner Owner       `json:"owner"`
	State RecordState `json:"state"`
	// Since is when the record was made, Ended when its task committed or its undo was done.
	Since time.Time `json:"since"`
	Ended time.Time `json:"ended,omitzero"`
	// Until is when a committed record, or what an undone one keeps for a redo, may be released. If an
	// undo has begun and not ended, it is when the record may be given up if its task is over.
	Until time.Time `json:"until,omitzero"`
	// Undone says, of a released record, that its step was undone before.
	Undone bool `json:"undone,omitempty"`
	// Unchanged says that the step had nothing to do, and has done nothing.
	Unchanged bool `json:"unchanged,omitempty"`
	// Bytes is the record's size on disk without the tombstone.
	Bytes int64 `json:"bytes"`
	// Holders are those who need it for an undo after the end of its task.
	Holders []Owner `json:"holders,omitempty"`
}

// Abandoned is the outcome of an undo that was given up.
var Abandoned = Undone{Outcome: Residue,
	Observed: "left as it was found, by a person's decision; its undo data is released"}

// Records is a world's view of its journal for retention. Its methods may be called at any time, by
// several processes.
type Records interface {
	// Records lists the tokens of the journal. Unreadable ones are in problems instead.
	Records(ctx context.Context) (records []Record, problems []error, err error)
	// Commit marks an open token as committed until then. A token that is not open stays as it is;
	// marking it twice changes nothing.
	Commit(ctx context.Context, token string, until time.Time) error
	// Hold keeps the record of a token from being released until EndHold: the holder is about to undo,
	// after the end of its task, and nothing of that begins before every record is held. It is false
	// where the release has begun. A token of which the journal has nothing is no reason to refuse:
	// its undo tells.
	Hold(ctx context.Context, token string, holder Owner) (held bool, err error)
	// EndHold ends a hold whose holder is over. One that does not exist is no error.
	EndHold(ctx context.Context, token string, holder Owner) error
	// Claim stores the owner of a damaged record, so that the record is listed again and does not stay
	// for ever.
	Claim(ctx context.Context, e Entry) error
	// Abandon gives up an undo that has begun and that nobody will finish: a person has decided to
	// leave the world as it is, and the task is over. It keeps an outcome that says so, which later
	// calls of the undo return; Release then drops the record. A token whose undo has ended, or has
	// not begun, stays as it is. The outcome is Abandoned.
	Abandon(ctx context.Context, token string) error
	// Forget removes everything of a released token except its tombstone: the outcome and the rest of
	// the audit trail.
	Forget(ctx context.Context, token string) error
}
