package checkpoint

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/postgres/statement"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// JournalName stands for the name of a database before the mark of the journal of checkpoints. No
// database has this name.
const JournalName = "*"

// Action is postgres.checkpoint. It changes nothing; its undo takes back whatever has changed the
// database since.
type Action struct {
	Databases server.Databases
	// Journal is the folder of checkpoints; nil in a world that only looks.
	Journal *journal.Journal
	Rows    RowJournals
}

// RowJournals are the journals in the databases themselves, of what steps do to rows.
type RowJournals interface {
	// Open connects to the database of an entry. It returns WrongPlace where another database has the
	// name now.
	Open(ctx context.Context, e activities.Entry, database, purpose string) (*server.Connection, error)
	// TakeOver makes a restored database go on with the journal of the one that it replaces.
	TakeOver(replaced, restored *server.Connection) error
}

// Spec implements activities.Action.
func (a *Action) Spec() activities.Spec { return spec }

func reachCheckpoint(what string) { point.Reach("postgres.checkpoint:" + what) }

// Documents and files of a token besides those of package journal.
const (
	takenDoc   = "taken" // the same as journal.Applied, which alone could be lost
	dumpPrefix = "dump-"
)

// record is the document journal.Record.
type record struct {
	journal.Owned

	Want activities.Digest `json:"want,omitempty"`
}

// dumped is the document journal.Applied.
type dumped struct {
	File    string            `json:"file"`
	Digest  string            `json:"digest"` // of the file
	Content activities.Digest `json:"content"`
	Quoted  string            `json:"quoted"` // the name of the database in the dump
	Result  activities.Result `json:"result"`
}

// Plan tells what the checkpoint takes.
func (a *Action) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := activities.DecodeParams[params](s.With)
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
	size, err := a.checkPossible(c)
	if err != nil {
		return activities.Change{}, err
	}
	reachCheckpoint("planned")
	change := activities.Change{
		Summary:  fmt.Sprintf("take a checkpoint of the database %s, %s", p.Database, activities.CountOf(size, "byte")),
		Strategy: activities.Snapshot,
		Undo:     spec.Undo, Risk: activities.Low, Keys: []string{"postgres:" + p.Database}, Digest: digestOf(c, p),
		Facts: []string{
			fmt.Sprintf(
				"the database takes %s on its server; the checkpoint takes at most about as many on the worker, and less since "+
					"it is compressed", activities.CountOf(size, "byte")),
			"it is tried out: the checkpoint is restored beside the database, which takes as much room again on its server, " +
				"and dropped there",
			"an undo restores the whole database; what it replaces is kept on its server until the record is released"},
	}
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

// token opens the token of an entry, if its record is in this journal.
func (a *Action) token(e activities.Entry) (*journal.Token, error) {
	mark := server.RecordedJournal(e, JournalName)
	if mark == "" {
		return nil, activities.Errorf(activities.WrongPlace, "the entry names no journal of checkpoints")
	}
	if err := a.Journal.Check(mark); err != nil {
		return nil, err
	}
	return a.Journal.Token(e.Token)
}

// checkPossible refuses a checkpoint that could not be taken or not be put back, and returns the
// size of the database.
func (a *Action) checkPossible(c *server.Connection) (size int64, err error) {
	if err := errors.Join(checkTools(c), checkRights(c)); err != nil {
		return 0, err
	}
	if err := c.Scan("SELECT pg_database_size(current_database())", nil, &size); err != nil {
		return 0, err
	}
	if a.Journal == nil { // it only looks
		return size, nil
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(a.Journal.Dir(), &disk); err != nil {
		return 0, err
	}
	if free := int64(disk.Bavail) * disk.Bsize; free < size { //nolint:gosec // a disk has fewer bytes
		return 0, activities.Errorf(activities.Refused,
			"database %s: it takes %s, and the disk of %s has %d free; make room, or move the worker's state to a larger disk",
			c.Name, activities.CountOf(size, "byte"), a.Journal.Dir(), free)
	}
	return size, nil
}

func digestOf(c *server.Connection, p params) activities.Digest {
	return activities.DigestOf([]byte("checkpoint"), []byte(p.Database), []byte(c.ID), fmt.Append(nil, p.Exclusive))
}

// Apply dumps the database.
func (a *Action) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	p, err := activities.DecodeParams[params](s.With)
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
	defer c.Close()
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
		taken, err = a.take(c, e, token, p, want)
	}
	if err != nil {
		return activities.Result{}, err
	}
	if _, err := token.Create(takenDoc, &taken); err != nil {
		return activities.Result{}, err
	}
	reachCheckpoint("taken")
	for _, when := range []activities.When{activities.Staged, activities.Live} {
		if err := activities.RunChecks(ctx, s.Checks, when, activities.Live,
			statement.Scene{Connection: c, Result: taken.Result}); err != nil {
			return taken.Result, err
		}
	}
	return taken.Result, token.CheckOpen()
}

