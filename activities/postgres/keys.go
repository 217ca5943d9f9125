package postgres

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/drift"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// checkForeignKeys looks for rows without the row that they refer to: the server does not check
// foreign keys while triggers are off. It locks the rows that are referred to, as the server would.
// A foreign key that is NOT VALID may have been broken before the step: a row that refers to the
// same as the one that it replaces changes nothing about that, and a person who forces the undo has
// been shown the others.
func (c *connection) checkForeignKeys(n int64, tables []*capture.Table, forced bool) error {
	for _, t := range tables {
		all, err := capture.References(c.Connection, t)
		if err != nil {
			return err
		}
		for _, r := range all {
			if !r.IsValid && forced {
				continue
			}
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

func (c *connection) checkReference(n int64, t *capture.Table, r capture.Reference) error {
	rows := func(which string) string {
		return fmt.Sprintf(`(SELECT %[2]s::%[1]s AS v, new::%[1]s AS other FROM unwind.event WHERE record = $1 AND relid = $2
			AND %[2]s IS NOT NULL OFFSET 0) e`, t.Quoted(), which)
	}
	var sql string
	if r.Touches == "child" { // the rows that were put back
		if err := c.Run(fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM %s JOIN %s p ON %s FOR KEY SHARE OF p) s",
			rows("old"), r.Parent, capture.SameColumns("p", r.To, "e.v", r.From)), n, t.OID); err != nil {
			return err
		}
		unlike := "true"
		if !r.IsValid {
			unlike = fmt.Sprintf("(e.other IS NULL OR NOT (%s))", capture.SameColumns("(e.other)", r.From, "e.v", r.From))
		}
		sql = fmt.Sprintf("SELECT to_jsonb(e.v)::text FROM %s WHERE %s AND %s AND NOT EXISTS (SELECT FROM %s p WHERE %s)",
			rows("old"), capture.AllSet("(e.v)", r.From), unlike, r.Parent, capture.SameColumns("p", r.To, "e.v", r.From))
	} else { // whoever refers to the rows that were taken away
		sql = fmt.Sprintf("SELECT to_jsonb(f.*)::text FROM %s JOIN %s f ON %s WHERE NOT EXISTS (SELECT FROM %s p WHERE %s)",
			rows("new"), r.Child, capture.SameColumns("f", r.From, "e.v", r.To), r.Parent,
			capture.SameColumns("p", r.To, "f.*", r.From))
	}
	broken, err := server.Collect(c.Connection, pgx.RowTo[string], sql+fmt.Sprintf(" LIMIT %d", capture.ShownRows), n,
		t.OID)
	if err != nil || len(broken) == 0 {
		return err
	}
	shown, err := capture.ShowRows(c.Connection, r.Child, broken)
	if err != nil {
		return err
	}
	return drift.New(
		fmt.Sprintf("the foreign key %s would not hold: these rows of %s would refer to rows of %s that are gone\n%s", r.Name,
			r.Child, r.Parent, shown))
}

// checkDeferrableUnique looks for two rows with the same values in a unique constraint that is
// deferrable: a trigger would check it.
func (c *connection) checkDeferrableUnique(n int64, t *capture.Table) error {
	type unique struct {
		Name    string
		Columns []string
	}
	all, err := server.Collect(c.Connection, pgx.RowToStructByPos[unique], `SELECT x.conname::text,
		(SELECT array_agg(a.attname::text) FROM unnest(x.conkey) k JOIN pg_attribute a ON a.attrelid = x.conrelid
		AND a.attnum = k)
		FROM pg_constraint x WHERE x.conrelid = $1 AND x.contype IN ('u', 'p') AND x.condeferrable`, t.OID)
	if err != nil {
		return err
	}
	for _, u := range all {
		twice, err := server.Collect(c.Connection, pgx.RowTo[string], fmt.Sprintf(`SELECT to_jsonb(q.*)::text FROM
			(SELECT old::%[1]s AS v FROM unwind.event WHERE record = $1 AND relid = $2 AND old IS NOT NULL OFFSET 0) e
			JOIN ONLY %[1]s q ON %[2]s
			WHERE NOT (%[3]s) LIMIT
			%[4]d`, t.Quoted(), capture.SameColumns("q", u.Columns, "e.v", u.Columns), t.On("e.v"), capture.ShownRows), n, t.OID)
		if err != nil {
			return err
		}
		if len(twice) > 0 {
			shown, err := capture.ShowRows(c.Connection, t.Quoted(), twice)
			if err != nil {
				return err
			}
			return drift.New(fmt.Sprintf("the unique constraint %s of %s would not hold beside these rows\n%s", u.Name,
				t.FullName(), shown))
		}
	}
	return nil
}
