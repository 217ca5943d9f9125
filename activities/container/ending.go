package container

import (
	"context"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// conclusion is the document that says whether an undo or a reset ends the token. An undo writes it
// when it has succeeded, a reset before it touches anything: so the one that is kept is what the
// container has come to.
type conclusion struct {
	Turn string `json:"turn"`
	// Undone is how the undo ended.
	Undone activities.Undone `json:"undone,omitzero"`
	// Container, Image, Occupant and Stopped are what the reset makes anew, and how; see
	// [checkpoint.Rollback].
	Container container.InspectResponse `json:"container,omitzero"`
	Image     string                    `json:"image,omitempty"`
	Occupant  string                    `json:"occupant,omitempty"`
	Stopped   bool                      `json:"stopped,omitempty"`
}

// nothingDone is the outcome where the undo holds the ticket. For that the record need not be
// readable.
func nothingDone(t *journal.Token) activities.Undone {
	if rec, found, err := readRecord(t); err == nil && found && rec.ReadOnly {
		return activities.Undone{Outcome: activities.Nothing, Observed: "the command only reads"}
	}
	return activities.Undone{Outcome: activities.Nothing, Observed: "the command has not run, and no longer can"}
}

// undoing is a token that is to be undone.
type undoing struct {
	*journal.Token

	// first says that no other call can have rolled anything back before this one.
	first bool
	// left is what the step had left when this call looked first, with what its processes had written
	// until they were ended.
	left manifest.Manifest
}

// beginUndo decides the token's fate. It is over where the token has its outcome, or where all that
// is missing is to write it down.
func (x *execAction) beginUndo(ctx context.Context, e activities.Entry) (u undoing, undone activities.Undone, over bool,
	err error) {
	t, err := x.store.Open(ctx, e)
	if err != nil {
		return u, undone, false, err
	}
	u.Token = t
	if over, err = t.Read(journal.Outcome, &undone); over || err != nil {
		if undone.LookAgain > 0 {
			undone, err = x.dropLate(ctx, e, t, undone)
		}
		return u, undone, over, err
	}
	if u.first, err = t.DecideUndoing(); err != nil {
		return u, undone, false, err
	}
	var by conclusion
	if over, err = t.Read(endingDoc, &by); over && err == nil {
		undone, err = x.conclude(ctx, e, t, by)
	}
	return u, undone, over, err
}

// mayRun says whether the command may run or have run. Where it says no, none ever will. A ticket
// that is gone though the step has acted is not written anew.
func mayRun(t *journal.Token, isDone bool) (bool, error) {
	held, err := t.Has(ticketDoc)
	if err == nil && !held {
		err = checkTicketNotLost(t, isDone)
	}
	if err != nil {
		return false, err
	}
	holder := ticket{Holder: undoHolds}
	_, err = t.Create(ticketDoc, &holder)
	return holder.Holder != undoHolds, err
}

// checkTicketNotLost is DamagedRecord where the ticket is gone of a command that may have run. One
// that only reads has none.
func checkTicketNotLost(t *journal.Token, isDone bool) error {
	rec, found, err := readRecord(t)
	if err != nil && !target.IsDamaged(err) {
		return err
	}
	if found && err == nil && rec.ReadOnly {
		return nil
	}
	return t.CheckNotLost(isDone, attemptDoc(2))
}

// endUndo ends the token with the outcome of an undo, unless a reset was quicker.
func (x *execAction) endUndo(ctx context.Context, e activities.Entry, t *journal.Token,
	undone activities.Undone) (activities.Undone, error) {
	by := conclusion{Turn: checkpoint.UndoTurn, Undone: undone}
	if _, err := t.Create(endingDoc, &by); err != nil {
		return activities.Undone{}, err
	}
	return x.conclude(ctx, e, t, by)
}

// conclude brings the token to its end and keeps the outcome.
func (x *execAction) conclude(ctx context.Context, e activities.Entry, t *journal.Token,
	by conclusion) (undone activities.Undone, err error) {
	undone = by.Undone
	if by.Turn == checkpoint.ResetTurn {
		if undone, err = x.makeAnew(ctx, e, by); err != nil {
			return activities.Undone{}, err
		}
	}
	rec, found, err := readRecord(t)
	if err != nil { // what can be dropped without it is
		rec = stepRecord{}
	} else if !found { // copies of a forward that died before it made its record
		if err := x.copies(t, rec).Drop(); err != nil {
			return activities.Undone{}, err
		}
	}
	if err := x.backends.Of(rec.Backend).Drop(ctx, e.Token, rec.containerID()); err != nil {
		return activities.Undone{}, err
	}
	point.Reach("container.exec:checkpoint-dropped")
	if undone, err = x.mayComeLate(t, undone); err != nil {
		return activities.Undone{}, err
	}
	_, err = t.Create(journal.Outcome, &undone)
	return undone, err
}
