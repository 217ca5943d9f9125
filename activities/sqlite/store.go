package sqlite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"zombiezen.com/go/sqlite"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// store is the undo data of one attempt of a forward: a database of its own in the token's folder,
// with a row for each row that the attempt has changed. Its digest stands in the database that was
// changed, committed with the change.
type store struct {
	connection

	path string
}

// images is a row before and after; nil: it is not there.
type images struct {
	table              string
	key, before, after []any
}

// change is the kind of a change.
func (i images) change() string {
	switch {
	case i.before == nil:
		return "+"
	case i.after == nil:
		return "-"
	}
	return "~"
}

// notes is what a store holds beside rows.
type notes struct {
	Result activities.Result `json:"result"`
	// Tables are the definitions of the tables that were changed.
	Tables map[string]string `json:"tables,omitempty"`
	// Counters are those of AUTOINCREMENT before and after, as far as they were changed.
	Counters map[string]counter `json:"counters,omitempty"`
	// Private says that no value may be shown.
	Private bool `json:"private,omitempty"`
	// Checkpoint is the digest of the copy of the whole file; empty: the rows tell everything. Before
	// and After are the contents.
	Checkpoint string  `json:"checkpoint,omitempty"`
	Before     content `json:"before,omitzero"`
	After      content `json:"after,omitzero"`
}

type counter struct {
	Before *position `json:"before"`
	After  *position `json:"after"`
}

// position is the value of a counter; nil where a table has none.
type position int64

func (p *position) equal(o *position) bool {
	return p == nil && o == nil || p != nil && o != nil && *p == *o
}

func counterOf(all map[string]int64, name string) *position {
	n, there := all[name]
	if !there {
		return nil
	}
	p := position(n)
	return &p
}

// newStore makes an empty store. It need not survive a crash before it is sealed.
func newStore(path string) (*store, error) {
	conn, err := openConnection(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return nil, err
	}
	s := &store{conn, path}
	for _, sql := range []string{
		"PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", "BEGIN",
		"CREATE TABLE rows (tbl TEXT, key BLOB, before BLOB, after BLOB, PRIMARY KEY (tbl, key)) WITHOUT ROWID",
		"CREATE TABLE left_rows (tbl TEXT, key BLOB, digest TEXT, PRIMARY KEY (tbl, key)) WITHOUT ROWID",
		"CREATE TABLE notes (notes TEXT)",
	} {
		if err := run(s.Conn, sql, nil, nil); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// note stores a row as it was before its first change.
func (s *store) note(t *table, key, before []any) error {
	return run(s.Conn, "INSERT OR IGNORE INTO rows VALUES (?, ?, ?, NULL)",
		[]any{t.name, encode(key), encodeOrNil(before)}, nil)
}

// has reports whether a row is one of before or after.
func (s *store) has(t *table, row []any) (is bool, err error) {
	return is, run(s.Conn, "SELECT before IS ?3 OR after IS ?3 FROM rows WHERE tbl = ?1 AND key = ?2",
		[]any{t.name, encode(t.keyOf(row)), encode(row)},
		func(q *sqlite.Stmt) error { is = q.ColumnBool(0); return nil })
}

func encodeOrNil(row []any) any {
	if row == nil {
		return nil
	}
	return encode(row)
}

// complete reads the rows as they are now and drops those that are as before.
func (s *store) complete(d *database, tables map[string]*table) error {
	last := images{}
	for {
		batch, err := s.batch(last)
		if err != nil || len(batch) == 0 {
			return errors.Join(err, run(s.Conn, "DELETE FROM rows WHERE before IS after", nil, nil))
		}
		for _, i := range batch {
			now, err := tables[lower(i.table)].read(d, i.key)
			if err != nil {
				return err
			}
			if err := run(s.Conn, "UPDATE rows SET after = ? WHERE tbl = ? AND key = ?",
				[]any{encodeOrNil(now), i.table, encode(i.key)}, nil); err != nil {
				return err
			}
		}
		last = batch[len(batch)-1]
	}
}

// batchSize bounds how many rows are in memory at once.
const batchSize = 500

// batch reads the rows that follow one, in the order of table and key.
func (s *store) batch(after images) (batch []images, err error) {
	err = run(s.Conn, "SELECT tbl, key, before, after FROM rows WHERE (tbl, key) > (?, ?) ORDER BY tbl, key LIMIT ?",
		[]any{after.table, encode(after.key), int64(batchSize)}, func(q *sqlite.Stmt) (err error) {
			i := images{table: q.ColumnText(0)}
			for n, into := range []*[]any{&i.key, &i.before, &i.after} {
				raw, there := column(q, n+1).([]byte)
				if !there {
					continue
				}
				row, derr := decode(raw)
				if row == nil {
					row = []any{}
				}
				*into, err = row, errors.Join(err, derr)
			}
			batch = append(batch, i)
			return err
		})
	return batch, err
}

// each calls f for each row.
func (s *store) each(f func(images) error) error {
	for last := (images{}); ; {
		batch, err := s.batch(last)
		if err != nil || len(batch) == 0 {
			return err
		}
		for _, i := range batch {
			if err := f(i); err != nil {
				return err
			}
		}
		last = batch[len(batch)-1]
	}
}

// seal writes the notes, and makes the store durable; its digest is what an undo trusts.
func (s *store) seal(n notes) (digest string, err error) {
	raw, err := json.Marshal(n)
	if err != nil {
		return "", err
	}
	err = run(s.Conn, "INSERT INTO notes VALUES (?)", []any{string(raw)}, nil)
	if err == nil {
		err = run(s.Conn, "COMMIT", nil, nil)
	}
	if err := errors.Join(err, s.Close()); err != nil {
		return "", fmt.Errorf("%s: %w", s.path, err)
	}
	return durable.DigestFile(s.path, fsync)
}

// fsync is replaced by a test that checks when it is called.
var fsync = (*os.File).Sync

// openStore opens a sealed store whose content has this digest.
func openStore(path, digest string) (_ *store, n notes, err error) {
	if err := checkFile(path, digest); err != nil {
		return nil, n, err
	}
	return readStore(path)
}

// readStore opens a store whose digest nobody knows.
func readStore(path string) (_ *store, n notes, err error) {
	conn, err := openConnection(path, sqlite.OpenReadOnly)
	if err != nil {
		return nil, n, err
	}
	s := &store{conn, path}
	err = run(s.Conn, "SELECT notes FROM notes", nil,
		func(q *sqlite.Stmt) error { return json.Unmarshal([]byte(q.ColumnText(0)), &n) })
	if err != nil {
		return nil, n, errors.Join(damaged(path, err), s.Close())
	}
	return s, n, nil
}

var errChanged = errors.New("its content is not what the step has written")

// checkFile returns DamagedRecord unless a file has the digest.
func checkFile(path, digest string) error {
	now, err := durable.DigestFile(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return damaged(path, errors.New("it is gone"))
	}
	if err == nil && now != digest {
		return damaged(path, errChanged)
	}
	return err
}

func damaged(path string, why error) error {
	return activities.Errorf(activities.DamagedRecord,
		"%s: %v; nothing was touched: put it back, or decide what becomes of the step", path, why)
}

func equal(a, b []any) bool { return (a == nil) == (b == nil) && bytes.Equal(encode(a), encode(b)) }
