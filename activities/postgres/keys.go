package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// reference is a foreign key between a table of the step and another table, or itself.
type reference struct {
	Name          string
	Child, Parent string // quoted names of the tables that the constraint was declared on: of partitions, their root
	From, To      []string
	Touches       string // "child" or "parent": what the table of the step is
}

// references lists the foreign keys of a table, also those that its partitioned table has.
func (c *connection) references(t *table) ([]reference, error) {
	return collect(c, pgx.RowToStructByPos[reference], `WITH RECURSIVE up(oid, side, parent) AS (
			SELECT oid, 'child', conparentid FROM pg_constraint WHERE contype = 'f' AND conrelid = $1
			UNION SELECT oid, 'parent', conparentid FROM pg_constraint WHERE contype = 'f' AND confrelid = $1
			UNION SELECT p.oid, up.side, p.conparentid FROM up JOIN pg_constraint p ON p.oid = up.parent)
		SELECT x.conname::text, quote_ident(cn.nspname) || '.' || quote_ident(c.relname), quote_ident(pn.nspname) || '.' || quote_ident(p.relname),
			(SELECT array_agg(a.attname::text ORDER BY k.i) FROM unnest(x.conkey) WITH ORDINALITY k(n, i) JOIN pg_attribute a ON a.attrelid = x.conrelid AND a.attnum = k.n),
			(SELECT array_agg(a.attname::text ORDER BY k.i) FROM unnest(x.confkey) WITH ORDINALITY k(n, i) JOIN pg_attribute a ON a.attrelid = x.confrelid AND a.attnum = k.n),
			up.side
		FROM up JOIN pg_constraint x ON x.oid = up.oid
		JOIN pg_class c ON c.oid = x.conrelid JOIN pg_namespace cn ON cn.oid = c.relnamespace
		JOIN pg_class p ON p.oid = x.confrelid JOIN pg_namespace pn ON pn.oid = p.relnamespace
		WHERE x.conparentid = 0 ORDER BY x.conname`, t.OID)
}

// checkForeignKeys looks for rows without the row that they refer to: the server does not check foreign keys while triggers are off. It
// locks the rows that are referred to, as the server would.
func (c *connection) checkForeignKeys(n int64, tables []*table) error {
	for _, t := range tables {
		all, err := c.references(t)
		if err != nil {
			return err
		}
		for _, r := range all {
			if err := c.checkReference(n, t, r); err != nil {
				return err
			}
		}
		if err := c.checkDeferrableUnique(n, t); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) checkReference(n int64, t *table, r reference) error {
	rows := func(which string) string {
		return fmt.Sprintf(`(SELECT %[2]s::%[1]s AS v FROM unwind.change WHERE record = $1 AND relid = $2 AND %[2]s IS NOT NULL OFFSET 0) e`, t.quoted(), which)
	}
	var sql string
	if r.Touches == "child" { // the rows that were put back
		if err := c.run(fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM %s JOIN %s p ON %s FOR KEY SHARE OF p) s",
			rows("old"), r.Parent, sameColumns("p", r.To, "e.v", r.From)), n, t.OID); err != nil {
			return err
		}
		sql = fmt.Sprintf("SELECT to_jsonb(e.v)::text FROM %s WHERE %s AND NOT EXISTS (SELECT FROM %s p WHERE %s)",
			rows("old"), allSet("(e.v)", r.From), r.Parent, sameColumns("p", r.To, "e.v", r.From))
	} else { // whoever refers to the rows that were taken away
		sql = fmt.Sprintf("SELECT to_jsonb(f.*)::text FROM %s JOIN %s f ON %s WHERE NOT EXISTS (SELECT FROM %s p WHERE %s)",
			rows("new"), r.Child, sameColumns("f", r.From, "e.v", r.To), r.Parent, sameColumns("p", r.To, "f", r.From))
	}
	broken, err := collect(c, pgx.RowTo[string], sql+fmt.Sprintf(" LIMIT %d", shownRows), n, t.OID)
	if err != nil || len(broken) == 0 {
		return err
	}
	return newDrift(fmt.Sprintf("the foreign key %s would not hold: these rows of %s would refer to rows of %s that are gone\n%s", r.Name, r.Child, r.Parent, strings.Join(broken, "\n")))
}

func allSet(row string, columns []string) string {
	conditions := make([]string, len(columns))
	for i, column := range columns {
		conditions[i] = row + "." + quote(column) + " IS NOT NULL"
	}
	return strings.Join(conditions, " AND ")
}

// checkDeferrableUnique looks for two rows with the same values in a unique constraint that is deferrable: a trigger would check it.
func (c *connection) checkDeferrableUnique(n int64, t *table) error {
	type unique struct {
		Name    string
		Columns []string
	}
	all, err := collect(c, pgx.RowToStructByPos[unique], `SELECT x.conname::text,
		(SELECT array_agg(a.attname::text) FROM unnest(x.conkey) k JOIN pg_attribute a ON a.attrelid = x.conrelid AND a.attnum = k)
		FROM pg_constraint x WHERE x.conrelid = $1 AND x.contype IN ('u', 'p') AND x.condeferrable`, t.OID)
	if err != nil {
		return err
	}
	for _, u := range all {
		twice, err := collect(c, pgx.RowTo[string], fmt.Sprintf(`SELECT to_jsonb(q.*)::text FROM
			(SELECT old::%[1]s AS v FROM unwind.change WHERE record = $1 AND relid = $2 AND old IS NOT NULL OFFSET 0) e
			JOIN ONLY %[1]s q ON %[2]s WHERE NOT (%[3]s) LIMIT %[4]d`, t.quoted(), sameColumns("q", u.Columns, "e.v", u.Columns), t.on("e.v"), shownRows), n, t.OID)
		if err != nil {
			return err
		}
		if len(twice) > 0 {
			return newDrift(fmt.Sprintf("the unique constraint %s of %s would not hold beside these rows\n%s", u.Name, t.name(), strings.Join(twice, "\n")))
		}
	}
	return nil
}
