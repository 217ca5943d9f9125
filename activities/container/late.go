package container

import (
	"context"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// lookAfter is longer than an engine takes to come to a request.
const lookAfter = 5 * time.Minute

// dropped is the document that says when a checkpoint was dropped that may still come.
type dropped struct {
	At time.Time `json:"at"`
}

const droppedDoc = "dropped"

// mayComeLate makes the outcome of an undo one that a late sweep looks at again, where a forward has died that may have
// asked for a checkpoint: an engine that is slow, or stopped, takes it yet when the one who has asked is long dead.
func (x *execAction) mayComeLate(t *journal.Token, undone activities.Undone) (activities.Undone, error) {
	rec, found, err := readRecord(t)
	if err != nil || !found || rec.ReadOnly || rec.Chosen.Layers || rec.Redo != nil {
		return undone, nil //nolint:nilerr // a damaged record is told of elsewhere
	}
	var at checkpointAt
	if taken, err := t.Read(checkpointDoc, &at); taken || err != nil {
		return undone, err
	}
	now := dropped{At: time.Now()}
	if _, err := t.Create(droppedDoc, &now); err != nil {
		return undone, err
	}
	undone.LookAgain = x.lookAfter
	return undone, nil
}

// lookAgain drops what has come late, and is the last look when its time has come.
func (x *execAction) lookAgain(ctx context.Context, e activities.Entry, t *journal.Token, undone activities.Undone) (activities.Undone, error) {
	if err := x.backend.drop(ctx, e.Token, ""); err != nil {
		return activities.Undone{}, err
	}
	var before dropped
	if _, err := t.Read(droppedDoc, &before); err != nil {
		return activities.Undone{}, err
	}
	if !time.Now().Before(before.At.Add(undone.LookAgain)) {
		undone.LookAgain = 0
	}
	return undone, nil
}
