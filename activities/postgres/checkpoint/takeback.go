package checkpoint

import (
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/postgres/drift"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// traces are what a forward of postgres.restore has left, and its undo.
type traces struct {
	id           string // of the token
	rec          restoreRecord
	recorded     bool
	done         restored
	applied      bool
	kept, undone uint32 // the numbers of the databases; 0 where they are not there
	fate         journal.Fate
}

// isLost reports whether there must have been more than there is.
func (t traces) isLost() bool {
	if !t.recorded {
		return t.kept != 0 || t.fate == journal.Releasing
	}
	return t.applied && !t.rec.Unchanged && t.kept == 0 && t.undone == 0
}

func readTraces(m *server.Connection, token *journal.Token, id string) (t traces, err error) {
	t.id = id
	t.recorded, err = token.Read(journal.Record, &t.rec)
	if err == nil {
		t.applied, err = token.Read(journal.Applied, &t.done)
	}
	if err == nil {
		t.kept, err = findDatabase(m, keptPrefix+id)
	}
	if err == nil {
		t.undone, err = findDatabase(m, undonePrefix+id)
	}
	if err == nil {
		t.fate, err = token.Fate()
	}
	return t, err
}

// Undo gives the database that was replaced its name back.
func (a *restore) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	if u, is := activities.NeverBegan(e, d); is {
		return u, nil
	}
	return a.undo(ctx, e, reachRestore, func(c *server.Connection, token *journal.Token) (activities.Undone, error) {
		return a.takeBack(c, e, token, d)
	})
}

func (a *restore) takeBack(c *server.Connection, e activities.Entry, token *journal.Token,
	d activities.Decision) (activities.Undone, error) {
	m, err := a.connectMaintenance(c.Ctx, c.Name, server.UndoName+" "+e.Token)
	if err != nil {
		return activities.Undone{}, err
	}
	defer m.Close()
	if err := m.EndForwardForGood(e.Token); err != nil {
		return activities.Undone{}, err
	}
	t, err := readTraces(m, token, e.Token)
	if err != nil {
		return activities.Undone{}, err
	}
	switch {
	case t.undone != 0: // an earlier attempt has come that far
		return t.takenBack(), dropFresh(m, e.Token)
	case !t.recorded:
		if err := token.CheckNotLost(d.Done || t.kept != 0); err != nil {
			return activities.Undone{}, err
		}
		return activities.Undone{Outcome: activities.Nothing, Observed: "nothing was restored, and nothing can be any more"},
			dropFresh(m, e.Token)
	case t.rec.Unchanged:
		return activities.Undone{Outcome: activities.Restored,
			Observed: "the database was as the checkpoint has it: the step has changed nothing"}, nil
	case t.kept == 0:
		return t.notKept(m, d)
	}
	if err := t.exchangeBack(a, c, m, token, d); err != nil {
		return activities.Undone{}, err
	}
	return t.takenBack(), dropFresh(m, e.Token)
}

func (t traces) takenBack() activities.Undone {
	return activities.Undone{Outcome: activities.Restored,
		Observed: "the database is the one that was there before the step; what the step had put in its place is kept as " +
			"the database " + undonePrefix + t.id + " until the record is released"}
}

// notKept is the outcome where no database is kept: the forward has not come that far, unless
// somebody has dropped it.
func (t traces) notKept(m *server.Connection, d activities.Decision) (activities.Undone, error) {
	var there bool
	if err := m.Scan("SELECT EXISTS (SELECT FROM pg_database WHERE oid = $1)", []any{t.rec.OID}, &there); err != nil {
		return activities.Undone{}, err
	}
	if !there || t.applied || d.Done {
		return activities.Undone{}, activities.Errorf(activities.DamagedRecord,
			"database %s: what was there before the step is gone: the server has no database %s; nothing was touched", m.Name,
			keptPrefix+t.id)
	}
	return activities.Undone{Outcome: activities.Nothing,
			Observed: "the database was not replaced, and cannot be any more"},
		dropFresh(m, t.id)
}

// exchangeBack exchanges the databases, unless somebody has changed one of them since.
func (t traces) exchangeBack(a *restore, c, m *server.Connection, token *journal.Token, d activities.Decision) error {
	name, oid, err := whoAmI(c)
	if err != nil {
		return err
	}
	application := server.UndoName + " " + t.id
	if err := (exchange{
		Checkpoints: a.Checkpoints, own: c, m: m, application: application,
		name: name, oid: oid, fresh: keptPrefix + t.id, aside: undonePrefix + t.id, pass: reachRestore,
		check: func() error {
			if ended, err := token.Has(journal.Outcome); err != nil || ended {
				return errors.Join(err, errReplaced)
			}
			err := t.check(c, m, name, application)
			if strayed, ok := errors.AsType[drift.Error](err); ok && strayed.Drift.Digest == d.Force {
				return nil
			}
			return err
		},
	}).run(); err != nil {
		return err
	}
	now, err := findDatabase(m, name)
	if err == nil && now != t.kept {
		err = errReplaced
	}
	return err
}

// check is drift where somebody has changed the restored database, or the one that is kept.
func (t traces) check(c, m *server.Connection, name, application string) error {
	now, err := readDatabase(c, name, application)
	if err != nil {
		return err
	}
	was, wanted := t.done.Before.content(), t.rec.Wanted.content()
	kept := was
	if t.applied && t.kept != 0 {
		if kept, err = readDatabase(m, keptPrefix+t.id, application); err != nil {
			return err
		}
	}
	var diff string
	if now.digest() != wanted.digest() {
		diff = "the database has changed since it was restored\n" + wanted.diff(now.content()) + "\n"
	}
	if kept.digest() != was.digest() {
		diff += "the database " + keptPrefix + t.id + ", which has what was there before, has changed\n" +
			was.diff(kept.content()) + "\n"
	}
	if diff == "" {
		return nil
	}
	return drift.New(diff, []byte(now.digest()), []byte(kept.digest()))
}
