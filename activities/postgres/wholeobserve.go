package postgres

import (
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Observe compares what the database contains with the checkpoint.
func (a *checkpointAction) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	token, err := a.token(e)
	if err != nil {
		return activities.Observation{}, err
	}
	c, err := a.openWhole(ctx, e, lookName)
	if err != nil {
		return activities.Observation{}, err
	}
	defer c.close()
	taken, found, err := readTaken(token)
	if err != nil {
		return activities.Observation{}, err
	}
	fate, err := token.Fate()
	switch {
	case err != nil:
		return activities.Observation{}, err
	case !found && fate == journal.Undecided:
		return activities.Observation{State: activities.AsBefore, Detail: "no checkpoint was taken"}, nil
	case !found:
		return activities.Observation{State: activities.Unseen, Detail: "what the checkpoint contained is no longer known"}, nil
	}
	r, err := a.newRestoring(c, e, token, taken)
	if err != nil {
		return activities.Observation{}, err
	}
	now, err := r.look()
	if err != nil {
		return activities.Observation{}, err
	}
	if now.digest() == taken.Content {
		state := activities.AsLeft
		if fate == journal.Undoing {
			state = activities.AsBefore
		}
		return activities.Observation{State: state, Detail: "the database is as at the checkpoint"}, nil
	}
	if r.params.Exclusive && fate == journal.Undecided {
		return activities.Observation{State: activities.AsLeft, Detail: "the database has changed since the checkpoint, which an undo takes back: only the task writes to it"}, nil
	}
	was, err := r.readDump()
	if err != nil {
		return activities.Observation{}, err
	}
	drift := driftSince(was, now)
	return activities.Observation{State: activities.Elsewise, Detail: drift.undone().Observed, Drift: &drift.drift}, nil
}

// Release removes the dump, and the database that was replaced.
func (a *checkpointAction) Release(ctx context.Context, e activities.Entry) error {
	token, err := a.token(e)
	if err != nil {
		return err
	}
	c, err := a.openWhole(ctx, e, lookName)
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := token.DecideReleasing(); err != nil {
		return err
	}
	m, err := a.connectTo(ctx, c.name, lookName+" "+e.Token, maintenance)
	if err != nil {
		return err
	}
	defer m.close()
	if err := errors.Join(m.endForward(e.Token), m.dropFresh(e.Token), m.dropDatabase(keptPrefix+e.Token), removeDumps(token)); err != nil {
		return err
	}
	for _, name := range []string{journal.Record, journal.Applied, takenDoc} {
		if err := token.Drop(name); err != nil {
			return err
		}
	}
	return token.MarkReleased()
}

// Preflight finds a server that cannot be used, programs that are missing or too old, and rights that an undo would lack.
func (a *checkpointAction) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := activities.DecodeParams[checkpointParams](o.With)
	problems := []error{err, activities.CheckPrograms(ctx, o.Checks)}
	if err != nil || o.Awaits("database") {
		return errors.Join(problems...)
	}
	return errors.Join(append(problems, a.preflight(ctx, p.Database, func(c *connection) error {
		_, err := a.checkPossible(c)
		return err
	}))...)
}
