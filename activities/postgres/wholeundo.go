package postgres

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// Undo restores the checkpoint beside the database, and exchanges the two.
func (a *checkpointAction) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	token, err := a.token(e)
	if err != nil {
		return activities.Undone{}, err
	}
	c, err := a.openWhole(ctx, e, undoName)
	if err != nil {
		return activities.Undone{}, err
	}
	defer c.close()
	var outcome activities.Undone
	if found, err := token.Read(journal.Outcome, &outcome); err != nil || found {
		return outcome, err
	}
	reachCheckpoint("undo-begun")
	fate, err := token.Decide(journal.Undoing)
	switch {
	case err != nil:
		return activities.Undone{}, err
	case fate == journal.Releasing:
		return activities.Undone{}, activities.Errorf(activities.Fenced, "token %s was released: its rollback window has closed", e.Token)
	}
	reachCheckpoint("fenced")
	outcome, err = a.putDatabaseBack(c, e, token, d)
	if err != nil {
		var other activities.Undone
		if found, _ := token.Read(journal.Outcome, &other); found { // another attempt has ended what this one used
			return other, nil
		}
		if drifted, ok := errors.AsType[driftError](err); ok {
			return drifted.undone(), nil
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
func (a *checkpointAction) openWhole(ctx context.Context, e activities.Entry, purpose string) (*connection, error) {
	p, err := activities.DecodeParams[checkpointParams](e.Params)
	if err != nil {
		return nil, err
	}
	return a.open(ctx, e, p.Database, purpose)
}

// putDatabaseBack returns the outcome of an undo that nobody has ended before. C is a connection to the database.
func (a *checkpointAction) putDatabaseBack(c *connection, e activities.Entry, token *journal.Token, d activities.Decision) (activities.Undone, error) {
	var rec checkpointRecord
	recorded, err := token.Read(journal.Record, &rec)
	if err != nil {
		return activities.Undone{}, err
	}
	m, err := a.connectTo(c.ctx, c.name, undoName+" "+e.Token, maintenance)
	if err != nil {
		return activities.Undone{}, err
	}
	defer m.close()
	if err := m.endForward(e.Token); err != nil {
		return activities.Undone{}, err
	}
	kept := keptPrefix + e.Token
	if there, err := m.findDatabase(kept); err != nil || there != 0 { // an earlier attempt has come that far
		return restoredFrom(kept), errors.Join(err, m.dropFresh(e.Token))
	}
	taken, found, err := readTaken(token)
	if err != nil {
		return activities.Undone{}, err
	}
	if !found || !recorded {
		if err := token.CheckNotLost(d.Done || found, takenDoc); err != nil {
			return activities.Undone{}, err
		}
		return activities.Undone{Outcome: activities.Nothing, Observed: "no checkpoint was taken, and none can be any more"}, errors.Join(m.dropFresh(e.Token), removeDumps(token))
	}
	r, err := a.newRestoring(c, e, token, taken)
	if err != nil {
		return activities.Undone{}, err
	}
	r.m = m
	return r.run(d)
}

// endForward ends the sessions of the forward of a token, with those of the programs that it runs.
func (c *connection) endForward(token string) error {
	return c.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", forwardName+" "+token)
}

func restoredFrom(kept string) activities.Undone {
	return activities.Undone{Outcome: activities.Restored, Observed: "the database is as at the checkpoint; what it replaced is kept as the database " + kept + " until the record is released"}
}

// restoring is one attempt to put a checkpoint back, or to compare with it.
type restoring struct {
	*world

	c, m   *connection // to the database, and to that for maintenance
	t      *tools
	params checkpointParams
	token  *journal.Token
	id     string // of the token
	kept   string
	taken  takenCheckpoint
	file   string
	name   string // what the server calls the database
	oid    uint32
}

func (a *checkpointAction) newRestoring(c *connection, e activities.Entry, token *journal.Token, taken takenCheckpoint) (*restoring, error) {
	p, err := activities.DecodeParams[checkpointParams](e.Params)
	if err != nil {
		return nil, err
	}
	r := &restoring{
		world: a.world, c: c, params: p, token: token, id: e.Token, kept: keptPrefix + e.Token,
		taken: taken, file: filepath.Join(token.Dir(), taken.File),
	}
	if r.name, r.oid, err = c.whoAmI(); err != nil {
		return nil, err
	}
	r.t, err = c.tools(r.name, undoName+" "+e.Token)
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
		return activities.Undone{Outcome: activities.Restored, Observed: "the database is as at the checkpoint: nothing has changed since"}, nil
	}
	if !r.params.Exclusive && d.Force != now.digest() {
		return activities.Undone{}, driftSince(was, now)
	}
	reachCheckpoint("looked")
	name, err := r.m.makeFresh(undoName, r.id, r.file, r.taken.Quoted)
	defer func() { _ = r.m.dropDatabase(name) }() // nothing, once it has another name
	if err != nil {
		return activities.Undone{}, fmt.Errorf("database %s: the checkpoint cannot be put back, nothing was touched: %w", r.c.name, err)
	}
	reachCheckpoint("made")
	if err := r.verify(name, was); err != nil {
		return activities.Undone{}, err
	}
	if err := r.exchange(name, was, now); err != nil {
		return activities.Undone{}, err
	}
	return restoredFrom(r.kept), r.m.dropFresh(r.id)
}

// readDump reads what the checkpoint contains, if its file is as it was written.
func (r *restoring) readDump() (manifest, error) {
	digest, err := durable.DigestFile(r.file, nil)
	if err != nil || digest != r.taken.Digest {
		why := "its content is not what the step has written"
		if err != nil {
			why = err.Error()
		}
		return nil, activities.Errorf(activities.DamagedRecord, "the checkpoint %s: %s; nothing was touched: put the file back, or decide what becomes of the step", r.file, why)
	}
	return r.t.manifestOf(r.file, r.taken.Quoted)
}

// look reads what the database contains now.
func (r *restoring) look() (manifest, error) { return r.c.readDatabase(r.name, undoName+" "+r.id) }

func driftSince(was, now manifest) driftError {
	return driftError{activities.Drift{
		Digest: now.digest(),
		Diff:   "the database has changed since the checkpoint: nobody can tell whether the task or somebody else has changed it\n" + was.diff(now),
	}}
}

// verify compares the restored database with the checkpoint.
func (r *restoring) verify(name string, was manifest) error {
	is, err := r.m.readDatabase(name, undoName+" "+r.id)
	if err == nil && is.digest() != was.digest() {
		err = activities.Errorf(activities.ActionDenied, "database %s: put back beside it, the checkpoint would be another one; nothing was touched:\n%s", r.c.name, was.diff(is))
	}
	return err
}

// exchange puts the restored database in place. From looking until then nobody can change a row.
func (r *restoring) exchange(name string, was, now manifest) error {
	if err := r.c.run("BEGIN"); err != nil {
		return err
	}
	defer r.c.rollback()
	if err := r.c.lockTables(); err != nil {
		return err
	}
	reachCheckpoint("locked")
	if ended, err := r.token.Has(journal.Outcome); err != nil || ended { // what has changed since another attempt ended is nobody's to take back
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
	err = r.c.takeOver(fresh)
	fresh.close()
	if err != nil {
		return err
	}
	reachCheckpoint("taken-over")
	waker, err := r.beside(maintenance)
	if err != nil {
		return err
	}
	defer waker.close()
	return r.m.replace(replacing{name: r.name, fresh: name, kept: r.kept, oid: r.oid, own: r.c}, waker)
}

// beside connects to another database of the server.
func (r *restoring) beside(database string) (*connection, error) {
	return r.connectTo(r.c.ctx, r.c.name, undoName+" "+r.id, database)
}
