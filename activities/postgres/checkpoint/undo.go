package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/postgres/drift"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Undo restores the checkpoint beside the database, and exchanges the two.
func (a *take) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	if u, is := activities.NeverBegan(e, d); is {
		return u, nil
	}
	undone, err := a.undo(ctx, e, reachCheckpoint,
		func(c *server.Connection, token *journal.Token) (activities.Undone, error) {
			return a.putDatabaseBack(c, e, token, d)
		})
	if err != nil || undone.Outcome == activities.Drifted {
		return undone, err
	}
	token, err := a.token(e)
	if err != nil {
		return undone, err
	}
	if _, isKept, err := token.Keeper(); isKept || err != nil {
		return undone, err
	}
	return undone, a.dropCopy(ctx, e)
}

// dropCopy drops the copy of a token whose undo is over: another call that may still use it does no
// more.
func (a *take) dropCopy(ctx context.Context, e activities.Entry) error {
	token, err := a.token(e)
	if err != nil {
		return err
	}
	if taken, _, err := readTaken(token); err == nil && taken.Copy == "" {
		return nil
	}
	c, err := a.openWhole(ctx, e, server.UndoName)
	if err != nil {
		return err
	}
	defer c.Close()
	m, err := a.connectMaintenance(ctx, c.Name, server.UndoName+" "+e.Token)
	if err != nil {
		return err
	}
	defer m.Close()
	return dropDatabase(m, copyPrefix+e.Token)
}

// putDatabaseBack returns the outcome of an undo that nobody has ended before. C is a connection to
// the database.
func (a *take) putDatabaseBack(c *server.Connection, e activities.Entry, token *journal.Token,
	d activities.Decision) (activities.Undone, error) {
	var rec record
	recorded, err := token.Read(journal.Record, &rec)
	if err != nil {
		return activities.Undone{}, err
	}
	m, err := a.connectMaintenance(c.Ctx, c.Name, server.UndoName+" "+e.Token)
	if err != nil {
		return activities.Undone{}, err
	}
	defer m.Close()
	if err := m.EndForwardForGood(e.Token); err != nil {
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
	if keeper, isKept, err := token.Keeper(); isKept || err != nil {
		return activities.Undone{Outcome: activities.Nothing,
			Observed: fmt.Sprintf("checkpoint %s is that of %s by now, and stays", namePrefix+e.Token, keeper.Workflow)}, err
	}
	if !found || !recorded {
		if err := token.CheckNotLost(d.Done || found, takenDoc); err != nil {
			return activities.Undone{}, err
		}
		return activities.Undone{Outcome: activities.Nothing, Observed: "no checkpoint was taken, and none can be any more"},
			errors.Join(dropMade(m, e.Token), removeDumps(token))
	}
	r, err := a.newPuttingBack(c, e, token, taken)
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

// puttingBack is one attempt to put a checkpoint back, or to compare with it.
type puttingBack struct {
	*take

	c, m   *server.Connection // to the database, and to that for maintenance
	params params
	token  *journal.Token
	id     string // of the token
	kept   string
	taken  checkpoint
	image  image
	name   string // what the server calls the database
	oid    uint32
}

func (a *take) newPuttingBack(c *server.Connection, e activities.Entry, token *journal.Token,
	taken checkpoint) (*puttingBack, error) {
	p, err := activities.DecodeParams[params](e.Params)
	if err != nil {
		return nil, err
	}
	r := &puttingBack{
		take: a, c: c, params: p, token: token, id: e.Token, kept: keptPrefix + e.Token,
		taken: taken,
	}
	if r.name, r.oid, err = whoAmI(c); err != nil {
		return nil, err
	}
	r.image, err = taken.image(c, token, server.UndoName+" "+e.Token)
	return r, err
}

func (r *puttingBack) run(d activities.Decision) (activities.Undone, error) {
	was, err := r.image.read()
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
	name, err := r.image.makeFresh(r.m, r.id)
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

// look reads what the database contains now.
func (r *puttingBack) look() (manifest, error) {
	return readDatabase(r.c, r.name, server.UndoName+" "+r.id)
}

func driftSince(was, now manifest) drift.Error {
	return drift.Error{Drift: activities.Drift{
		Digest: now.digest(),
		Diff: "the database has changed since the checkpoint: nobody can tell whether the task or somebody else has " +
			"changed it\n" + was.content().diff(now.content()),
	}}
}

// verify compares the restored database with the checkpoint.
func (r *puttingBack) verify(name string, was manifest) error {
	is, err := readDatabase(r.m, name, server.UndoName+" "+r.id)
	if err == nil && is.digest() != was.digest() {
		err = activities.Errorf(activities.ActionDenied,
			"database %s: put back beside it, the checkpoint would be another one; nothing was touched:\n%s", r.c.Name,
			was.content().diff(is.content()))
	}
	return err
}

// exchange puts the restored database in place.
func (r *puttingBack) exchange(name string, was, now manifest) error {
	return exchange{
		Checkpoints: r.Checkpoints, own: r.c, m: r.m, application: server.UndoName + " " + r.id,
		name: r.name, oid: r.oid, fresh: name, aside: r.kept, pass: reachCheckpoint,
		check: func() error {
			// what has changed since another attempt ended is nobody's to take back
			if ended, err := r.token.Has(journal.Outcome); err != nil || ended {
				return errors.Join(err, errReplaced)
			}
			if r.params.Exclusive {
				return nil
			}
			last, err := r.look()
			if err == nil && last.digest() != now.digest() {
				err = driftSince(was, last)
			}
			return err
		},
	}.run()
}
