package container

import (
	"context"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// lateAfter is longer than an engine takes to come to a request.
const lateAfter = 5 * time.Minute

// dropNote is the document that says when a checkpoint was dropped that may still come.
type dropNote struct {
	At time.Time `json:"at"`
}

const droppedDoc = "dropped"

// mayComeLate makes the outcome of an undo one that a late sweep looks at again, where a forward
// has died that may have asked for a checkpoint: an engine that is slow, or stopped, takes it yet
// when the one who has asked is long dead.
func (x *execAction) mayComeLate(t *journal.Token, undone activities.Undone) (activities.Undone, error) {
	rec, found, err := readRecord(t)
	if err != nil || !found || rec.ReadOnly || !x.backends.Of(rec.Backend).Traits().Late || rec.Redo != nil {
		return undone, nil //nolint:nilerr // a damaged record is reported elsewhere
	}
	var taken ticket
	_, err = t.Read(ticketDoc, &taken)
	// a forward with the ticket has waited for its checkpoint
	if taken.Holder == forwardHolds || err != nil && !target.IsDamaged(err) {
		return undone, err
	}
	now := dropNote{At: time.Now()}
	if _, err := t.Create(droppedDoc, &now); err != nil {
		return undone, err
	}
	undone.LookAgain = x.lateAfter
	return undone, nil
}

// dropLate drops what has come late, and is the last look when its time has come.
func (x *execAction) dropLate(ctx context.Context, e activities.Entry, t *journal.Token,
	undone activities.Undone) (activities.Undone, error) {
	if err := x.backends.Drop(ctx, e.Token); err != nil {
		return activities.Undone{}, err
	}
	var before dropNote
	if _, err := t.Read(droppedDoc, &before); err != nil {
		return activities.Undone{}, err
	}
	if !time.Now().Before(before.At.Add(undone.LookAgain)) {
		undone.LookAgain = 0
	}
	return undone, nil
}
