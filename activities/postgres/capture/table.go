package capture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Table is a table whose rows a step has changed, as it was then.
type Table struct {
	OID     uint32   `json:"oid"`
	Schema  string   `json:"schema"`
	Name    string   `json:"name"`
	Columns []Column `json:"columns"`
	// Of are the tables that it is a partition or a child of, at any level.
	Of []string `json:"of,omitempty"`
	// Key are the columns that name a row: those of the primary key, or of a unique index without
	// NULL.
	Key []string `json:"key"`
	// The rows that came, went and changed.
	Came    int64 `json:"came"`
	Went    int64 `json:"went"`
	Changed int64 `json:"changed"`
	// Total is about how many rows it had.
	Total int64 `json:"total"`
	// Digest covers the rows as they were, where a plan is made or an approval is compared.
	Digest activities.Digest `json:"-"`
	// Volatile are the columns in which the statements write something else each time that they run,
	// where that was tried.
	Volatile []string `json:"-"`
	// Masked are the columns that were sensitive then, also by a name that the step has changed.
	Masked []string `json:"masked,omitempty"`
	// Cascaded reports whether a foreign key changes its rows with those of another table: one
	// statement may then change a row more than once.
	Cascaded bool `json:"-"`
}

// Column is a column of a table.
type Column struct {
	Name      string `json:"name"`
	Type      string `json:"type"`
	Generated bool   `json:"generated,omitempty"`
}

// FullName is the name with the schema, as people know it.
func (t *Table) FullName() string { return t.Schema + "." + t.Name }

// IsMasked reports whether the values of a column are not shown, by any name that the table has or
// that of what it is a child of.
func (t *Table) IsMasked(c *server.Connection, column string) bool {
	return slices.ContainsFunc(append([]string{t.FullName()}, t.Of...),
		func(name string) bool { return c.IsSensitive(name + "." + column) })
}

// NoteMasked notes which columns are masked.
func (t *Table) NoteMasked(c *server.Connection) {
	for _, column := range t.Columns {
		if t.IsMasked(c, column.Name) {
			t.Masked = append(t.Masked, column.Name)
		}
	}
}

// Quoted is the same as SQL takes it.
func (t *Table) Quoted() string { return server.Quote(t.Schema, t.Name) }

// On is the condition that the row q is the one with the key of a row v.
func (t *Table) On(v string) string { return SameColumns("q", t.Key, v, t.Key) }

// SameColumns compares columns of a row r with those of v.
func SameColumns(r string, rc []string, v string, vc []string) string {
	conditions := make([]string, len(rc))
	for i := range rc {
		conditions[i] = fmt.Sprintf("%s.%s = (%s).%s", r, server.Quote(rc[i]), v, server.Quote(vc[i]))
	}
	return strings.Join(conditions, " AND ")
}

// KeyOf is the key of a row as text.
func (t *Table) KeyOf(r string) string { return t.keyRow(r) + "::pg_catalog.text" }

// keyRow is the key of a row as a row.
func (t *Table) keyRow(r string) string {
	columns := make([]string, len(t.Key))
	for i, k := range t.Key {
		columns[i] = r + "." + server.Quote(k)
	}
	return "ROW(" + strings.Join(columns, ", ") + ")"
}

// Relation is a table as the server describes it now.
type Relation struct {
	Table

	Kind        string // of pg_class
	Persistence string
	Security    bool // row security applies to us
	Captured    bool // the triggers are there, and as we would make them; those for each row are always right
	Related     bool // it has parents or children: a statement on one of them changes rows of others
	Exclusion   bool // it has a deferrable exclusion constraint
}

const describe = `SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relpersistence::text,
	row_security_active(c.oid), greatest(c.reltuples, 0)::bigint,
	coalesce(a.names, '{}'), coalesce(a.types, '{}'), coalesce(a.generated, '{}'),
	coalesce((SELECT array_agg(a.attname::text ORDER BY k.place) FROM (
		SELECT i.indkey::int2[] AS columns FROM pg_index i
		WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
		AND i.indexprs IS NULL AND i.indkey::int2[] <@ a.filled
		ORDER BY i.indisprimary DESC, i.indnatts, i.indexrelid LIMIT 1) i
		CROSS JOIN unnest(i.columns) WITH ORDINALITY k(number, place)
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number), '{}'),
	coalesce((SELECT string_agg(format('%s: %s%s', t.tgname, p.prosrc, array_to_string(p.proconfig, ';')), E'\n'
	ORDER BY t.tgname) FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE t.tgrelid = c.oid
	AND t.` + server.IsTrigger + ` AND t.tgenabled <> 'D'), ''),
	EXISTS (SELECT FROM pg_inherits h WHERE c.oid IN (h.inhrelid, h.inhparent)), coalesce(x.exclusion, false),
	coalesce(x.cascaded, false)
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace,
	LATERAL (SELECT array_agg(attname::text ORDER BY attnum) AS names, array_agg(format_type(atttypid, atttypmod)
	ORDER BY attnum) AS types,
		array_agg(attgenerated <> '' ORDER BY attnum) AS generated, array_agg(attnum) FILTER (WHERE attnotnull) AS filled
		FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) a,
	LATERAL (SELECT bool_or(contype = 'x' AND condeferrable) AS exclusion, bool_or(contype = 'f'
	AND (confdeltype NOT IN ('a', 'r') OR confupdtype NOT IN ('a', 'r'))) AS cascaded
		FROM pg_constraint WHERE conrelid = c.oid) x
	WHERE c.oid = ANY($1::oid[]) ORDER BY n.nspname, c.relname`

