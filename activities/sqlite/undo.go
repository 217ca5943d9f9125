package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

const nothingDone = "the step had changed nothing, and no longer can"

// undo ends the forwards of the token and takes back what one of them has committed.
func (c *call) undo(ctx context.Context) (undone activities.Undone, err error) {
	began := time.Now()
	undone, isOver, err := c.token.BeginUndo()
	if err != nil {
		return undone, err
	}
	if isOver {
		return undone, c.removeFiles()
	}
	c.reach("undo-begun")
	unlock, err := c.LockToken(ctx, c.token)
	if err != nil {
		return undone, err
	}
	defer unlock()
	c.reach("undo-fenced")
	if found, err := c.token.Read(journal.Outcome, &undone); found || err != nil {
		return undone, err
	}
	if undone, err = c.settle(ctx); err != nil || undone.Outcome == activities.Drifted {
		return undone, err
	}
	undone.Took = time.Since(began).Round(time.Millisecond)
	if _, err := c.token.Create(journal.Outcome, &undone); err != nil {
		return undone, err
	}
	c.reach("undone")
	return undone, c.removeFiles()
}

// restore is the undo of a change that was committed.
type restore struct {
	*call
	*database

	rec   record
	mark  mark
	store *store
	notes notes
	// found says that the mark is there.
	found bool
	// drift has a line for each difference from what the step left; stuck are the lines that cannot be
	// forced.
	drift, stuck []string
	// losses are what a forced undo leaves behind.
	losses []string
}

// settle takes the change back, or reports why there is nothing to take back or what prevents it.
func (c *call) settle(ctx context.Context) (undone activities.Undone, err error) {
	r := &restore{call: c}
	found, err := c.token.Read(journal.Record, &r.rec)
	if err != nil {
		return undone, err
	}
	if !found {
		return activities.Undone{Outcome: activities.Nothing, Observed: nothingDone},
			c.token.CheckNotLost(c.Decision.Done && !c.onlyReads(), actedDoc)
	}
	if c.Entry.Action == keepName {
		return c.letGo()
	}
	id, err := identify(r.rec.Path)
	if errors.Is(err, fs.ErrNotExist) {
		r.drift = append(r.drift, "- "+r.rec.Path+" is gone")
		if c.Decision.Force != r.driftDigest() {
			return r.drifted(), nil
		}
		return activities.Undone{Outcome: activities.Residue, Observed: "there is no database any more",
			Losses: []string{r.rec.Path + " is gone"}}, nil
	}
	if err != nil {
		return undone, err
	}
	if r.database, err = c.open(r.rec.Path); err != nil {
		return undone, err
	}
	defer r.Close()
	if id != r.rec.ID {
		r.drift = append(r.drift,
			"~ "+r.rec.Path+" is another file than the one that the step changed: a copy was put in its place")
	}
	acted, err := r.findAttempt()
	if err != nil || !acted {
		return activities.Undone{Outcome: activities.Nothing, Observed: nothingDone}, err
	}
	if r.store, r.notes, err = openStore(c.rowsFile(r.mark.Attempt), r.mark.Digest); err != nil {
		return undone, err
	}
	defer r.store.Close()
	if r.notes.Checkpoint != "" {
		return r.restoreCheckpoint(ctx)
	}
	return r.restoreRows()
}

// findAttempt finds the attempt that has committed: from the journal or, where the worker died
// before that was noted there, by its mark.
func (r *restore) findAttempt() (acted bool, err error) {
	if r.mark, r.found, err = r.findMark(r.Entry.Token); err != nil {
		return r.found, explain(r.path, err)
	}
	for _, doc := range []string{actedDoc, journal.Applied} {
		var done applied
		if found, err := r.token.Read(doc, &done); found || err != nil {
			r.mark = done.Mark
			return true, err
		}
	}
	if r.found {
		return true, r.checkMark(r.database, r.mark)
	}
	return false, errors.Join(r.token.CheckNotLost(r.Decision.Done), r.checkUnmarked(r.database))
}

// wasUndone reports whether an earlier attempt of this undo has committed.
func (r *restore) wasUndone() (bool, error) {
	if r.found {
		return false, nil
	}
	return r.token.Has(actedDoc)
}

// act records that the undo is about to commit.
func (r *restore) act() error {
	_, err := r.token.Create(actedDoc, &applied{Mark: r.mark})
	r.reach("undo-acting")
	return err
}

func (r *restore) driftDigest() activities.Digest {
	return activities.DigestOf([]byte(strings.Join(r.drift, "\n")))
}

