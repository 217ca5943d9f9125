package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/postgres/drift"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// Undo restores the checkpoint beside the database, and exchanges the two.
func (a *Action) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	token, err := a.token(e)
	if err != nil {
		return activities.Undone{}, err
	}
	c, err := a.openWhole(ctx, e, server.UndoName)
	if err != nil {
		return activities.Undone{}, err
	}
	defer c.Close()
	reachCheckpoint("undo-begun")
	outcome, isOver, err := token.BeginUndo()
	if isOver || err != nil {
		return outcome, err
	}
	reachCheckpoint("fenced")
	outcome, err = a.putDatabaseBack(c, e, token, d)
	if err != nil {
		var other activities.Undone
		if found, _ := token.Read(journal.Outcome, &other); found { // another attempt has ended what this one used
			return other, nil
		}
		if drifted, ok := errors.AsType[drift.Error](err); ok {
			return drifted.Undone(), nil
		}
		return activities.Undone{}, err
	}
	reachCheckpoint("restored")
	if _, err := token.Create(journal.Outcome, &outcome); err != nil {
		return activities.Undone{}, err
	}
	reachCheckpoint("outcome")
	return outcome, nil
}

// openWhole connects to the database of an entry.
func (a *Action) openWhole(ctx context.Context, e activities.Entry, purpose string) (*server.Connection, error) {
	p, err := activities.DecodeParams[params](e.Params)
	if err != nil {
		return nil, err
	}
	return a.Rows.Open(ctx, e, p.Database, purpose)
}

// putDatabaseBack returns the outcome of an undo that nobody has ended before. C is a connection to
// the database.
func (a *Action) putDatabaseBack(c *server.Connection, e activities.Entry, token *journal.Token,
	d activities.Decision) (activities.Undone, error) {
	var rec record
	recorded, err := token.Read(journal.Record, &rec)
	if err != nil {
		return activities.Undone{}, err
	}
	m, err := a.Databases.ConnectTo(c.Ctx, c.Name, server.UndoName+" "+e.Token, maintenance)
	if err != nil {
		return activities.Undone{}, err
	}
	defer m.Close()
	if err := m.EndForward(e.Token); err != nil {
		return activities.Undone{}, err
	}
	kept := keptPrefix + e.Token
	if there, err := findDatabase(m, kept); err != nil || there != 0 { // an earlier attempt has come that far
		return restoredFrom(kept), errors.Join(err, dropFresh(m, e.Token))
	}
	taken, found, err := readTaken(token)
	if err != nil {
		return activities.Undone{}, err
	}
	if !found || !recorded {
		if err := token.CheckNotLost(d.Done || found, takenDoc); err != nil {
			return activities.Undone{}, err
		}
		return activities.Undone{Outcome: activities.Nothing, Observed: "no checkpoint was taken, and none can be any more"},
			errors.Join(dropFresh(m, e.Token), removeDumps(token))
	}
	r, err := a.newRestoring(c, e, token, taken)
	if err != nil {
		return activities.Undone{}, err
	}
	r.m = m
	return r.run(d)
}

func restoredFrom(kept string) activities.Undone {
	return activities.Undone{Outcome: activities.Restored,
		Observed: "the database is as at the checkpoint; what it replaced is kept as the database " + kept +
			" until the record is released"}
}

// restoring is one attempt to put a checkpoint back, or to compare with it.
type restoring struct {
	*Action

	c, m   *server.Connection // to the database, and to that for maintenance
	t      *tools
	params params
	token  *journal.Token
	id     string // of the token
	kept   string
	taken  dumped
	file   string
	name   string // what the server calls the database
	oid    uint32
}

func (a *Action) newRestoring(c *server.Connection, e activities.Entry, token *journal.Token, taken dumped) (*restoring,
	error) {
	p, err := activities.DecodeParams[params](e.Params)
	if err != nil {
		return nil, err
	}
	r := &restoring{
		Action: a, c: c, params: p, token: token, id: e.Token, kept: keptPrefix + e.Token,
		taken: taken, file: filepath.Join(token.Dir(), taken.File),
	}
	if r.name, r.oid, err = whoAmI(c); err != nil {
		return nil, err
	}
	r.t, err = newTools(c, r.name, server.UndoName+" "+e.Token)
	return r, err
}

