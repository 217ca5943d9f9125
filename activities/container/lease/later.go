package lease

import (
	"errors"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// A step of another task that came later to the same container has to be undone first: until then
// its work is on top of what this step has left, and looks like drift. If that task fails too, both
// would be parked, each because of the other's steps.

// link is what the chain needs of a record.
type link struct {
	journal.Owned

	After string `json:"after"`
}

// read reads the record of a step. One that cannot be read ends the chain.
func (l *Leases) read(token string) (record link, found bool, err error) {
	if token == "" {
		return record, false, nil
	}
	t, err := l.steps.Token(token)
	if err != nil {
		return record, false, err
	}
	found, err = t.Read(journal.Record, &record)
	return record, found, err
}

// Names of documents in the folder of a step's token.
const (
	staysName = "stays" // the step stays done, as far as its task can tell
	laterName = "later" // since when its undo waits for those of later steps
)

type since struct {
	At time.Time `json:"at"`
}

// Stays notes that a step stays done: its task has committed, or a person has decided so. No undo
// waits for it any more.
func (l *Leases) Stays(t *journal.Token) error {
	if undone, err := t.Has(journal.Outcome); err != nil || undone {
		return err
	}
	_, err := t.Create(staysName, &since{time.Now().UTC()})
	return err
}

// CheckLater is an error that is tried again while a later step of another task in the container
// may still be undone. An undo that has found drift calls it before it tells a person. It is nil
// once that has taken longer than LaterPatience.
func (l *Leases) CheckLater(name string, t *journal.Token, mine journal.Owned) error {
	later, found, err := l.findLater(name, mine)
	if err != nil || !found {
		return err
	}
	began := since{time.Now().UTC()}
	if _, err := t.Create(laterName, &began); err != nil {
		return err
	}
	if time.Since(began.At) > l.LaterPatience {
		return nil
	}
	wait := activities.Errorf(activities.ActionFailed,
		"container %s: step %s of task %s came later and may still be undone: that is waited for; where that task has "+
			"ended, `starter recover` undoes it",
		name, later.Entry.Step, later.Owner.Workflow)
	wait.NextRetry = 5 * time.Second
	return wait
}

// findLater finds the newest step in a container that another task has done later than mine, and
// that may still be undone.
func (l *Leases) findLater(name string, mine journal.Owned) (later link, found bool, err error) {
	t, err := l.tokenFor(name)
	if err != nil {
		return later, false, err
	}
	_, last, err := readLast(t)
	if err != nil {
		return later, false, err
	}
	record, isLink, err := l.read(last.Token)
	if err == nil && !isLink {
		record, isLink, err = l.read(last.After)
	}
	for isLink && err == nil && record.Entry.Token != mine.Entry.Token {
		if record.Owner.Workflow != mine.Owner.Workflow {
			if open, err := l.mayBeUndone(record.Entry.Token); open || err != nil {
				return record, open, err
			}
		}
		record, isLink, err = l.read(record.After)
	}
	if activities.TypeOf(err) == activities.DamagedRecord {
		err = nil
	}
	return later, false, err
}

// mayBeUndone says that the undo of a step is to be expected: it has begun, somebody holds the
// record for it, or the task goes on.
func (l *Leases) mayBeUndone(token string) (bool, error) {
	t, err := l.steps.Token(token)
	if err != nil {
		return false, err
	}
	undone, err := t.Has(journal.Outcome)
	if undone || err != nil {
		return false, err
	}
	fate, err := t.Fate()
	if err != nil || fate != journal.Undecided {
		return fate == journal.Undoing, err
	}
	held, err := t.IsHeld()
	if held || err != nil {
		return held, err
	}
	stays, err := t.Has(staysName)
	_, committed, cerr := t.Committed()
	return !stays && !committed, errors.Join(err, cerr)
}

// IsEarlierUndoing reports whether the undo of an earlier step of another task in the container is
// under way: it goes on from what the undo of this step has restored, at once.
func (l *Leases) IsEarlierUndoing(mine journal.Owned) (bool, error) {
	record, found, err := l.read(mine.Entry.Token)
	for found && err == nil {
		if record, found, err = l.read(record.After); err != nil || !found || record.Owner.Workflow == mine.Owner.Workflow {
			continue
		}
		var t *journal.Token
		if t, err = l.steps.Token(record.Entry.Token); err != nil {
			break
		}
		fate, ferr := t.Fate()
		undone, oerr := t.Has(journal.Outcome)
		if err = errors.Join(ferr, oerr); err == nil && fate == journal.Undoing && !undone {
			return true, nil
		}
	}
	if activities.TypeOf(err) == activities.DamagedRecord {
		err = nil
	}
	return false, err
}
