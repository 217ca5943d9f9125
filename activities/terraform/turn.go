package terraform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// turn is one undo of a token at work. Undos take turns; the document of a turn fences all earlier ones: no terraform of
// theirs starts any more. So a turn need not wait for one that is stopped and holds the lock for ever.
type turn struct {
	n    int
	lock *os.File
}

func (t *turn) end() {
	if t.lock != nil {
		t.lock.Close()
	}
}

// takeTurn waits until no other undo of the token is at work, or the one that is cannot go on. settled is set where one
// has come to an outcome meanwhile.
func takeTurn(ctx context.Context, t *journal.Token) (mine *turn, settled bool, err error) {
	f, err := os.OpenFile(filepath.Join(t.Dir(), "undo.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var v json.RawMessage
		if found, err := t.Read(journal.Outcome, &v); err != nil || found {
			f.Close()
			return nil, found, err
		}
		n, holder, err := lastTurn(t)
		if err != nil {
			f.Close()
			return nil, false, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, false, err
		}
		if err == nil || n > 0 && holder.stopped() {
			self, err := processOf(os.Getpid())
			if err != nil {
				f.Close()
				return nil, false, err
			}
			first, err := t.Create(turnDoc(n+1), &self)
			if err != nil {
				f.Close()
				return nil, false, err
			}
			if first {
				return &turn{n + 1, f}, false, nil
			}
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, false, fmt.Errorf("another undo of this step is at work: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// lastTurn is the number of the latest turn, zero for none, and whose it is.
func lastTurn(t *journal.Token) (n int, holder process, err error) {
	for {
		var p process
		found, err := t.Read(turnDoc(n+1), &p)
		if err != nil || !found {
			return n, holder, err
		}
		n, holder = n+1, p
	}
}

// overtaken turns the refusal of a run into what the engine does best: try again, and find the outcome of the other.
func overtaken(err error) error {
	if activities.TypeOf(err) != activities.Fenced {
		return err
	}
	return &activities.Error{Type: activities.ActionFailed, NextRetry: time.Second, Message: "another undo of this step has taken over"}
}