func (r *restoring) run(d activities.Decision) (activities.Undone, error) {
	was, err := r.readDump()
	if err != nil {
		return activities.Undone{}, err
	}
	now, err := r.look()
	if err != nil {
		return activities.Undone{}, err
	}
	if now.digest() == was.digest() {
		return activities.Undone{Outcome: activities.Restored,
			Observed: "the database is as at the checkpoint: nothing has changed since"}, nil
	}
	if !r.params.Exclusive && d.Force != now.digest() {
		return activities.Undone{}, driftSince(was, now)
	}
	reachCheckpoint("looked")
	name, err := makeFresh(r.m, server.UndoName, r.id, r.file, r.taken.Quoted)
	defer func() { _ = dropDatabase(r.m, name) }() // nothing, once it has another name
	if err != nil {
		return activities.Undone{},
			fmt.Errorf("database %s: the checkpoint cannot be put back, nothing was touched: %w", r.c.Name, err)
	}
	reachCheckpoint("made")
	if err := r.verify(name, was); err != nil {
		return activities.Undone{}, err
	}
	if err := r.exchange(name, was, now); err != nil {
		return activities.Undone{}, err
	}
	return restoredFrom(r.kept), dropFresh(r.m, r.id)
}

// readDump reads what the checkpoint contains, if its file is as it was written.
func (r *restoring) readDump() (manifest, error) {
	digest, err := durable.DigestFile(r.file, nil)
	if err != nil || digest != r.taken.Digest {
		why := "its content is not what the step has written"
		if err != nil {
			why = err.Error()
		}
		return nil, activities.Errorf(activities.DamagedRecord,
			"the checkpoint %s: %s; nothing was touched: put the file back, or decide what becomes of the step", r.file, why)
	}
	return r.t.manifestOf(r.file, r.taken.Quoted)
}

// look reads what the database contains now.
func (r *restoring) look() (manifest, error) {
	return readDatabase(r.c, r.name, server.UndoName+" "+r.id)
}

func driftSince(was, now manifest) drift.Error {
	return drift.Error{Drift: activities.Drift{
		Digest: now.digest(),
		Diff: "the database has changed since the checkpoint: nobody can tell whether the task or somebody else has " +
			"changed it\n" + was.diff(now),
	}}
}

// verify compares the restored database with the checkpoint.
func (r *restoring) verify(name string, was manifest) error {
	is, err := readDatabase(r.m, name, server.UndoName+" "+r.id)
	if err == nil && is.digest() != was.digest() {
		err = activities.Errorf(activities.ActionDenied,
			"database %s: put back beside it, the checkpoint would be another one; nothing was touched:\n%s", r.c.Name,
			was.diff(is))
	}
	return err
}

// exchange puts the restored database in place. From looking until then nobody can change a row.
func (r *restoring) exchange(name string, was, now manifest) error {
	if err := r.c.Run("BEGIN"); err != nil {
		return err
	}
	defer r.c.Rollback()
	if err := lockTables(r.c); err != nil {
		return err
	}
	reachCheckpoint("locked")
	// what has changed since another attempt ended is nobody's to take back
	if ended, err := r.token.Has(journal.Outcome); err != nil || ended {
		return errors.Join(err, errReplaced)
	}
	if !r.params.Exclusive {
		last, err := r.look()
		if err != nil {
			return err
		}
		if last.digest() != now.digest() {
			return driftSince(was, last)
		}
	}
	fresh, err := r.beside(name)
	if err != nil {
		return err
	}
	err = r.Rows.TakeOver(r.c, fresh)
	fresh.Close()
	if err != nil {
		return err
	}
	reachCheckpoint("taken-over")
	waker, err := r.beside(maintenance)
	if err != nil {
		return err
	}
	defer waker.Close()
	return replace(r.m, replacing{name: r.name, fresh: name, kept: r.kept, oid: r.oid, own: r.c}, waker)
}

// beside connects to another database of the server.
func (r *restoring) beside(database string) (*server.Connection, error) {
	return r.Databases.ConnectTo(r.c.Ctx, r.c.Name, server.UndoName+" "+r.id, database)
}
