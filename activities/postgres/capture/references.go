package capture

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Reference is a foreign key between a table of the step and another table, or itself.
type Reference struct {
	Name          string
	Child, Parent string // quoted names of the tables that the constraint was declared on: of partitions, their root
	From, To      []string
	Touches       string // "child" or "parent": what the table of the step is
	IsValid       bool   // false: rows from before it was declared may break it
}

// References lists the foreign keys of a table, also those that its partitioned table has.
func References(c *server.Connection, t *Table) ([]Reference, error) {
	return server.Collect(c, pgx.RowToStructByPos[Reference], `WITH RECURSIVE up(oid, side, parent) AS (
			SELECT oid, 'child', conparentid FROM pg_constraint WHERE contype = 'f' AND conrelid = $1
			UNION SELECT oid, 'parent', conparentid FROM pg_constraint WHERE contype = 'f' AND confrelid = $1
			UNION SELECT p.oid, up.side, p.conparentid FROM up JOIN pg_constraint p ON p.oid = up.parent)
		SELECT x.conname::text, quote_ident(cn.nspname) || '.' || quote_ident(c.relname),
		quote_ident(pn.nspname) || '.' || quote_ident(p.relname),
			(SELECT array_agg(a.attname::text ORDER BY k.i) FROM unnest(x.conkey) WITH ORDINALITY k(n, i)
			JOIN pg_attribute a ON a.attrelid = x.conrelid AND a.attnum = k.n),
			(SELECT array_agg(a.attname::text ORDER BY k.i) FROM unnest(x.confkey) WITH ORDINALITY k(n, i)
			JOIN pg_attribute a ON a.attrelid = x.confrelid AND a.attnum = k.n),
			up.side, x.convalidated
		FROM up JOIN pg_constraint x ON x.oid = up.oid
		JOIN pg_class c ON c.oid = x.conrelid JOIN pg_namespace cn ON cn.oid = c.relnamespace
		JOIN pg_class p ON p.oid = x.confrelid JOIN pg_namespace pn ON pn.oid = p.relnamespace
		WHERE x.conparentid = 0 ORDER BY x.conname`, t.OID)
}

// AllSet is the condition that no column of a row is NULL.
func AllSet(row string, columns []string) string {
	conditions := make([]string, len(columns))
	for i, column := range columns {
		conditions[i] = row + "." + server.Quote(column) + " IS NOT NULL"
	}
	return strings.Join(conditions, " AND ")
}