// readTaken reads what a forward has taken; found is false if none has.
func readTaken(token *journal.Token) (taken dumped, found bool, err error) {
	if found, err = token.Read(journal.Applied, &taken); err == nil && !found {
		found, err = token.Read(takenDoc, &taken)
	}
	return taken, found, err
}

// take makes the record, and takes the checkpoint.
func (a *Action) take(c *server.Connection, e activities.Entry, token *journal.Token, p params,
	want activities.Digest) (taken dumped, err error) {
	var rec record
	found, err := token.Read(journal.Record, &rec)
	if err != nil {
		return taken, err
	}
	if _, err := a.checkPossible(c); err != nil {
		return taken, err
	}
	if !found {
		if err := activities.Judge(c.Ctx, activities.Change{Strategy: activities.Snapshot, Risk: spec.Risk}); err != nil {
			return taken, err
		}
	}
	if got := digestOf(c, p); !found && want != "" && want != got {
		return taken,
			activities.Errorf(activities.StaleApproval,
				"the checkpoint is of another database than the one that was approved (now %s, approved was %s)", got.Short(),
				want.Short())
	}
	if !found {
		rec = record{Owned: journal.Own(c.Ctx, e), Want: want}
		if _, err := token.Create(journal.Record, &rec); err != nil {
			return taken, err
		}
	}
	reachCheckpoint("recorded")
	if err := token.CheckOpen(); err != nil {
		return taken, err
	}
	if err := removeDumps(token); err != nil { // of attempts that have ended
		return taken, err
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
	if err := a.dump(c, e.Token, file, &taken); err != nil {
		return taken, err
	}
	if err := token.CheckOpen(); err != nil {
		return taken, err
	}
	_, err = token.Create(journal.Applied, &taken)
	reachCheckpoint("applied")
	return taken, err
}

// dump writes the dump, reads it again, and tries that it can be put back.
func (a *Action) dump(c *server.Connection, token, file string, taken *dumped) error {
	name, _, err := whoAmI(c)
	if err != nil {
		return err
	}
	t, err := newTools(c, name, server.ForwardName+" "+token)
	if err != nil {
		return err
	}
	if err := c.Scan("SELECT quote_ident(current_database())", nil, &taken.Quoted); err != nil {
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
	var rows int64
	for _, each := range content {
		rows += max(each.Rows, 0)
	}
	taken.Result = activities.Result{
		Summary: fmt.Sprintf("a checkpoint of %s with %s, in %s", c.Name, activities.CountOf(rows, "row"),
			activities.CountOf(info.Size(), "byte")),
		Outputs: map[string]any{"bytes": info.Size(), "rows": rows, "digest": string(taken.Content)}, After: taken.Content,
	}
	return nil
}

// tryRestore makes a database from the dump, and drops it. What cannot be put back shows there, for
// want of a privilege or an extension; with the rows, since a CHECK, an index or a generated column
// may call a function that works under the search path of applications only.
func (a *Action) tryRestore(c *server.Connection, token, file, quoted string, content manifest) error {
	m, err := a.Databases.ConnectTo(c.Ctx, c.Name, server.ForwardName+" "+token, maintenance)
	if err != nil {
		return err
	}
	defer m.Close()
	name, err := makeFresh(m, server.ForwardName, token, file, quoted)
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

// retryable reports whether an error of the server may be another one next time.
func retryable(err error) bool { return server.IsCode(err, "40", "53", "55", "57", "08", "58", "XX") }

// removeDumps removes the dumps of a token.
func removeDumps(token *journal.Token) error {
	entries, err := os.ReadDir(token.Dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), dumpPrefix) {
			err = errors.Join(err, os.Remove(filepath.Join(token.Dir(), e.Name())))
		}
	}
	return err
}
