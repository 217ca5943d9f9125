// Package recordkeeping is what retention does to the records of steps whose journals are in
// databases: to change a record unless somebody else has changed it is all that a database brings.
package recordkeeping

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// The states of a record, which is never deleted: it is the fence.
const (
	Applied  = "applied" // written together with the change
	Undoing  = "undoing" // no forward may act any more
	Undone   = "undone"
	Released = "released" // before it acted, or when its rollback window had closed
)

// Record is what a journal has of a token, but for what its step did.
type Record struct {
	Times

	State string `json:"state"`
	// Holders are those who need it for an undo after the end of its task.
	Holders []activities.Owner `json:"holders,omitempty"`
	// Outcome is that of the undo.
	Outcome *activities.Undone `json:"outcome,omitempty"`
	// Forgotten leaves nothing but the fence.
	Forgotten bool `json:"forgotten,omitempty"`
}

// KeptOutcome is the outcome of an undo in a journal, and whose it is.
type KeptOutcome struct {
	Token string `json:"token"`
	activities.Undone
}

// NewJournalID returns the id of a journal that is about to be made.
func NewJournalID() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // it never fails
	return hex.EncodeToString(random)
}

// Journals are those of a world's databases. Their methods may be called at any time, by several
// processes.
type Journals interface {
	// Records lists the tokens of all journals. Unreadable ones, and databases that do not answer, are
	// in problems instead.
	Records(ctx context.Context) (records []activities.Record, problems []error, err error)
	// Change calls change with the record of a token, in whichever journals have one, and stores what
	// that makes of it if it returns true. It does so again where another call has changed the record
	// meanwhile. A token without a record is no error. What Outcome is before a change sets it need
	// not be read, and of one that becomes Forgotten nothing is kept but what Record has.
	Change(ctx context.Context, token string, change func(*Record) (bool, error)) error
}

// Records implements activities.Records.
type Records struct{ Journals }

// Commit marks an open token.
func (r Records) Commit(ctx context.Context, token string, until time.Time) error {
	return r.Change(ctx, token, func(r *Record) (bool, error) {
		if r.State != Applied || !r.Committed.IsZero() {
			return false, nil
		}
		r.Committed, r.Until = time.Now().UTC(), until.UTC()
		return true, nil
	})
}

// Hold keeps a record from being released.
func (r Records) Hold(ctx context.Context, token string, holder activities.Owner) (held bool, err error) {
	held = true
	err = r.Change(ctx, token, func(r *Record) (bool, error) {
		held = r.State != Released
		if r.State != Applied || slices.Contains(r.Holders, holder) {
			return false, nil
		}
		r.Holders = append(r.Holders, holder)
		return true, nil
	})
	return held && err == nil, err
}

// EndHold ends a hold.
func (r Records) EndHold(ctx context.Context, token string, holder activities.Owner) error {
	return r.Change(ctx, token, func(r *Record) (bool, error) {
		n := len(r.Holders)
		r.Holders = slices.DeleteFunc(r.Holders, func(o activities.Owner) bool { return o == holder })
		return len(r.Holders) < n, nil
	})
}

// Claim has nothing to do: a record names its owner even if another part of it is damaged.
func (Records) Claim(context.Context, activities.Entry) error { return nil }

// Abandon gives up an undo that has begun.
func (r Records) Abandon(ctx context.Context, token string) error {
	return r.Change(ctx, token, func(r *Record) (bool, error) {
		if r.State != Undoing {
			return false, nil
		}
		outcome := activities.Abandoned
		r.State, r.Ended, r.Outcome = Undone, time.Now().UTC(), &outcome
		return true, nil
	})
}

// Forget leaves the fence of a released token, and nothing else.
func (r Records) Forget(ctx context.Context, token string) error {
	return r.Change(ctx, token, func(r *Record) (bool, error) {
		if r.Released.IsZero() {
			return false, fmt.Errorf("token %s is not released: it is still needed", token)
		}
		if r.Forgotten {
			return false, nil
		}
		*r = Record{State: r.State, Times: Times{Released: r.Released}, Forgotten: true}
		return true, nil
	})
}
