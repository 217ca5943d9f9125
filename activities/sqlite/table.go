package sqlite

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
)

// table is what one has to know about a table to read and write its rows exactly.
type table struct {
	name, sql string
	// names are what a row is made of: the rowid, where the table has one, and the columns, but for
	// those that are generated.
	names []string
	// numbers are the columns' numbers in the table; the rowid has none.
	numbers []int
	// real says which of the columns turn integers into floating-point numbers: in the file these stay
	// integers.
	real []bool
	// rowid is the name by which the rowid is read; empty: the table has none.
	rowid string
	// key says where the key stands in names.
	key []int
	// foreign says that its rows refer to others.
	foreign bool
	// unfit explains why its rows are not enough to undo a change.
	unfit string
	// isShadow says that a virtual table keeps its own in it.
	isShadow bool
}

// quote quotes a name.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// tables reads the tables of the database, by their names in lower case.
func (d *database) tables() (map[string]*table, error) {
	all := map[string]*table{}
	withoutRowid := map[string]bool{}
	err := run(d.Conn, `SELECT l.name, l.type, l.wr, coalesce(s.sql, '') FROM pragma_table_list l
		JOIN sqlite_schema s ON s.type = 'table' AND s.name = l.name WHERE l.schema = 'main' AND l.type <> 'view'`, nil,
		func(s *sqlite.Stmt) error {
			t := &table{name: s.ColumnText(0), sql: s.ColumnText(3), isShadow: s.ColumnText(1) == "shadow"}
			switch {
			case s.ColumnText(1) == "virtual":
				t.unfit = "it changes the virtual table " + t.name
			case strings.HasPrefix(strings.ToLower(t.name), "sqlite_"):
				t.unfit = "it changes " + t.name + ", which belongs to SQLite"
			}
			all[strings.ToLower(t.name)], withoutRowid[t.name] = t, s.ColumnInt(2) == 1
			return nil
		})
	for _, t := range all {
		if err == nil && t.unfit == "" {
			err = t.readColumns(d, withoutRowid[t.name])
		}
	}
	return all, err
}

func (t *table) readColumns(d *database, withoutRowid bool) error {
	type column struct {
		name, kind string
		number, pk int
		generated  bool
	}
	var columns []column
	primary := map[int]int{}
	err := run(d.Conn, "SELECT name, type, cid, pk, hidden FROM pragma_table_xinfo(?)", []any{t.name},
		func(s *sqlite.Stmt) error {
			c := column{s.ColumnText(0), s.ColumnText(1), s.ColumnInt(2), s.ColumnInt(3), s.ColumnInt(4) > 1}
			columns = append(columns, c)
			if c.pk > 0 {
				primary[c.pk] = len(columns) - 1
			}
			return nil
		})
	if err != nil {
		return err
	}
	keys, err := d.number("SELECT count(*) FROM pragma_foreign_key_list(?)", t.name)
	if err != nil {
		return err
	}
	t.foreign = keys > 0
	alias := -1 // the column that is the rowid
	if !withoutRowid {
		indexed, err := d.number("SELECT count(*) FROM pragma_index_list(?) WHERE origin = 'pk'", t.name)
		if err != nil {
			return err
		}
		if i, found := primary[1]; found && len(primary) == 1 && indexed == 0 &&
			strings.EqualFold(columns[i].kind, "INTEGER") {
			alias, t.rowid = i, columns[i].name
		}
		for _, name := range []string{"rowid", "_rowid_", "oid"} {
			taken := slices.ContainsFunc(columns, func(c column) bool { return strings.EqualFold(c.name, name) })
			if t.rowid == "" && !taken {
				t.rowid = name
			}
		}
		if t.rowid == "" {
			t.unfit = "it changes " + t.name + ", whose columns hide the rowid"
			return nil
		}
		t.names, t.key = []string{t.rowid}, []int{0}
	}
	at := map[int]int{}
	for i, c := range columns {
		if i != alias && !c.generated {
			at[i] = len(t.names)
			t.names, t.numbers, t.real = append(t.names, c.name), append(t.numbers, c.number), append(t.real, isReal(c.kind))
		}
	}
	if withoutRowid {
		for n := 1; n <= len(primary); n++ {
			t.key = append(t.key, at[primary[n]])
		}
	}
	return nil
}

// isReal reports whether a column of this type has REAL affinity, by the rules of SQLite.
func isReal(kind string) bool {
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(strings.ToUpper(kind), part) })
	}
	return !has("INT", "CHAR", "CLOB", "TEXT", "BLOB") && has("REAL", "FLOA", "DOUBLE")
}

