package sqlite

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// content is what a database holds besides the marks of steps, as a digest for each table.
type content struct {
	// Schema is the digest of all definitions, in order, and of the settings in the header.
	Schema string `json:"schema"`
	// Objects are the digests of the definitions, by kind and name.
	Objects map[string]string `json:"objects,omitempty"`
	// Settings are those in the header.
	Settings map[string]int64 `json:"settings,omitempty"`
	// Tables are the rows of each table.
	Tables map[string]rowsOf `json:"tables"`
}

type rowsOf struct {
	Rows   int64  `json:"rows"`
	Digest string `json:"digest"`
}

func (c content) digest() string {
	var b strings.Builder
	b.WriteString(c.Schema)
	for _, name := range slices.Sorted(maps.Keys(c.Tables)) {
		fmt.Fprintf(&b, "%q %+v\n", name, c.Tables[name])
	}
	return b.String()
}

// content reads the whole database.
func (d *database) content() (c content, err error) {
	tables, err := d.tables()
	if err != nil {
		return c, err
	}
	c = content{Objects: map[string]string{}, Settings: map[string]int64{}, Tables: map[string]rowsOf{}}
	h := sha256.New()
	err = run(d.Conn,
		"SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema WHERE tbl_name <> ? ORDER BY rowid",
		[]any{markers},
		func(q *sqlite.Stmt) error {
			definition := encode(rowOf(q))
			h.Write(definition)
			if q.ColumnText(3) != "" { // else an index that comes with its table
				c.Objects[q.ColumnText(0)+" "+q.ColumnText(1)] = string(activities.DigestOf(definition))
			}
			return nil
		})
	if err != nil {
		return c, err
	}
	for pragma := range strings.FieldsSeq(settingPragmas) {
		n, err := d.number("PRAGMA " + pragma)
		if err != nil {
			return c, err
		}
		fmt.Fprintln(h, pragma, n)
		c.Settings[pragma] = n
	}
	c.Schema = hex.EncodeToString(h.Sum(nil))
	for _, t := range tables {
		if t.name == markers || strings.HasPrefix(lower(t.sql), "create virtual") {
			continue // the shadow tables that hold its rows are read instead
		}
		if c.Tables[t.name], err = t.content(d); err != nil {
			return c, fmt.Errorf("table %s: %w", t.name, err)
		}
	}
	return c, nil
}

func (t *table) content(d *database) (r rowsOf, err error) {
	list := "*"
	if t.rowid != "" {
		list = quote(t.rowid) + ", *"
	}
	h := sha256.New()
	err = run(d.Conn, "SELECT "+list+" FROM "+t.target()+" NOT INDEXED", nil, func(q *sqlite.Stmt) error {
		r.Rows++
		row := encode(rowOf(q))
		fmt.Fprintf(h, "%d:", len(row))
		h.Write(row)
		return nil
	})
	r.Digest = hex.EncodeToString(h.Sum(nil))
	return r, err
}

