package sqlite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/isolated"
)

// effect is what statements have done in a transaction that is still open.
type effect struct {
	notes

	store  *store
	tables map[string]*table
	// why explains why the rows are not enough, so that a checkpoint is needed.
	why []string
	// takes reports, where rows are not enough, that a row that was there goes or changes.
	takes bool
	// volatile are the functions that the statements call and that have another value each time.
	volatile []string
}

// needsCheckpoint reports that statements cannot be undone by rows.
type needsCheckpoint struct{ why []string }

func (e *needsCheckpoint) Error() string { return strings.Join(e.why, "; ") }

// execute runs the statements in a transaction and captures rows; if rows are not enough, it copies
// the whole file and runs them again. end rolls everything back.
func (c *call) execute(ctx context.Context, d *database, p execParams, attempt string) (e *effect, end func(),
	err error) {
	if err := d.run(fmt.Sprintf("PRAGMA foreign_keys = %t", p.enforcesKeys())); err != nil {
		return nil, nil, err
	}
	var why []string
	for {
		if end, err = d.begin(); err != nil {
			return nil, nil, err
		}
		if err = c.token.CheckOpen(); err == nil {
			c.reach("locked")
			e, err = c.executeOnce(ctx, d, p, attempt, why)
		}
		if err == nil {
			return e, end, nil
		}
		end()
		var checkpoint *needsCheckpoint
		if !errors.As(err, &checkpoint) || why != nil {
			return nil, nil, errors.Join(explain(d.path, err), c.removeFiles())
		}
		why = checkpoint.why
	}
}

// executeOnce runs the statements in an open transaction; with why, after a checkpoint.
func (c *call) executeOnce(ctx context.Context, d *database, p execParams, attempt string, why []string) (_ *effect,
	err error) {
	e := &effect{why: why}
	if e.tables, err = d.tables(); err != nil {
		return nil, err
	}
	before, err := d.counters()
	if err != nil {
		return nil, err
	}
	if err := os.Remove(c.rowsFile(attempt)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if e.store, err = newStore(c.rowsFile(attempt)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.store.Close()
		}
	}()
	var unseen error
	if why == nil {
		stop := watch(d.Conn, func(r rowChange) { unseen = errors.Join(unseen, e.noteChange(r)) })
		defer stop()
	} else {
		stop := watch(d.Conn, e.noteTaking)
		defer stop()
		if e.Before, err = d.content(); err != nil {
			return nil, err
		}
		if c.Op != isolated.Plan {
			if e.Checkpoint, err = c.takeCheckpoint(ctx, d, c.checkpointFile(attempt)); err != nil {
				return nil, err
			}
			c.reach("copied")
		}
	}
	if err := e.runAll(d, p, &unseen); err != nil {
		return nil, err
	}
	if why != nil {
		// Full-text tables write what they have in memory at a savepoint, or else at the commit.
		if err = errors.Join(d.run("SAVEPOINT written"), d.run("RELEASE written")); err != nil {
			return nil, err
		}
		if e.After, err = d.content(); err != nil {
			return nil, err
		}
		if c.Op != isolated.Plan {
			if err = e.noteLeft(d); err != nil {
				return nil, err
			}
		}
	} else if err = e.store.complete(d, e.tables); err != nil {
		return nil, err
	}
	after, err := d.counters()
	if err != nil {
		return nil, err
	}
	e.Counters = compareCounters(before, after)
	e.Private = c.Private
	return e, e.noteTables()
}

// noteChange stores a row as it was. It is called in the middle of a statement.
func (e *effect) noteChange(r rowChange) error {
	if strings.EqualFold(r.table, markers) {
		return nil
	}
	t := e.tables[lower(r.table)]
	if t == nil || t.unfit != "" {
		return &needsCheckpoint{[]string{"it changes " + r.table}}
	}
	before, after, err := t.changed(r)
	if err != nil {
		return err
	}
	if before != nil {
		if err := e.store.note(t, t.keyOf(before), before); err != nil {
			return err
		}
	}
	if after == nil || before != nil && equal(t.keyOf(before), t.keyOf(after)) {
		return nil
	}
	return e.store.note(t, t.keyOf(after), nil)
}

// noteTaking notes that a row goes or changes, whatever the statement is called: an INSERT can have
// a trigger that deletes. A full-text table rewrites rows of its own for each that is inserted.
func (e *effect) noteTaking(r rowChange) {
	t := e.tables[lower(r.table)]
	e.takes = e.takes || r.op != sqlite.OpInsert && t != nil && !t.isShadow
}

// noteTaken notes that rows of virtual tables may go or change: none of them is seen to.
func (e *effect) noteTaken(tables map[string]bool) {
	for name := range tables {
		t := e.tables[name]
		e.takes = e.takes || t != nil && t.unfit != "" && !t.isShadow
	}
}

// runAll runs the statements and collects what they return.
func (e *effect) runAll(d *database, p execParams, unseen *error) error {
	rows, changes := []map[string]any{}, int64(0)
	for n, s := range p.Statements {
		mine := int64(0)
		for text := strings.TrimSpace(s.SQL); text != ""; {
			rest, changed, err := e.runOne(d, text, s, &rows)
			err = errors.Join(*unseen, err)
			if checkpoint := (*needsCheckpoint)(nil); errors.As(err, &checkpoint) {
				return checkpoint
			}
			if err != nil {
				return wrapStatement(n+1, len(p.Statements), explain(d.path, err))
			}
			mine += changed
			text = rest
		}
		if s.Changes != nil && mine != *s.Changes {
			return wrapStatement(n+1, len(p.Statements),
				activities.Errorf(activities.ActionDenied, "it changes %s, and changes says %d; nothing was changed",
					activities.CountOf(mine, "row"), *s.Changes))
		}
		changes += mine
	}
	if len(rows) > maxRows {
		rows = rows[:maxRows]
	}
	e.Result = activities.Result{Outputs: map[string]any{"changes": changes, "rows": rows}}
	return nil
}

