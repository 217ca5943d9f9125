package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Documents of a token besides those of package journal, and the names of the files of an attempt.
const (
	actedDoc       = "acted" // written before an undo commits: it proves that the step has acted
	rowsName       = "rows-"
	checkpointName = "checkpoint-"
	wantedName     = "wanted-" // what a restore is about to write
)

// record holds what an undo must know whichever attempt commits.
type record struct {
	journal.Owned

	Want activities.Digest `json:"want,omitempty"`
	// Path is the database without symlinks, and ID the file.
	Path string   `json:"path"`
	ID   identity `json:"id"`
}

// applied is the content of journal.Applied, and of actedDoc.
type applied struct {
	Mark   mark              `json:"mark"`
	Result activities.Result `json:"result,omitzero"`
}

func (c *call) rowsFile(attempt string) string { return filepath.Join(c.token.Dir(), rowsName+attempt) }

func (c *call) checkpointFile(attempt string) string {
	return filepath.Join(c.token.Dir(), checkpointName+attempt)
}

// removeFiles removes the files of all attempts.
func (c *call) removeFiles() error { return c.removeNamed(rowsName, checkpointName, wantedName) }

// removeNamed removes the files whose names begin in one of these ways.
func (c *call) removeNamed(prefixes ...string) error {
	entries, err := os.ReadDir(c.token.Dir())
	for _, e := range entries {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(e.Name(), p) }) {
			err = errors.Join(err, os.Remove(filepath.Join(c.token.Dir(), e.Name())))
		}
	}
	return err
}

// markers is the table in a database that has a row for each step that can be undone. The row is
// committed with the change of the step, and deleted by its undo or release; the table is dropped
// with its last row.
const markers = "_unwind_steps"

// mark is a row of this table.
type mark struct {
	Attempt string `json:"attempt"`
	// Digest is that of the attempt's rows file.
	Digest string `json:"digest"`
}

func (d *database) mark(token string, m mark) error {
	if err := d.run("CREATE TABLE IF NOT EXISTS main." + markers +
		" (token TEXT PRIMARY KEY, attempt TEXT NOT NULL, digest TEXT NOT NULL) WITHOUT ROWID"); err != nil {
		return err
	}
	return d.run("INSERT INTO main."+markers+" VALUES (?, ?, ?)", token, m.Attempt, m.Digest)
}

func (d *database) hasMarks() (bool, error) {
	n, err := d.number("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?", markers)
	return n > 0, err
}

// findMark finds the mark of a token.
func (d *database) findMark(token string) (m mark, found bool, err error) {
	there, err := d.hasMarks()
	if err != nil || !there {
		return m, false, err
	}
	err = run(d.Conn, "SELECT attempt, digest FROM main."+markers+" WHERE token = ?", []any{token},
		func(q *sqlite.Stmt) error {
			m, found = mark{q.ColumnText(0), q.ColumnText(1)}, true
			return nil
		})
	return m, found, err
}

// unmark removes the mark of a token, and the table with the last.
func (d *database) unmark(token string) error {
	if _, found, err := d.findMark(token); err != nil || !found {
		return err
	}
	if err := d.run("DELETE FROM main."+markers+" WHERE token = ?", token); err != nil {
		return err
	}
	left, err := d.number("SELECT count(*) FROM main." + markers)
	if err == nil && left == 0 {
		err = d.run("DROP TABLE main." + markers)
	}
	return err
}

// forward makes a change of a database, and commits it with the mark; judged says that there is a
// record already.
type forward func(ctx context.Context, d *database, rec record, judged bool) (activities.Result, error)

// forward is what the step does, and the database to which it does it.
func (c *call) forward() (f forward, path string, err error) {
	if c.Entry.Action == restoreName {
		p, err := decodeParams[restoreParams](c.Step.With)
		return func(ctx context.Context, d *database, rec record, judged bool) (activities.Result, error) {
			return c.restoreOnce(ctx, d, p, rec, judged)
		}, p.Database, err
	}
	p, err := parseExec(c.Step.With)
	return func(ctx context.Context, d *database, rec record, judged bool) (activities.Result, error) {
		return c.execOnce(ctx, d, p, rec, judged)
	}, p.Database, err
}