// listAncestors lists the tables that a table is a partition or a child of.
const listAncestors = `WITH RECURSIVE up(id) AS (SELECT inhparent FROM pg_inherits WHERE inhrelid = $1 UNION
	SELECT h.inhparent FROM up JOIN pg_inherits h ON h.inhrelid = up.id)
	SELECT n.nspname || '.' || c.relname FROM up JOIN pg_class c ON c.oid = up.id
	JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY c.oid`

// Describe describes the relations with these ids.
func Describe(c *server.Connection, ids []uint32) ([]*Relation, error) {
	if ids == nil {
		return nil, nil
	}
	_, config := server.CanonicalFor()
	all, err := server.Collect(c, func(row pgx.CollectableRow) (*Relation, error) {
		var r Relation
		var names, types []string
		var generated []bool
		var source string
		if err := row.Scan(&r.OID, &r.Schema, &r.Name, &r.Kind, &r.Persistence, &r.Security, &r.Total, &names, &types,
			&generated, &r.Key, &source, &r.Related, &r.Exclusion, &r.Cascaded); err != nil {
			return nil, err
		}
		for i := range names {
			r.Columns = append(r.Columns, Column{names[i], types[i], generated[i]})
		}
		settings := strings.Join(config, ";")
		r.Captured = source == listTriggers(eachRow, r.captureRow()+settings) || !r.Related &&
			source == listTriggers(eachStatement, r.captureStatement()+settings)
		return &r, nil
	}, describe, ids)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if !r.Related {
			continue
		}
		if r.Of, err = server.Collect(c, pgx.RowTo[string], listAncestors, r.OID); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Find describes a table of this database with rows of its own; nil if there is none with this
// name, which is quoted.
func Find(c *server.Connection, name string) (*Relation, error) {
	ids, err := server.Collect(c, pgx.RowTo[uint32],
		"SELECT oid FROM pg_class WHERE oid = to_regclass($1) AND relkind = 'r' AND oid >= $2", name,
		server.FirstNormalObject)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	all, err := Describe(c, ids)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all[0], nil
}

// LockShapes keeps others from altering tables, as far as these are still there, until the
// transaction ends.
func LockShapes(c *server.Connection, tables []*Table) error {
	for _, t := range tables {
		var there bool
		if err := c.Scan("SELECT coalesce(to_regclass($1)::oid = $2, false)", []any{t.Quoted(), t.OID}, &there); err != nil {
			return err
		}
		if there {
			if err := c.Run("LOCK TABLE ONLY " + t.Quoted() + " IN ROW EXCLUSIVE MODE"); err != nil {
				return err
			}
		}
	}
	return nil
}

// FindAltered compares tables with what they are now: nothing is put back into a table of another
// shape.
func FindAltered(c *server.Connection, tables []*Table) (problem string, err error) {
	for _, t := range tables {
		var id *uint32
		if err := c.Scan("SELECT to_regclass($1)::oid", []any{t.Quoted()}, &id); err != nil {
			return "", err
		}
		if id == nil {
			return fmt.Sprintf("table %s is gone", t.FullName()), nil
		}
		if *id != t.OID {
			return fmt.Sprintf("table %s is another one now: the one that the step changed is gone, or has another name",
				t.FullName()), nil
		}
		now, err := Describe(c, []uint32{*id})
		if err != nil {
			return "", err
		}
		if !slices.Equal(now[0].Columns, t.Columns) {
			return fmt.Sprintf("table %s was altered\n- %s\n+ %s", t.FullName(), ListColumns(t.Columns),
				ListColumns(now[0].Columns)), nil
		}
		if now[0].Security {
			return fmt.Sprintf("row security now applies to the worker's role on table %s", t.FullName()), nil
		}
	}
	return "", nil
}

// IsKeyed reports whether an index sees to it that no two rows of a table have the same key.
func IsKeyed(c *server.Connection, t *Table) (is bool, err error) {
	return is, c.Scan(`SELECT EXISTS (SELECT FROM pg_index i WHERE indrelid = $1 AND indisunique AND indisvalid
		AND indimmediate AND indpred IS NULL AND indexprs IS NULL AND NOT EXISTS (
		SELECT FROM unnest(indkey::int2[], indclass::oid[], indcollation::oid[]) WITH ORDINALITY k(number, class, sorted,
		place)
		JOIN pg_attribute a ON attrelid = $1 AND attnum = number JOIN pg_opclass o ON o.oid = class
		WHERE place <= indnkeyatts AND (attname <> ALL($2::text[]) OR NOT opcdefault
		OR sorted <> attcollation)))`, []any{t.OID, t.Key}, &is)
}

// ListColumns says which columns a table has.
func ListColumns(columns []Column) string {
	all := make([]string, len(columns))
	for i, c := range columns {
		all[i] = c.Name + " " + c.Type
	}
	return strings.Join(all, ", ")
}