// maxRows is how many returned rows are outputs.
const maxRows = 100

// runOne runs the first statement of a text and returns the rest.
func (e *effect) runOne(d *database, text string, s statement, rows *[]map[string]any) (rest string, changes int64,
	err error) {
	disarm := d.armToWrite()
	defer disarm()
	q, trailing, err := d.PrepareTransient(text)
	if d.denied != "" {
		err = activities.Errorf(activities.Refused, "%s", d.denied)
	}
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = q.Finalize() }() // the same error as that of the last step
	rest = strings.TrimSpace(text[len(text)-trailing:])
	if s.Params != nil && rest != "" {
		return "", 0, activities.Errorf(activities.Refused, "params: they belong to one statement, and there are several")
	}
	if e.why == nil {
		why := slices.Clone(d.schema)
		for name := range d.touched {
			if t := e.tables[name]; t != nil && t.unfit != "" {
				why = append(why, t.unfit)
			}
		}
		if len(why) > 0 {
			return "", 0, &needsCheckpoint{why}
		}
	}
	e.noteTaken(d.taken)
	if err := e.noteVolatile(d, q, text[:len(text)-trailing], s.Params); err != nil {
		return "", 0, err
	}
	if err := bind(q, s.Params); err != nil {
		return "", 0, err
	}
	if q.ColumnCount() > 0 {
		*rows = []map[string]any{}
	}
	for {
		more, err := q.Step()
		if sqlite.ErrCode(err) == sqlite.ResultMisuse {
			return rest, 0, nil // a comment
		}
		if d.denied != "" {
			err = activities.Errorf(activities.Refused, "%s", d.denied)
		}
		if err != nil {
			return "", 0, err
		}
		if !more {
			break
		}
		if len(*rows) <= maxRows {
			row, _ := output(q)
			*rows = append(*rows, row)
		}
	}
	if len(d.touched) > 0 && len(d.schema) == 0 {
		changes = int64(d.Changes())
	}
	return rest, changes, nil
}

func wrapStatement(n, of int, err error) error {
	if e, ok := errors.AsType[*activities.Error](err); ok && of > 1 {
		return activities.Errorf(e.Type, "statement %d: %s", n, e.Message)
	}
	return err
}

// noteTables notes how the tables whose rows were changed are defined.
func (e *effect) noteTables() error {
	e.Tables = map[string]string{}
	return run(e.store.Conn, "SELECT DISTINCT tbl FROM rows", nil, func(q *sqlite.Stmt) error {
		name := q.ColumnText(0)
		e.Tables[name] = e.tables[lower(name)].sql
		return nil
	})
}

// counters are those of AUTOINCREMENT, by table.
func (d *database) counters() (map[string]int64, error) {
	all := map[string]int64{}
	there, err := d.number("SELECT count(*) FROM sqlite_schema WHERE name = 'sqlite_sequence'")
	if err != nil || there == 0 {
		return all, err
	}
	return all, run(d.Conn, "SELECT name, seq FROM sqlite_sequence", nil, func(q *sqlite.Stmt) error {
		all[q.ColumnText(0)] = q.ColumnInt64(1)
		return nil
	})
}

func compareCounters(before, after map[string]int64) map[string]counter {
	changed := map[string]counter{}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after))) {
		if c := (counter{counterOf(before, name), counterOf(after, name)}); !c.Before.equal(c.After) {
			changed[name] = c
		}
	}
	return changed
}

// putCounters puts the counters back that were as the step left them when the undo found them, and
// all others to what it found: rows that an undo inserts move counters too.
func (d *database) putCounters(found map[string]int64, changed map[string]counter) error {
	now, err := d.counters()
	if err != nil {
		return err
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(found)), slices.Collect(maps.Keys(now))) {
		want := counterOf(found, name)
		if c, isChanged := changed[name]; isChanged && want.equal(c.After) {
			want = c.Before
		}
		switch is := counterOf(now, name); {
		case want.equal(is):
		case want == nil:
			err = d.run("DELETE FROM sqlite_sequence WHERE name = ?", name)
		case is == nil:
			err = d.run("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", name, int64(*want))
		default:
			err = d.run("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", int64(*want), name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// digest covers the statements and the rows that they change.
func (c *call) digest(d *database, e *effect) (activities.Digest, error) {
	var with bytes.Buffer
	if err := json.Compact(&with, c.Step.With); err != nil {
		return "", err
	}
	h := sha256.New()
	add := func(parts ...[]byte) {
		for _, part := range parts {
			fmt.Fprintf(h, "%d:", len(part))
			h.Write(part)
		}
	}
	add(with.Bytes(), []byte(d.path), []byte(e.Before.digest()))
	isVolatile := len(e.volatile) > 0
	for _, name := range slices.Sorted(maps.Keys(e.Tables)) {
		add([]byte(e.Tables[name]))
	}
	err := e.store.each(func(i images) error {
		add([]byte(i.table), []byte(i.change()), encode(i.key), encode(i.before))
		if !isVolatile {
			add(encode(i.after))
		}
		return nil
	})
	if !isVolatile {
		add([]byte(e.After.digest()))
	}
	return activities.Digest("sha256:" + hex.EncodeToString(h.Sum(nil))), err
}

func lower(s string) string { return strings.ToLower(s) }