// apply does the step, unless an earlier attempt has.
func (c *call) apply(ctx context.Context) (activities.Result, error) {
	var none activities.Result
	unlock, err := c.LockToken(ctx, c.token)
	if err != nil {
		return none, err
	}
	defer unlock()
	if err := c.token.CheckOpen(); err != nil {
		return none, err
	}
	if c.Entry.Action == keepName {
		return c.keep(ctx)
	}
	return c.change(ctx)
}

// change makes a change and commits it with the mark. The mark shows whether an earlier attempt has
// committed.
func (c *call) change(ctx context.Context) (none activities.Result, err error) {
	commitOnce, given, err := c.forward()
	if err != nil {
		return none, err
	}
	var rec record
	found, err := c.token.Read(journal.Record, &rec)
	if err != nil {
		return none, err
	}
	if !found {
		if err := c.token.CheckNotLost(false); err != nil {
			return none, err
		}
		if rec.Path, err = c.locateThere(given); err != nil {
			return none, err
		}
	}
	d, err := c.open(rec.Path)
	if err != nil {
		return none, err
	}
	defer d.Close()
	if !found {
		rec.ID, rec.Owned, rec.Want = d.id, journal.Own(ctx, c.Entry), c.Want
	} else if rec.ID != d.id {
		return none,
			activities.Errorf(activities.UnknownOutcome, "%s was replaced by another file since an earlier attempt", rec.Path)
	}
	m, committed, err := d.findMark(c.Entry.Token)
	if err != nil {
		return none, err
	}
	if committed {
		return c.confirm(d, m)
	}
	var done applied
	if was, err := c.token.Read(journal.Applied, &done); err != nil || was {
		return done.Result, err // and its mark is gone: an undo will report why
	}
	if err := c.checkUnmarked(d); err != nil {
		return none, err
	}
	return commitOnce(ctx, d, rec, found)
}

// execOnce runs the statements.
func (c *call) execOnce(ctx context.Context, d *database, p execParams, rec record,
	judged bool) (none activities.Result, err error) {
	if err := c.removeFiles(); err != nil { // of attempts that have not committed
		return none, err
	}
	m := mark{Attempt: rand.Text()}
	e, end, err := c.execute(ctx, d, p, m.Attempt)
	if err != nil {
		return none, err
	}
	defer end()
	if !judged {
		change, _, err := c.weigh(d, p, e)
		if err == nil {
			err = c.Approval.Judge(change)
		}
		if err != nil {
			return none, errors.Join(err, e.store.Close(), c.removeFiles())
		}
	}
	now, err := c.digest(d, e)
	if err == nil && !judged {
		err = c.checkApproved(now)
	}
	if err == nil {
		e.Result.After = now
		e.Result.Summary, err = e.summarize(d)
	}
	if err == nil {
		err = c.runQueries(ctx, d)
	}
	if err != nil {
		return none, errors.Join(err, e.store.Close(), c.removeFiles())
	}
	if m.Digest, err = e.store.seal(e.notes); err != nil {
		return none, err
	}
	c.reach("captured")
	if _, err := c.token.Create(journal.Record, &rec); err != nil {
		return none, err
	}
	c.reach("recorded")
	if err := d.mark(c.Entry.Token, m); err != nil {
		return none, explain(d.path, err)
	}
	c.reach("marked")
	if err := c.token.CheckOpen(); err != nil {
		return none, err
	}
	if err := d.commit(); err != nil {
		return none, err
	}
	c.reach("committed")
	return c.confirm(d, m)
}

// checkApproved refuses a change that is not the one that was approved.
func (c *call) checkApproved(now activities.Digest) error {
	if c.Want == "" || c.Want == now {
		return nil
	}
	return activities.Errorf(activities.StaleApproval,
		"the change, or what it changes, is not what was approved; plan and approve it again")
}

// confirm records that an attempt has committed.
func (c *call) confirm(d *database, m mark) (activities.Result, error) {
	done := applied{Mark: m}
	if found, err := c.token.Read(journal.Applied, &done); err != nil || found {
		return done.Result, err
	}
	if err := c.checkMark(d, m); err != nil {
		return done.Result, err
	}
	s, n, err := openStore(c.rowsFile(m.Attempt), m.Digest)
	if err != nil {
		return n.Result, err
	}
	defer s.Close()
	done.Result = n.Result
	if err := c.removeNamed(wantedName); err != nil {
		return done.Result, err
	}
	_, err = c.token.Create(journal.Applied, &done)
	c.reach("applied")
	return done.Result, err
}
