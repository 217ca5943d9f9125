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
	h := sha256.New()
	err = run(d.Conn,
		"SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema WHERE tbl_name <> ? ORDER BY rowid",
		[]any{markers},
		func(q *sqlite.Stmt) error {
			h.Write(encode(rowOf(q)))
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
	}
	c = content{Schema: hex.EncodeToString(h.Sum(nil)), Tables: map[string]rowsOf{}}
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

// compareContent describes the differences, a line for each table.
func compareContent(from, to content) (lines []string) {
	if from.Schema != to.Schema {
		lines = append(lines, "~ the schema")
	}
	names := slices.Sorted(maps.Keys(from.Tables))
	for name := range to.Tables {
		if _, there := from.Tables[name]; !there {
			names = append(names, name)
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
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
	return lines
}

// pagesAtOnce is how many pages are copied before the context is checked again.
const pagesAtOnce = 1000

// takeCheckpoint copies a database that the caller's transaction has not changed yet, and that
// nobody else can, to a new file. It returns the digest of that. A connection that is writing
// cannot be copied from, so it takes another.
func (w *world) takeCheckpoint(ctx context.Context, path, to string) (digest string, err error) {
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	from, err := w.open(path)
	if err != nil {
		return "", err
	}
	defer from.Close()
	copied, err := openConnection(to, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return "", err
	}
	for _, pragma := range []string{"PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF"} {
		err = errors.Join(err, run(copied.Conn, pragma, nil, nil))
	}
	if err == nil {
		err = transfer(ctx, copied.Conn, from.Conn, nil)
	}
	if err = errors.Join(err, copied.Close()); err != nil {
		return "", fmt.Errorf("copying %s to %s: %w", path, to, err)
	}
	return durable.DigestFile(to, fsync)
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