// namesOf are the names in either of two maps, sorted.
func namesOf[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// compareSchema describes the definitions and settings that differ, a line for each. Tables that
// are new or gone are described by their rows.
func compareSchema(from, to content) (lines []string) {
	for _, name := range namesOf(from.Objects, to.Objects) {
		was, is := from.Objects[name], to.Objects[name]
		table, _ := strings.CutPrefix(name, "table ")
		_, had := from.Tables[table]
		_, has := to.Tables[table]
		switch {
		case was == is:
		case was != "" && is != "":
			lines = append(lines, "~ "+name+": defined in another way")
		case was == "" && !has:
			lines = append(lines, "+ "+name)
		case is == "" && !had:
			lines = append(lines, "- "+name)
		}
	}
	for _, name := range namesOf(from.Settings, to.Settings) {
		if was, is := from.Settings[name], to.Settings[name]; was != is {
			lines = append(lines, fmt.Sprintf("~ PRAGMA %s: %d -> %d", name, was, is))
		}
	}
	return lines
}

// compareContent describes the differences, a line for each.
func compareContent(from, to content) []string {
	lines := compareSchema(from, to)
	for _, name := range namesOf(from.Tables, to.Tables) {
		a, had := from.Tables[name]
		b, has := to.Tables[name]
		switch {
		case !had:
			lines = append(lines, fmt.Sprintf("+ table %s (%s)", name, activities.CountOf(b.Rows, "row")))
		case !has:
			lines = append(lines, fmt.Sprintf("- table %s (%s)", name, activities.CountOf(a.Rows, "row")))
		case a != b:
			lines = append(lines,
				fmt.Sprintf("~ table %s (%s -> %s)", name, activities.CountOf(a.Rows, "row"), activities.CountOf(b.Rows, "row")))
		}
	}
	if len(lines) == 0 && from.Schema != to.Schema {
		lines = append(lines, "~ the order of the schema")
	}
	return lines
}

// pagesAtOnce is how many pages are copied before the context is checked again.
const pagesAtOnce = 1000

// takeCheckpoint copies a database that the caller's transaction has not changed yet, and that
// nobody else can. A connection that is writing cannot be copied from, so it takes another.
func (w *world) takeCheckpoint(ctx context.Context, d *database, to string) (digest string, err error) {
	from, err := w.open(d.path)
	if err != nil {
		return "", err
	}
	defer from.Close()
	return from.copyTo(ctx, to)
}

// copyTo copies the database to a new file, durably, and returns the digest of that.
func (d *database) copyTo(ctx context.Context, to string) (digest string, err error) {
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	copied, err := openConnection(to, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return "", err
	}
	for _, pragma := range []string{"PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF"} {
		err = errors.Join(err, run(copied.Conn, pragma, nil, nil))
	}
	if err == nil {
		err = transfer(ctx, copied.Conn, d.Conn, nil)
	}
	if err = errors.Join(err, copied.Close()); err != nil {
		return "", fmt.Errorf("copying %s to %s: %w", d.path, to, err)
	}
	return durable.DigestFile(to, fsync)
}

// overwrite makes a database what a copy holds, in one transaction. judge gets a connection that
// reads the database once nobody else can write it; with an error of judge nothing is touched.
func (w *world) overwrite(ctx context.Context, d *database, from *sqlite.Conn,
	judge func(reader *database) error) error {
	wal, err := d.isWAL()
	if err != nil {
		return err
	}
	if wal {
		if err := d.checkPages(from); err != nil {
			return err
		}
		// Only one connection can write, and others can read meanwhile.
		reader, err := w.open(d.path)
		if err != nil {
			return err
		}
		defer reader.Close()
		return transfer(ctx, d.Conn, from, func() error { return judge(reader) })
	}
	// Nobody else can even read, until this connection is closed.
	for _, sql := range []string{"PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE", "COMMIT"} {
		if err := d.run(sql); err != nil {
			return err
		}
	}
	if err := judge(d); err != nil {
		return err
	}
	return transfer(ctx, d.Conn, from, nil)
}

func (d *database) isWAL() (is bool, err error) {
	return is, run(d.Conn, "PRAGMA journal_mode", nil,
		func(q *sqlite.Stmt) error { is = q.ColumnText(0) == "wal"; return nil })
}

// checkPages refuses a copy whose pages have another size: that cannot change in WAL mode.
func (d *database) checkPages(from *sqlite.Conn) error {
	is, err := d.number("PRAGMA page_size")
	if err != nil {
		return err
	}
	want, err := (&database{connection: connection{from}}).number("PRAGMA page_size")
	if err == nil && is != want {
		err = activities.Errorf(activities.Refused,
			"%s has another page size by now, %d in place of %d, and that cannot change in WAL mode; leave it for the time "+
				"being (PRAGMA journal_mode = DELETE)", d.path, is, want)
	}
	return err
}

// transfer makes one database a copy of another, in one transaction. locked is called once nobody
// else can write the target.
func transfer(ctx context.Context, to, from *sqlite.Conn, locked func() error) error {
	b, err := sqlite.NewBackup(to, "", from, "")
	if err != nil {
		return err
	}
	defer b.Close()
	if locked != nil {
		if _, err := b.Step(0); err != nil {
			return err
		}
		if err := locked(); err != nil {
			return err
		}
	}
	for {
		more, err := b.Step(pagesAtOnce)
		if err != nil || !more {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// openCopy opens a checkpoint, a file that nobody changes: without locks or a log.
func openCopy(path string) (connection, error) {
	u := url.URL{Scheme: "file", Path: path, RawQuery: "immutable=1"}
	return openConnection(u.String(), sqlite.OpenReadOnly|sqlite.OpenURI)
}