// drifted is the drift that was found, for a person.
func (r *restore) drifted() activities.Undone {
	d := r.showDrift()
	return activities.Undone{Outcome: activities.Drifted,
		Observed: fmt.Sprintf("%s: %s not as the step left it", r.rec.Path, activities.CountOf(len(r.drift), "thing")),
		Drift:    d}
}

func (r *restore) showDrift() *activities.Drift {
	shown := slices.Clone(r.drift)
	if len(shown) > shownRows {
		shown = append(shown[:shownRows], fmt.Sprintf("... and %d more", len(r.drift)-shownRows))
	}
	return &activities.Drift{Digest: r.driftDigest(), Diff: strings.Join(shown, "\n")}
}

// mayGoOn reports whether there is no drift, or a person has forced the undo.
func (r *restore) mayGoOn() bool {
	return len(r.stuck) == 0 && (len(r.drift) == 0 || r.Decision.Force == r.driftDigest())
}

// restoreRows puts the rows back in one transaction.
func (r *restore) restoreRows() (undone activities.Undone, err error) {
	// The rows are put back as they were: nothing else follows from that.
	err = errors.Join(setTriggers(r.Conn, 0), r.run("PRAGMA foreign_keys = OFF"),
		r.run("PRAGMA ignore_check_constraints = ON"))
	if err != nil {
		return undone, err
	}
	end, err := r.begin()
	if err != nil {
		return undone, err
	}
	defer end()
	r.reach("undo-locked")
	tables, err := r.tables()
	if err != nil {
		return undone, err
	}
	over, err := r.wasUndone()
	if err != nil {
		return undone, err
	}
	if over {
		return r.verifyRows(tables)
	}
	if err := r.compareRows(tables); err != nil {
		return undone, err
	}
	if len(r.stuck) > 0 {
		return r.drifted(), nil
	}
	// What else stands in the way shows when the rows are put back; a person is shown all of it at
	// once.
	referring, err := r.listReferring()
	if err != nil {
		return undone, err
	}
	dangling, err := r.listDangling(referring)
	if err != nil {
		return undone, err
	}
	counters, err := r.counters()
	if err != nil {
		return undone, err
	}
	if err := r.putRows(tables); err != nil {
		return undone, explain(r.path, err)
	}
	after, err := r.listDangling(referring)
	if err != nil {
		return undone, err
	}
	for _, line := range after {
		if !slices.Contains(dangling, line) {
			r.drift = append(r.drift, line)
			r.losses = append(r.losses, line)
		}
	}
	if !r.mayGoOn() {
		return r.drifted(), nil
	}
	if undone, err = r.verifyRows(tables); err != nil {
		return undone, err
	}
	if err := errors.Join(r.putCounters(counters, r.notes.Counters), r.unmark(r.Entry.Token), r.act()); err != nil {
		return undone, explain(r.path, err)
	}
	if err := r.commit(); err != nil {
		return undone, err
	}
	r.reach("undo-committed")
	return undone, nil
}

// compareRows finds rows that are not as the step left them.
func (r *restore) compareRows(tables map[string]*table) error {
	for name, sql := range r.notes.Tables {
		if t := tables[lower(name)]; t == nil || t.sql != sql {
			line := "~ table " + name + " was altered or dropped since; bring it back to: " + sql
			r.drift, r.stuck = append(r.drift, line), append(r.stuck, line)
		}
	}
	if len(r.stuck) > 0 {
		return nil
	}
	return r.store.each(func(i images) error {
		t := tables[lower(i.table)]
		now, twin, err := t.find(r.database, i.key)
		if err != nil || equal(now, i.after) {
			return err
		}
		if !equal(now, i.before) {
			r.drift = append(r.drift, r.describeDrift(t, i.key, i.after, now))
			return nil
		}
		if now != nil || twin == nil {
			return nil
		}
		known, err := r.store.has(t, twin)
		if !known {
			r.drift = append(r.drift,
				r.describeDrift(t, t.keyOf(twin), nil, twin)+": its key equals that of a row of the step, and is another")
		}
		return err
	})
}

// describeDrift describes a row as it is and as the step left it. The digest of the row
// distinguishes drifts whose values are not shown.
func (r *restore) describeDrift(t *table, key, left, now []any) string {
	line := images{table: t.name, key: key, before: left, after: now}.describe(t, r.notes.Private)
	return line + " (" + activities.DigestOf(encode(now)).Short() + ")"
}

