package file

import (
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// action is a verb with the contract of package activities.
type action struct {
	*world
	verb
	described activities.Spec
}

func newAction(w *world, v verb) *action { return &action{w, v, v.spec()} }

func (a *action) Spec() activities.Spec { return a.described }

// reach marks the point after a side effect.
func (a *action) reach(what string) { point.Reach(a.described.Name + ":" + what) }

// Observe compares the targets with what the step left and with what was there before.
func (a *action) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	h, rec, err := a.findRecord(e)
	if err != nil {
		return activities.Observation{}, err
	}
	if rec == nil {
		return activities.Observation{State: activities.Unseen, Detail: "the journal has no record of a change"}, nil
	}
	var found []difference
	before, after := true, true
	for _, o := range rec.Ops {
		now, err := h.atTarget(ctx, o.Target)
		if err != nil {
			return activities.Observation{}, err
		}
		before, after = before && now.equals(o.Pre), after && now.equals(o.Post)
		if !now.equals(o.Post) {
			found = append(found, difference{o, now})
		}
	}
	switch {
	case after:
		return activities.Observation{State: activities.AsLeft}, nil
	case before:
		return activities.Observation{State: activities.AsBefore}, nil
	}
	return activities.Observation{State: activities.Elsewise, Detail: h.describeDifferences(found), Drift: h.drift(found)},
		nil
}

// findRecord finds the entry's record in one of the roots; nil if there is none.
func (a *action) findRecord(e activities.Entry) (rootToken, *record, error) {
	all, err := a.openTokens(e)
	if err != nil {
		return rootToken{}, nil, err
	}
	for _, h := range all {
		var rec record
		if found, err := h.token.Read(journal.Record, &rec); found || err != nil {
			return h, &rec, err
		}
	}
	return rootToken{}, nil, nil
}

// checkOpen is Fenced if the entry's token is undone or released.
func (a *action) checkOpen(e activities.Entry) error {
	all, err := a.openTokens(e)
	for _, h := range all {
		err = errors.Join(err, h.token.CheckOpen())
	}
	return err
}

// Release drops the originals, or what a rollback has kept for a redo. The tombstones stay.
func (a *action) Release(_ context.Context, e activities.Entry) error {
	all, err := a.openTokens(e)
	if err != nil {
		return err
	}
	if err := undoEnded(all); err != nil {
		return err
	}
	for _, h := range all {
		if err := a.releaseIn(h); err != nil {
			return err
		}
	}
	return nil
}

// undoEnded refuses a token whose undo has begun in any root and not ended in all of them.
func undoEnded(all []rootToken) error {
	begun, over := false, true
	for _, h := range all {
		fate, err := h.token.Fate()
		if err != nil {
			return err
		}
		_, ended, err := h.token.Undone()
		if err != nil {
			return err
		}
		begun, over = begun || fate == journal.Undoing, over && ended
	}
	if begun && !over {
		return activities.Errorf(activities.Refused,
			"the undo of token %s has begun and needs the originals: release it when it has ended", all[0].id)
	}
	return nil
}

func (a *action) releaseIn(h rootToken) error {
	fate, err := h.token.DecideReleasing()
	if err != nil {
		return err
	}
	path := undoPath(h.id) // of an abandoned undo, everything still exists
	if fate == journal.Releasing {
		a.reach("released")
		path = stagePath(h.id)
	}
	if err := h.leaveTombstone(path, ""); err != nil {
		return err
	}
	// The record first: without it, there is no redo of a half-removed rollback.
	for _, name := range []string{journal.Record, journal.Applied, leftDoc, planDoc} {
		if err := h.token.Drop(name); err != nil {
			return err
		}
	}
	a.reach("release-dropped")
	if err := h.throwAway(redoPath(h.id)); err != nil {
		return err
	}
	return h.token.MarkReleased()
}
