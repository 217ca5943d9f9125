package checkpoint

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/postgres/statement"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// take is postgres.checkpoint. It changes nothing; its undo takes back whatever has changed the
// database since.
type take struct{ *Checkpoints }

// Spec implements activities.Action.
func (a *take) Spec() activities.Spec { return spec }

func reachCheckpoint(what string) { point.Reach("postgres.checkpoint:" + what) }

// record is the document journal.Record.
type record struct {
	journal.Owned

	Want activities.Digest `json:"want,omitempty"`
}

// Plan tells what the checkpoint takes.
func (a *take) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := decode(s.With)
	if err != nil {
		return activities.Change{}, err
	}
	if _, err := a.token(e); err != nil {
		return activities.Change{}, err
	}
	c, err := a.Rows.Open(ctx, e, p.Database, server.PlanName)
	if err != nil {
		return activities.Change{}, err
	}
	defer c.Close()
	change, err := a.describe(c, p)
	reachCheckpoint("planned")
	return change, err
}

// describe says what a checkpoint takes, and refuses one that could not be taken or not be put back.
func (a *take) describe(c *server.Connection, p params) (change activities.Change, err error) {
	bytes, err := a.checkPossible(c)
	if err == nil && p.As != asCopy {
		err = a.checkDisk(c, bytes)
	}
	if err != nil {
		return change, err
	}
	size := activities.CountOf(bytes, "byte")
	change = activities.Change{
		Summary:  fmt.Sprintf("take a checkpoint of the database %s, %s", p.Database, size),
		Strategy: activities.Snapshot,
		Undo:     spec.Undo, Risk: activities.Low, Keys: []string{"postgres:" + p.Database}, Digest: digestOf(c, p),
	}
	if p.As == asCopy {
		sessions, err := countSessions(c)
		if err != nil {
			return change, err
		}
		change.Risk = activities.Medium
		change.Facts = []string{
			describeSessions(sessions) + ", and wait until the copy is made",
			fmt.Sprintf("the copy takes %s on its server, until the step is undone or its record is released", size)}
	} else {
		change.Facts = []string{
			fmt.Sprintf("the database takes %s on its server; the checkpoint takes at most about as many on the worker, and "+
				"less since it is compressed", size),
			"it is tried out: the checkpoint is restored beside the database, which takes as much room again on its server, " +
				"and dropped there"}
	}
	change.Facts = append(change.Facts,
		"an undo restores the whole database; what it replaces is kept on its server until the record is released")
	if p.Exclusive {
		change.Facts = append(change.Facts,
			"exclusive: an undo takes back everything that has changed since, whoever has changed it")
	} else {
		change.Facts = append(change.Facts,
			"an undo asks a person if anything has changed since: nobody can tell whether the task or somebody else has "+
				"changed it")
	}
	return change, nil
}

func digestOf(c *server.Connection, p params) activities.Digest {
	return activities.DigestOf([]byte("checkpoint"), []byte(p.Database), []byte(c.ID),
		fmt.Append(nil, p.Exclusive, p.As == asCopy))
}

// Apply dumps the database.
func (a *take) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	p, err := decode(s.With)
	if err != nil {
		return activities.Result{}, err
	}
	token, err := a.token(e)
	if err != nil {
		return activities.Result{}, err
	}
	c, err := a.Rows.Open(ctx, e, p.Database, server.ForwardName)
	if err != nil {
		return activities.Result{}, err
	}
	defer func() { c.Close() }()
	unlock, err := token.Lock(ctx)
	if err != nil {
		return activities.Result{}, err
	}
	defer unlock()
	if err := token.CheckOpen(); err != nil {
		return activities.Result{}, err
	}
	taken, found, err := readTaken(token)
	if err == nil && !found {
		taken, err = a.record(c, e, token, p, want)
	}
	if err != nil {
		return activities.Result{}, err
	}
	if _, err := token.Create(takenDoc, &taken); err != nil {
		return activities.Result{}, err
	}
	reachCheckpoint("taken")
	if taken.Copy != "" { // whose making ends all sessions
		c.Close()
		again, err := a.Rows.Open(ctx, e, p.Database, server.ForwardName)
		if err != nil {
			return activities.Result{}, err
		}
		c = again
	}
	for _, when := range []activities.When{activities.Staged, activities.Live} {
		if err := activities.RunChecks(ctx, s.Checks, when, activities.Live,
			statement.Scene{Connection: c, Result: taken.Result}); err != nil {
			return taken.Result, err
		}
	}
	return taken.Result, token.CheckOpen()
}