// list is the names of a row, quoted; the rowid's too, which is no column.
func (t *table) list() string {
	quoted := make([]string, len(t.names))
	for i, name := range t.names {
		quoted[i] = quote(name)
	}
	return strings.Join(quoted, ", ")
}

// where finds a row by its key.
func (t *table) where() string {
	parts := make([]string, len(t.key))
	for i, at := range t.key {
		parts[i] = quote(t.names[at]) + " = ?"
	}
	return " WHERE " + strings.Join(parts, " AND ")
}

func (t *table) target() string { return "main." + quote(t.name) }

// read reads the row with a key; nil: there is none.
func (t *table) read(d *database, key []any) (row []any, err error) {
	row, _, err = t.find(d, key)
	return row, err
}

// find reads the row with a key, or its twin: a row whose key is another, and equal to it by
// collation or type ('Bob' and 'BOB', 1 and 1.0).
func (t *table) find(d *database, key []any) (row, twin []any, err error) {
	err = run(d.Conn, "SELECT "+t.list()+" FROM "+t.target()+t.where(), key, func(s *sqlite.Stmt) error {
		if found := rowOf(s); equal(t.keyOf(found), key) {
			row = found
		} else {
			twin = found
		}
		return nil
	})
	return row, twin, err
}

func rowOf(s *sqlite.Stmt) (row []any) {
	for i := range s.ColumnCount() {
		row = append(row, column(s, i))
	}
	return row
}

// delete deletes the row with a key, and no twin.
func (t *table) delete(d *database, key []any) error {
	if row, err := t.read(d, key); err != nil || row == nil {
		return err
	}
	return d.run("DELETE FROM "+t.target()+t.where(), key...)
}

// put writes a row, in place of those that would conflict with it.
func (t *table) put(d *database, row []any) error {
	marks := strings.TrimSuffix(strings.Repeat("?, ", len(row)), ", ")
	return d.run("INSERT OR REPLACE INTO "+t.target()+" ("+t.list()+") VALUES ("+marks+")", row...)
}

func (t *table) keyOf(row []any) (key []any) {
	for _, at := range t.key {
		key = append(key, row[at])
	}
	return key
}

// changed is a row before and after a change, as the hook sees it.
func (t *table) changed(r rowChange) (before, after []any, err error) {
	side := func(isBefore bool, rowid int64) ([]any, error) {
		row, err := r.values(isBefore, t.numbers)
		for i, v := range row {
			if n, is := v.(int64); is && t.real[i] {
				row[i] = float64(n)
			}
		}
		if t.rowid != "" {
			row = append([]any{rowid}, row...)
		}
		return row, err
	}
	if r.op != sqlite.OpInsert {
		if before, err = side(true, r.oldRow); err != nil {
			return nil, nil, err
		}
	}
	if r.op != sqlite.OpDelete {
		if after, err = side(false, r.newRow); err != nil {
			return nil, nil, err
		}
	}
	return before, after, nil
}

// encode encodes a row: the same values of the same types give the same bytes.
func encode(row []any) []byte {
	var b []byte
	for _, v := range row {
		switch v := v.(type) {
		case nil:
			b = append(b, 'n')
		case int64:
			b = binary.BigEndian.AppendUint64(append(b, 'i'), uint64(v)) //nolint:gosec // it is decoded the same way
		case float64:
			b = binary.BigEndian.AppendUint64(append(b, 'f'), math.Float64bits(v))
		case string:
			b = append(binary.AppendUvarint(append(b, 't'), uint64(len(v))), v...)
		case []byte:
			b = append(binary.AppendUvarint(append(b, 'b'), uint64(len(v))), v...)
		}
	}
	return b
}

// decode is the inverse of encode.
func decode(b []byte) (row []any, err error) {
	for len(b) > 0 {
		kind := b[0]
		b = b[1:]
		n := 8
		switch kind {
		case 'n':
			row = append(row, nil)
			continue
		case 't', 'b':
			length, used := binary.Uvarint(b)
			if used <= 0 || length > uint64(len(b)-used) { //nolint:gosec // not negative
				return nil, fmt.Errorf("a row ends in a value")
			}
			b, n = b[used:], int(length) //nolint:gosec // it is at most len(b)
		}
		if n > len(b) {
			return nil, fmt.Errorf("a row ends in a value")
		}
		switch value := b[:n]; kind {
		case 'i':
			row = append(row, int64(binary.BigEndian.Uint64(value))) //nolint:gosec // see encode
		case 'f':
			row = append(row, math.Float64frombits(binary.BigEndian.Uint64(value)))
		case 't':
			row = append(row, string(value))
		case 'b':
			row = append(row, append([]byte{}, value...))
		default:
			return nil, fmt.Errorf("a row has a value of kind %q", kind)
		}
		b = b[n:]
	}
	return row, nil
}
