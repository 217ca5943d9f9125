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

// reach labels the instant after a side effect.
func (a *action) reach(what string) { point.Reach(a.described.Name + ":" + what) }

// Observe compares the targets with what the step left and with what was there before.
func (a *action) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	h, rec, err := a.recorded(e)
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
		before, after = before && now.is(o.Pre), after && now.is(o.Post)
		if !now.is(o.Post) {
			found = append(found, difference{o, now})
		}
	}
	switch {
	case after:
		return activities.Observation{State: activities.AsLeft}, nil
	case before:
		return activities.Observation{State: activities.AsBefore}, nil
	}
	return activities.Observation{State: activities.Elsewise, Detail: h.say(found), Drift: h.drift(found)}, nil
}

// recorded finds the entry's record in one of the roots; nil: there is none.
func (a *action) recorded(e activities.Entry) (held, *record, error) {
	all, err := a.tokens(e)
	if err != nil {
		return held{}, nil, err
	}
	for _, h := range all {
		var rec record
		if found, err := h.token.Read(journal.Record, &rec); found || err != nil {
			return h, &rec, err
		}
	}
	return held{}, nil, nil
}

// open is Fenced where the entry's token is undone or released.
func (a *action) open(e activities.Entry) error {
	all, err := a.tokens(e)
	for _, h := range all {
		err = errors.Join(err, h.token.CheckOpen())
	}
	return err
}

// Release drops the originals, or what a rollback has kept for a redo. The tombstones stay.
func (a *action) Release(_ context.Context, e activities.Entry) error {
	all, err := a.tokens(e)
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

// undoEnded refuses a token whose undo has begun, in any of the roots, and has not ended in all of them.
func undoEnded(all []held) error {
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
		return activities.Errorf(activities.Refused, "the undo of token %s has begun and needs the originals: release it when it has ended", all[0].id)
	}
	return nil
}

func (a *action) releaseIn(h held) error {
	fate, err := h.token.Releasing()
	if err != nil {
		return err
	}
	path := undoPath(h.id) // of an undo that was given up, all is there still
	if fate == journal.Releasing {
		a.reach("released")
		path = stagePath(h.id)
	}
	if err := h.bury(path, ""); err != nil {
		return err
	}
	// The record first: without it, there is no redo of what is only half there.
	for _, name := range []string{journal.Record, journal.Applied, leftDoc, planDoc} {
		if err := h.token.Drop(name); err != nil {
			return err
		}
	}
	a.reach("release-dropped")
	if err := h.throwAway(redoPath(h.id)); err != nil {
		return err
	}
	return h.token.Released()
}
