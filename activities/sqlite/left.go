package sqlite

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/seed-62bf7108/unwind/activities"
)

// A step that is undone by a checkpoint keeps a digest of each row as it left it, of the tables
// that it has changed; the others are in the checkpoint. So drift is shown row by row here too.

// leftRow is a row as the step left it.
type leftRow struct {
	key []any
	// row is nil where only the digest is known.
	row    []any
	digest activities.Digest
}

func digestRow(row []any) activities.Digest { return activities.DigestOf(encode(row)) }

// hasRows reports whether the rows of a table can be told apart.
func (t *table) hasRows() bool { return t.unfit == "" && t.name != markers }

// each reads all rows of a table.
func (t *table) each(d *database, f func(row []any) error) error {
	return run(d.Conn, "SELECT "+t.list()+" FROM "+t.target(), nil, func(s *sqlite.Stmt) error { return f(rowOf(s)) })
}

// noteLeft notes the rows of the tables that the step has changed.
func (e *effect) noteLeft(d *database) error {
	tables, err := d.tables()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		t := tables[name]
		if !t.hasRows() || e.After.Tables[t.name] == e.Before.Tables[t.name] {
			continue
		}
		err := t.each(d, func(row []any) error {
			return run(e.store.Conn, "INSERT INTO left_rows VALUES (?, ?, ?)",
				[]any{t.name, encode(t.keyOf(row)), string(digestRow(row))}, nil)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// leftRows are the rows of a table as the step left them.
type leftRows interface {
	each(f func(leftRow) error) error
	has(key []any) (bool, error)
}

// notedRows are those of a table that the step has changed.
type notedRows struct {
	*store
	table *table
}

func (n notedRows) each(f func(leftRow) error) error {
	return run(n.Conn, "SELECT key, digest FROM left_rows WHERE tbl = ?", []any{n.table.name}, func(s *sqlite.Stmt) error {
		raw, _ := column(s, 0).([]byte)
		key, err := decode(raw)
		if err != nil {
			return err
		}
		return f(leftRow{key: key, digest: activities.Digest(s.ColumnText(1))})
	})
}

func (n notedRows) has(key []any) (found bool, err error) {
	return found,
		run(n.Conn, "SELECT 1 FROM left_rows WHERE tbl = ? AND key = ?", []any{n.table.name, encode(key)},
			func(*sqlite.Stmt) error {
				found = true
				return nil
			})
}

// copiedRows are those of a table that the step has not changed, in the checkpoint.
type copiedRows struct {
	*database
	table *table
}

func (c copiedRows) each(f func(leftRow) error) error {
	return c.table.each(c.database, func(row []any) error { return f(leftRow{c.table.keyOf(row), row, digestRow(row)}) })
}

func (c copiedRows) has(key []any) (bool, error) {
	row, err := c.table.read(c.database, key)
	return row != nil, err
}

// compareCheckpoint finds what is not as the step left it, by its content now.
func (r *restore) compareCheckpoint(reader *database, now content) error {
	differs := compareContent(r.notes.After, now)
	r.drift = append(r.drift, differs...)
	if len(differs) == 0 || now.Schema != r.notes.After.Schema {
		return nil
	}
	tables, err := reader.tables()
	if err != nil {
		return err
	}
	from, err := openCopy(r.checkpointFile(r.mark.Attempt))
	if err != nil {
		return err
	}
	defer from.Close()
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		t := tables[name]
		left := r.notes.After.Tables[t.name]
		if !t.hasRows() || now.Tables[t.name] == left {
			continue
		}
		var rows leftRows = notedRows{r.store, t}
		if r.notes.Before.Tables[t.name] == left {
			rows = copiedRows{&database{connection: from}, t}
		}
		if err := r.compareTable(reader, t, rows); err != nil {
			return fmt.Errorf("table %s: %w", t.name, err)
		}
	}
	return nil
}

// compareTable finds the rows of a table that are not as the step left them.
func (r *restore) compareTable(reader *database, t *table, left leftRows) error {
	more := int64(0)
	add := func(l leftRow, now []any) {
		if len(r.drift) < shownRows-2 { // that many are shown, with the two lines that follow
			r.drift = append(r.drift, r.describeLeft(t, l, now))
		} else {
			more++
		}
	}
	err := left.each(func(l leftRow) error {
		now, err := t.read(reader, l.key)
		if err == nil && (now == nil || digestRow(now) != l.digest) {
			add(l, now)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = t.each(reader, func(row []any) error {
		key := t.keyOf(row)
		had, err := left.has(key)
		if err == nil && !had {
			add(leftRow{key: key}, row)
		}
		return err
	})
	if more > 0 {
		r.drift = append(r.drift, fmt.Sprintf("... and %s of %s", activities.CountOf(more, "more row"), t.name))
	}
	return err
}

// describeLeft describes a row as it is and, as far as that is known, as the step left it.
func (r *restore) describeLeft(t *table, l leftRow, now []any) string {
	isUnknown := l.row == nil && l.digest != ""
	switch {
	case isUnknown && now == nil:
		var line strings.Builder
		line.WriteString("- " + t.name)
		for n, at := range t.key {
			line.WriteString(" " + t.names[at] + "=" + literal(l.key[n], r.notes.Private))
		}
		return line.String()
	case isUnknown:
		return "~" + strings.TrimPrefix(r.describeDrift(t, l.key, nil, now), "+")
	}
	return r.describeDrift(t, l.key, l.row, now)
}