// record makes the record, and takes the checkpoint.
func (a *take) record(c *server.Connection, e activities.Entry, token *journal.Token, p params,
	want activities.Digest) (taken checkpoint, err error) {
	var rec record
	found, err := token.Read(journal.Record, &rec)
	if err != nil {
		return taken, err
	}
	change, err := a.describe(c, p)
	if err == nil && !found {
		err = activities.Judge(c.Ctx, change)
	}
	if err != nil {
		return taken, err
	}
	if !found && want != "" && want != change.Digest {
		return taken,
			activities.Errorf(activities.StaleApproval,
				"the checkpoint is of another database than the one that was approved (now %s, approved was %s)",
				change.Digest.Short(), want.Short())
	}
	if !found {
		rec = record{Owned: journal.Own(c.Ctx, e), Want: want}
		if _, err := token.Create(journal.Record, &rec); err != nil {
			return taken, err
		}
	}
	reachCheckpoint("recorded")
	if err := a.identify(c, &taken); err != nil {
		return taken, err
	}
	if p.As == asCopy {
		err = a.copy(c, e.Token, token, p, &taken)
	} else {
		err = a.dumpTo(c, e.Token, token, &taken)
	}
	if err != nil {
		return taken, err
	}
	if err := token.CheckOpen(); err != nil {
		return taken, err
	}
	_, err = token.Create(journal.Applied, &taken)
	reachCheckpoint("applied")
	return taken, err
}

// identify notes which database the checkpoint is of.
func (a *take) identify(c *server.Connection, taken *checkpoint) (err error) {
	taken.Of, taken.ID = c.Name, c.ID
	if taken.Version, err = majorVersion(c); err != nil {
		return err
	}
	return c.Scan("SELECT quote_ident(current_database())", nil, &taken.Quoted)
}

// copy makes a copy. Its connections are opened before it finds that the token is open: an undo ends
// them, and what the forward was about to do with them fails.
func (a *take) copy(c *server.Connection, id string, token *journal.Token, p params, taken *checkpoint) error {
	m, err := a.connectMaintenance(c.Ctx, c.Name, server.ForwardName+" "+id)
	if err != nil {
		return err
	}
	defer m.Close()
	waker, err := a.connectMaintenance(c.Ctx, c.Name, server.ForwardName+" "+id)
	if err != nil {
		return err
	}
	defer waker.Close()
	var size int64
	if err := c.Scan("SELECT pg_database_size(current_database())", nil, &size); err != nil {
		return err
	}
	if err := token.CheckOpen(); err != nil {
		return err
	}
	if err := (copying{c: c, m: m, waker: waker, token: id, taken: taken}).run(); err != nil {
		return err
	}
	taken.report(size, id)
	if p.ReadLater {
		return nil
	}
	_, err = (&copied{m, *taken, token, server.ForwardName + " " + id}).verify()
	return err
}

// dumpTo makes a dump, in a file that no other attempt has.
func (a *take) dumpTo(c *server.Connection, id string, token *journal.Token, taken *checkpoint) (err error) {
	if err := token.CheckOpen(); err != nil {
		return err
	}
	if err := removeDumps(token); err != nil { // of attempts that have ended
		return err
	}
	random := make([]byte, 4)
	rand.Read(random)
	taken.File = dumpPrefix + hex.EncodeToString(random)
	file := filepath.Join(token.Dir(), taken.File)
	defer func() {
		if err != nil {
			os.Remove(file)
		}
	}()
	return a.dump(c, id, file, taken)
}

// dump writes the dump, reads it again, and tries that it can be put back.
func (a *take) dump(c *server.Connection, token, file string, taken *checkpoint) error {
	name, _, err := whoAmI(c)
	if err != nil {
		return err
	}
	t, err := newTools(c, name, server.ForwardName+" "+token)
	if err != nil {
		return err
	}
	if err := t.run(nil, "pg_dump", "--format=custom", "--lock-wait-timeout=30s", "--file="+file); err != nil {
		return fmt.Errorf("database %s: the checkpoint cannot be taken: %w", c.Name, err)
	}
	reachCheckpoint("dumped")
	if taken.Digest, err = durable.DigestFile(file, (*os.File).Sync); err != nil {
		return err
	}
	content, err := t.manifestOf(file, taken.Quoted)
	if err != nil {
		return err
	}
	taken.Content = content.digest()
	if err := a.tryRestore(c, token, file, taken.Quoted, content); err != nil {
		return err
	}
	reachCheckpoint("tried")
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	taken.report(info.Size(), token)
	return nil
}

// tryRestore makes a database from the dump, and drops it. What cannot be put back shows there, for
// want of a privilege or an extension; with the rows, since a CHECK, an index or a generated column
// may call a function that works under the search path of applications only.
func (a *take) tryRestore(c *server.Connection, token, file, quoted string, content manifest) error {
	m, err := a.connectMaintenance(c.Ctx, c.Name, server.ForwardName+" "+token)
	if err != nil {
		return err
	}
	defer m.Close()
	t, err := newTools(m, maintenance, server.ForwardName+" "+token)
	if err != nil {
		return err
	}
	name, err := t.restoreFresh(m, token, file, quoted)
	if err == nil {
		var is manifest
		if is, err = readDatabase(m, name, server.ForwardName+" "+token); err == nil && is.digest() != content.digest() {
			err = errors.New("it would not be as it was:\n" + content.diff(is))
		}
	}
	if dropped := dropDatabase(m, name); err == nil {
		return dropped
	}
	if c.Ctx.Err() != nil {
		return err
	}
	if retryable(err) {
		return err
	}
	return activities.Errorf(activities.Refused,
		"database %s: what it contains could not be put back by the worker's role, as a trial has shown: %v", c.Name, err)
}
