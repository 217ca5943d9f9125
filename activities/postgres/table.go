package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
)

// triggerName sorts before the names of other triggers, which fire in the order of their names.
const triggerName = "!unwind"

// table is a table whose rows a step has changed, as it was then.
type table struct {
	OID     uint32   `json:"oid"`
	Schema  string   `json:"schema"`
	Name    string   `json:"name"`
	Columns []column `json:"columns"`
	// Key are the columns that name a row: those of the primary key, or of a unique index without NULL.
	Key []string `json:"key"`
	// The rows that came, went and changed.
	Came    int64 `json:"came"`
	Went    int64 `json:"went"`
	Changed int64 `json:"changed"`
	// Total is about how many rows it had.
	Total int64 `json:"total"`
	// Digest covers the rows as they were, where a plan is made or an approval is compared.
	Digest activities.Digest `json:"-"`
}

type column struct {
	Name      string `json:"name"`
	Type      string `json:"type"`
	Generated bool   `json:"generated,omitempty"`
}

func (t *table) name() string   { return t.Schema + "." + t.Name }
func (t *table) quoted() string { return quote(t.Schema, t.Name) }

// on is the condition that the row q is the one with the key of a row v.
func (t *table) on(v string) string { return sameColumns("q", t.Key, v, t.Key) }

// sameColumns compares columns of a row r with those of v.
func sameColumns(r string, rc []string, v string, vc []string) string {
	conditions := make([]string, len(rc))
	for i := range rc {
		conditions[i] = fmt.Sprintf("%s.%s = (%s).%s", r, quote(rc[i]), v, quote(vc[i]))
	}
	return strings.Join(conditions, " AND ")
}

// key is the key of a row as text.
func (t *table) key(r string) string {
	columns := make([]string, len(t.Key))
	for i, k := range t.Key {
		columns[i] = r + "." + quote(k)
	}
	return "ROW(" + strings.Join(columns, ", ") + ")::pg_catalog.text"
}

// capture is the SQL of the function that the trigger of a table calls for each row that a step changes.
func (t *table) capture() string {
	return fmt.Sprintf(`
DECLARE r bigint := pg_catalog.current_setting('unwind.record');
BEGIN
	IF TG_OP = 'INSERT' THEN
		INSERT INTO unwind.change (record, relid, new_key, new) VALUES (r, TG_RELID, %[2]s, NEW::pg_catalog.text);
	ELSIF TG_OP = 'DELETE' THEN
		INSERT INTO unwind.change (record, relid, old_key, old) VALUES (r, TG_RELID, %[1]s, OLD::pg_catalog.text);
	ELSE
		INSERT INTO unwind.change (record, relid, old_key, old, new_key, new) VALUES (r, TG_RELID, %[1]s, OLD::pg_catalog.text, %[2]s, NEW::pg_catalog.text);
	END IF;
	RETURN NULL;
END`, t.key("OLD"), t.key("NEW"))
}

func (t *table) function() string { return quote("unwind", fmt.Sprintf("capture_%d", t.OID)) }

// Prepare is the SQL that makes a table ready for steps: a trigger that does nothing unless a step of ours changes a row.
func (t *table) prepare() string {
	return fmt.Sprintf(`CREATE OR REPLACE FUNCTION %[1]s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $capture$%[2]s$capture$;
DROP TRIGGER IF EXISTS %[3]s ON %[4]s;
CREATE TRIGGER %[3]s AFTER INSERT OR UPDATE OR DELETE ON %[4]s FOR EACH ROW
	WHEN (pg_catalog.current_setting('unwind.record', true) <> '') EXECUTE FUNCTION %[1]s();`,
		t.function(), t.capture(), quote(triggerName), t.quoted())
}

// relation is a table as the server describes it now.
type relation struct {
	table

	Kind        string // of pg_class
	Persistence string
	Security    bool // row security applies to us
	Captured    bool // the trigger is there, and as we would make it
	Exclusion   bool // it has a deferrable exclusion constraint
}

const describe = `SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, row_security_active(c.oid), greatest(c.reltuples, 0)::bigint,
	coalesce((SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), '{}'),
	coalesce((SELECT array_agg(format_type(a.atttypid, a.atttypmod) ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), '{}'),
	coalesce((SELECT array_agg(a.attgenerated <> '' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), '{}'),
	coalesce((SELECT array_agg(a.attname::text ORDER BY k.place) FROM (
		SELECT i.indrelid, i.indkey::int2[] AS columns FROM pg_index i
		WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
		AND NOT EXISTS (SELECT FROM unnest(i.indkey::int2[]) k JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k WHERE NOT a.attnotnull)
		ORDER BY i.indisprimary DESC, i.indnatts, i.indexrelid LIMIT 1) i
		CROSS JOIN unnest(i.columns) WITH ORDINALITY k(number, place)
		JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number), '{}'),
	coalesce((SELECT p.prosrc FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE t.tgrelid = c.oid AND t.tgname = '!unwind' AND t.tgenabled <> 'D'), ''),
	EXISTS (SELECT FROM pg_constraint x WHERE x.conrelid = c.oid AND x.contype = 'x' AND x.condeferrable)
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY($1::oid[]) ORDER BY n.nspname, c.relname`

// describeTables describes the relations with these ids.
func (c *connection) describeTables(ids []uint32) ([]*relation, error) {
	return collect(c, func(row pgx.CollectableRow) (*relation, error) {
		var r relation
		var names, types []string
		var generated []bool
		var source string
		if err := row.Scan(&r.OID, &r.Schema, &r.Name, &r.Kind, &r.Persistence, &r.Security, &r.Total, &names, &types, &generated, &r.Key, &source, &r.Exclusion); err != nil {
			return nil, err
		}
		for i := range names {
			r.Columns = append(r.Columns, column{names[i], types[i], generated[i]})
		}
		r.Captured = source == r.capture()
		return &r, nil
	}, describe, ids)
}

// findAltered compares tables with what they are now: nothing is put back into a table of another shape.
func (c *connection) findAltered(tables []*table) (problem string, err error) {
	for _, t := range tables {
		var id *uint32
		if err := c.scan("SELECT to_regclass($1)::oid", []any{t.quoted()}, &id); err != nil {
			return "", err
		}
		if id == nil {
			return fmt.Sprintf("table %s is gone", t.name()), nil
		}
		now, err := c.describeTables([]uint32{*id})
		if err != nil {
			return "", err
		}
		if !slices.Equal(now[0].Columns, t.Columns) {
			return fmt.Sprintf("table %s was altered\n- %s\n+ %s", t.name(), listColumns(t.Columns), listColumns(now[0].Columns)), nil
		}
		if now[0].Security {
			return fmt.Sprintf("row security now applies to the worker's role on table %s", t.name()), nil
		}
	}
	return "", nil
}

func listColumns(columns []column) string {
	all := make([]string, len(columns))
	for i, c := range columns {
		all[i] = c.Name + " " + c.Type
	}
	return strings.Join(all, ", ")
}
