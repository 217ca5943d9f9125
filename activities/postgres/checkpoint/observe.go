package checkpoint

import (
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Observe compares what the database contains with the checkpoint.
func (a *take) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	token, err := a.token(e)
	if err != nil {
		return activities.Observation{}, err
	}
	c, err := a.openWhole(ctx, e, server.LookName)
	if err != nil {
		return activities.Observation{}, err
	}
	defer c.Close()
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
		return activities.Observation{State: activities.Unseen, Detail: "what the checkpoint contained is no longer known"},
			nil
	}
	r, err := a.newPuttingBack(c, e, token, taken)
	if err != nil {
		return activities.Observation{}, err
	}
	content, err := taken.content(token)
	if err == nil && content == "" {
		var was manifest
		was, err = r.image.read()
		content = was.digest()
	}
	if err != nil {
		return activities.Observation{}, err
	}
	now, err := r.look()
	if err != nil {
		return activities.Observation{}, err
	}
	if now.digest() == content {
		state := activities.AsLeft
		if fate == journal.Undoing {
			state = activities.AsBefore
		}
		return activities.Observation{State: state, Detail: "the database is as at the checkpoint"}, nil
	}
	if r.params.Exclusive && fate == journal.Undecided {
		return activities.Observation{State: activities.AsLeft,
			Detail: "the database has changed since the checkpoint, which an undo takes back: only the task writes to it"}, nil
	}
	was, err := r.image.read()
	if err != nil {
		return activities.Observation{}, err
	}
	strayed := driftSince(was, now)
	return activities.Observation{State: activities.Elsewise, Detail: strayed.Undone().Observed, Drift: &strayed.Drift},
		nil
}

// Release removes the dump, and the database that was replaced.
func (a *take) Release(ctx context.Context, e activities.Entry) error {
	token, err := a.token(e)
	if err != nil {
		return err
	}
	c, err := a.openWhole(ctx, e, server.LookName)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := token.DecideReleasing(); err != nil {
		return err
	}
	m, err := a.connectMaintenance(ctx, c.Name, server.LookName+" "+e.Token)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := errors.Join(m.EndForwardForGood(e.Token), dropMade(m, e.Token), dropDatabase(m, keptPrefix+e.Token),
		removeDumps(token)); err != nil {
		return err
	}
	return release(token)
}

// Preflight finds a server that cannot be used, programs that are missing or too old, and rights
// that an undo would lack.
func (a *take) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := decode(o.With)
	problems := []error{err, activities.CheckPrograms(ctx, o.Checks)}
	if err != nil || o.Awaits("database") {
		return errors.Join(problems...)
	}
	return errors.Join(append(problems, a.preflight(ctx, p.Database))...)
}

// preflight refuses a database that could not be put back.
func (s *Checkpoints) preflight(ctx context.Context, database string) error {
	return s.Databases.With(ctx, database, server.PreflightName, func(c *server.Connection) error {
		_, err := s.checkPossible(c)
		return err
	})
}

// Touches names the database in the same way: an undo replaces it.
func (a *take) Touches(ctx context.Context, o activities.Outlook) ([]activities.Touch, error) {
	p, err := activities.DecodeParams[params](o.With)
	if err != nil || o.Awaits("database") {
		return nil, err
	}
	return a.Databases.Touch(ctx, p.Database)
}
