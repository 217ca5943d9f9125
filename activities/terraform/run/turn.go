package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/internal/filelock"
	"github.com/seed-62bf7108/unwind/internal/process"
)

// Turn is one undo of a token in progress. Undos take turns; the document of a turn fences all
// earlier ones, so that they start no more terraform. So a turn need not wait for a stopped one
// that holds the lock for ever.
type Turn struct {
	N    int
	lock *filelock.Lock // nil if the holder of the turn before is stopped
}

// Release lets the next undo begin.
func (t *Turn) Release() {
	if t.lock != nil {
		t.lock.Release()
	}
}

// TakeTurn waits until no other undo of the token is in progress, or the one that is cannot
// continue. settled is set if one has reached an outcome meanwhile.
func TakeTurn(ctx context.Context, t *journal.Token) (mine *Turn, settled bool, err error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var v json.RawMessage
		if found, err := t.Read(journal.Outcome, &v); err != nil || found {
			return nil, found, err
		}
		mine, err := tryTurn(t)
		if mine != nil || err != nil {
			return mine, false, err
		}
		select {
		case <-ctx.Done():
			return nil, false, fmt.Errorf("another undo of this step is in progress: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// tryTurn takes the next turn if nobody holds the lock of the last one, or its holder is stopped.
func tryTurn(t *journal.Token) (*Turn, error) {
	n, holder, err := lastTurn(t)
	if err != nil {
		return nil, err
	}
	lock, err := filelock.Try(filepath.Join(t.Dir(), "undo.lock"))
	if errors.Is(err, filelock.ErrHeld) && n > 0 && !holder.CanContinue() {
		err = nil // fenced by the document of the new turn
	} else if errors.Is(err, filelock.ErrHeld) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	mine := &Turn{n + 1, lock}
	self, err := process.Identify(os.Getpid())
	if err != nil {
		mine.Release()
		return nil, err
	}
	first, err := t.Create(turnDoc(mine.N), &self)
	if err != nil || !first {
		mine.Release()
		return nil, err
	}
	return mine, nil
}

// lastTurn is the number and holder of the latest turn; zero for none.
func lastTurn(t *journal.Token) (n int, holder process.Identity, err error) {
	for {
		var p process.Identity
		found, err := t.Read(turnDoc(n+1), &p)
		if err != nil || !found {
			return n, holder, err
		}
		n, holder = n+1, p
	}
}

// AsOvertaken turns the refusal of a run into a retryable error, so that the retry finds the
// outcome of the other undo.
func AsOvertaken(err error) error {
	if activities.TypeOf(err) != activities.Fenced {
		return err
	}
	return &activities.Error{Type: activities.ActionFailed, NextRetry: time.Second,
		Message: "another undo of this step has taken over"}
}

// IsSettled reports whether an undo of the token has reached its outcome.
func IsSettled(t *journal.Token) bool {
	var v activities.Undone
	found, err := t.Read(journal.Outcome, &v)
	return found && err == nil
}