// putRows removes the rows that the step left, and puts back those that were there before. Rows of
// others that prevent this are drift.
func (r *restore) putRows(tables map[string]*table) error {
	err := r.store.each(func(i images) error { return tables[lower(i.table)].delete(r.database, i.key) })
	if err != nil {
		return err
	}
	var unseen error
	stop := watch(r.Conn, func(change rowChange) {
		if change.op == sqlite.OpInsert {
			return
		}
		t := tables[lower(change.table)]
		before, _, err := t.changed(change)
		unseen = errors.Join(unseen, err)
		r.drift = append(r.drift,
			r.describeDrift(t, t.keyOf(before), before, nil)+
				": it has a value that must be unique, and that a row to be put back has")
	})
	defer stop()
	err = r.store.each(func(i images) error {
		if i.before == nil {
			return nil
		}
		return tables[lower(i.table)].put(r.database, i.before)
	})
	return errors.Join(err, unseen)
}

// verifyRows checks the rows after an undo.
func (r *restore) verifyRows(tables map[string]*table) (activities.Undone, error) {
	n := int64(0)
	err := r.store.each(func(i images) error {
		n++
		t := tables[lower(i.table)]
		if t == nil {
			r.losses = append(r.losses, "table "+i.table+" is gone")
			return nil
		}
		now, err := t.read(r.database, i.key)
		if err == nil && !equal(now, i.before) {
			r.losses = append(r.losses, "changed by someone else meanwhile: "+r.describeDrift(t, i.key, i.before, now))
		}
		return err
	})
	return r.outcome(activities.CountOf(n, "row") + " as before"), err
}

func (r *restore) outcome(observed string) activities.Undone {
	undone := activities.Undone{Outcome: activities.Restored, Observed: r.path + ": " + observed, Losses: r.losses}
	if len(r.losses) > 0 {
		undone.Outcome = activities.Residue
	}
	return undone
}

// listReferring lists the tables whose rows refer to rows of the changed ones, or are of them and
// refer to others.
func (r *restore) listReferring() (names []string, err error) {
	err = run(r.Conn,
		`SELECT DISTINCT l.name, f."table" FROM pragma_table_list l, pragma_foreign_key_list(l.name) f
			WHERE l.schema = 'main'`, nil,
		func(q *sqlite.Stmt) error {
			for name := range r.notes.Tables {
				if strings.EqualFold(name, q.ColumnText(0)) || strings.EqualFold(name, q.ColumnText(1)) {
					names = append(names, q.ColumnText(0))
				}
			}
			return nil
		})
	slices.Sort(names)
	return slices.Compact(names), err
}

// listDangling lists the rows of tables that refer to rows that are not there.
func (r *restore) listDangling(tables []string) (lines []string, err error) {
	for _, name := range tables {
		err = errors.Join(err,
			run(r.Conn, `SELECT rowid, parent, fkid FROM pragma_foreign_key_check(?)`, []any{name}, func(q *sqlite.Stmt) error {
				lines = append(lines,
					fmt.Sprintf("! %s rowid=%s refers to a row of %s that would be gone (foreign key %d)", name,
						literal(column(q, 0), false), q.ColumnText(1), q.ColumnInt(2)))
				return nil
			}))
	}
	return lines, err
}

// restoreCheckpoint puts the whole file back, while nobody else can write it.
func (r *restore) restoreCheckpoint(ctx context.Context) (undone activities.Undone, err error) {
	path := r.checkpointFile(r.mark.Attempt)
	over, err := r.wasUndone()
	if err != nil {
		return undone, err
	}
	if !over {
		if err := checkFile(path, r.notes.Checkpoint); err != nil {
			return undone, err
		}
	}
	judge := func(reader *database) error {
		r.reach("undo-locked")
		now, err := reader.content()
		if err != nil {
			return err
		}
		if err := r.compareCheckpoint(reader, now); err != nil {
			return err
		}
		if now.digest() == r.notes.Before.digest() {
			r.drift = nil
		}
		if len(r.drift) > 0 {
			r.drift = append(r.drift, "the database now: "+activities.DigestOf([]byte(now.digest())).Short())
		}
		if !r.mayGoOn() {
			return errDrifted
		}
		return r.act()
	}
	if over {
		return r.verifyContent()
	}
	from, err := openCopy(path)
	if err != nil {
		return undone, err
	}
	defer from.Close()
	err = r.overwrite(ctx, r.database, from.Conn, judge)
	if errors.Is(err, errDrifted) {
		return r.drifted(), nil
	}
	if err != nil {
		return undone, explain(r.path, err)
	}
	r.reach("undo-committed")
	return r.verifyContent()
}

// errDrifted stops an undo that has found drift.
var errDrifted = errors.New("the database is not as the step left it")

// verifyContent checks the database after an undo.
func (r *restore) verifyContent() (activities.Undone, error) {
	now, err := r.content()
	for _, line := range compareContent(r.notes.Before, now) {
		r.losses = append(r.losses, "changed by someone else meanwhile: "+line)
	}
	return r.outcome("the whole file is as before"), err
}

// observe compares the database with what the step left and with what was there before.
func (c *call) observe(context.Context) (seen activities.Observation, err error) {
	seen.State = activities.Unseen
	if c.Entry.Action == keepName {
		return c.observeKept()
	}
	r := &restore{call: c}
	found, err := c.token.Read(journal.Record, &r.rec)
	if err != nil || !found {
		seen.Detail = "the journal has no record of a change"
		return seen, err
	}
	if r.database, err = c.open(r.rec.Path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return activities.Observation{State: activities.Elsewise, Detail: r.rec.Path + " is gone"}, nil
		}
		return seen, err
	}
	defer r.Close()
	if err := errors.Join(r.run("PRAGMA query_only = ON"), r.run("BEGIN")); err != nil {
		return seen, err
	}
	acted, err := r.findAttempt()
	if err != nil || !acted {
		seen.Detail = "no attempt of the step has committed"
		return seen, err
	}
	if done, err := c.token.Has(journal.Outcome); err != nil || done {
		return activities.Observation{State: activities.AsBefore, Detail: "the step was undone"}, err
	}
	if r.store, r.notes, err = openStore(c.rowsFile(r.mark.Attempt), r.mark.Digest); err != nil {
		return seen, err
	}
	defer r.store.Close()
	before, err := r.compareAll()
	switch {
	case err != nil:
		return seen, err
	case len(r.drift) == 0:
		seen.State = activities.AsLeft
	case before:
		seen.State = activities.AsBefore
	default:
		seen.State, seen.Drift = activities.Elsewise, r.showDrift()
	}
	return seen, nil
}

// compareAll fills in the drift, and reports whether all is as before.
func (r *restore) compareAll() (before bool, err error) {
	if r.notes.Checkpoint != "" {
		now, err := r.content()
		if err == nil {
			err = r.compareCheckpoint(r.database, now)
		}
		return len(compareContent(r.notes.Before, now)) == 0, err
	}
	tables, err := r.tables()
	if err != nil {
		return false, err
	}
	if err := r.compareRows(tables); err != nil || len(r.stuck) > 0 {
		return false, err
	}
	before = true
	err = r.store.each(func(i images) error {
		now, err := tables[lower(i.table)].read(r.database, i.key)
		before = before && equal(now, i.before)
		if !equal(now, i.after) && equal(now, i.before) {
			r.drift = append(r.drift, r.describeDrift(tables[lower(i.table)], i.key, i.after, now))
		}
		return err
	})
	return before, err
}

// release drops the undo data and the mark.
func (c *call) release(ctx context.Context) error {
	fate, err := c.token.DecideReleasing()
	if err != nil {
		return err
	}
	unlock, err := c.LockToken(ctx, c.token)
	if err != nil {
		return err
	}
	defer unlock()
	var rec record
	found, err := c.token.Read(journal.Record, &rec)
	if err != nil && activities.TypeOf(err) != activities.DamagedRecord {
		return err
	}
	if found && fate == journal.Releasing && c.Entry.Action != keepName {
		if err := c.releaseMark(rec); err != nil {
			return err
		}
	}
	for _, name := range []string{journal.Record, journal.Applied, actedDoc} {
		if err := c.token.Drop(name); err != nil {
			return err
		}
	}
	if err := errors.Join(c.removeFiles(), c.dropKept()); err != nil {
		return err
	}
	return c.token.MarkReleased()
}

// releaseMark removes the mark from the database, if it is still the same database.
func (c *call) releaseMark(rec record) error {
	if id, err := identify(rec.Path); err != nil || id != rec.ID {
		return nil // it is gone, and the mark with it
	}
	d, err := c.open(rec.Path)
	if err != nil {
		return err
	}
	defer d.Close()
	end, err := d.begin()
	if err != nil {
		return err
	}
	defer end()
	if err := d.unmark(c.Entry.Token); err != nil {
		return explain(rec.Path, err)
	}
	return d.commit()
}
