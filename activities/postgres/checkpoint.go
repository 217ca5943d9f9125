package postgres

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
)

// copied is a table whose rows a checkpoint holds in a schema of ours, until the record is released.
type copied struct {
	Name  string `json:"name"` // of the content
	Table table  `json:"table"`
	Copy  string `json:"copy"` // quoted
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes"`
}

func (d copied) tell() string {
	const kib = 1024
	return fmt.Sprintf("checkpoint: it copies %s of %s (%d KiB), which take their space until the record is released", activities.CountOf(d.Rows, "row"), d.Table.name(), (d.Bytes+kib-1)/kib)
}

// takeCheckpoint copies the rows of tables, which are locked.
func (c *connection) takeCheckpoint(n int64, names map[string]bool) (all []copied, err error) {
	tables := map[string]*relation{}
	for name := range names {
		if r, err := c.findTable(name); err != nil {
			return nil, err
		} else if r != nil {
			tables[name] = r
		}
	}
	if len(tables) == 0 {
		return nil, nil
	}
	schema := quote(fmt.Sprintf("unwind_%d_1", n))
	if err := c.run("CREATE SCHEMA " + schema); err != nil {
		return nil, fmt.Errorf("the schema that holds the checkpoint cannot be made; grant CREATE on the database to the worker's role: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		r := tables[name]
		one := copied{Name: name, Table: r.table, Copy: schema + "." + quote(fmt.Sprintf("rows_%d", r.OID))}
		tag, err := c.Exec(c.ctx, fmt.Sprintf("CREATE TABLE %s AS TABLE ONLY %s", one.Copy, r.quoted()))
		if err != nil {
			return nil, c.explain(err)
		}
		one.Rows = tag.RowsAffected()
		if err := c.scan("SELECT pg_total_relation_size($1::regclass)", []any{one.Copy}, &one.Bytes); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// putCheckpointBack replaces the rows of tables that have other rows than before the step by those of the checkpoint. A table that is gone, or has
// other columns, is left: the comparison that follows shows it. Triggers do not run; foreign keys are looked at afterwards.
func (c *connection) putCheckpointBack(d *declared) error {
	if d.Checkpoint == nil {
		return nil
	}
	now, err := c.readContents(d.watched())
	if err != nil {
		return err
	}
	var replaced []table
	if err := c.run("SET LOCAL session_replication_role = replica"); err != nil {
		return err
	}
	for _, one := range d.Checkpoint {
		is, err := c.findReplaceable(d, one, now)
		if err != nil {
			return err
		}
		if is == nil {
			continue
		}
		var names []string
		for _, column := range is.Columns {
			if !column.Generated {
				names = append(names, quote(column.Name))
			}
		}
		columns := strings.Join(names, ", ")
		if err := c.run("DELETE FROM ONLY " + is.quoted()); err != nil {
			return err
		}
		if err := c.run(fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s", is.quoted(), columns, columns, one.Copy)); err != nil {
			return err
		}
		replaced = append(replaced, *is)
	}
	if err := c.run("SET LOCAL session_replication_role = origin"); err != nil {
		return err
	}
	return c.checkReplaced(replaced)
}

// findReplaceable returns a table as it is now, if its rows have to be replaced and can be.
func (c *connection) findReplaceable(d *declared, one copied, now map[string]*string) (*table, error) {
	var there bool
	if err := c.scan("SELECT to_regclass($1) IS NOT NULL", []any{one.Copy}, &there); err != nil {
		return nil, err
	}
	if !there {
		return nil, activities.Errorf(activities.DamagedRecord, "database %s: %s, which holds the rows of %s for the undo, is gone; nothing was touched", c.name, one.Copy, one.Table.name())
	}
	i := slices.IndexFunc(d.Contents, func(x content) bool { return x.Name == one.Name })
	if sameContent(d.Contents[i].Before, now[one.Name]) {
		return nil, nil //nolint:nilnil // documented
	}
	if err := c.checkCopy(one.Copy, one.Table.name(), one.Rows); err != nil {
		return nil, err
	}
	r, err := c.findTable(one.Name)
	if err != nil || r == nil || !slices.Equal(r.Columns, one.Table.Columns) {
		return nil, err
	}
	return &r.table, nil
}

// findTable describes a table of this database with rows of its own; nil if there is none with this name, which is quoted.
func (c *connection) findTable(name string) (*relation, error) {
	ids, err := collect(c, pgx.RowTo[uint32], "SELECT oid FROM pg_class WHERE oid = to_regclass($1) AND relkind = 'r' AND oid >= $2", name, firstNormalObject)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	all, err := c.describeTables(ids)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all[0], nil
}

// checkReplaced looks for rows without the row that they refer to, in tables whose rows were replaced, and in those that refer to them.
func (c *connection) checkReplaced(tables []table) error {
	for _, t := range tables {
		all, err := c.references(&t)
		if err != nil {
			return err
		}
		for _, r := range all {
			broken, err := collect(c, pgx.RowTo[string], fmt.Sprintf("SELECT to_jsonb(q.*)::text FROM %s q WHERE %s AND NOT EXISTS (SELECT FROM %s p WHERE %s) LIMIT %d",
				r.Child, allSet("q", r.From), r.Parent, sameColumns("p", r.To, "q", r.From), shownRows))
			if err != nil {
				return err
			}
			if len(broken) > 0 {
				return newDrift(fmt.Sprintf("the foreign key %s would not hold: these rows of %s would refer to rows of %s that are gone\n%s", r.Name, r.Child, r.Parent, strings.Join(broken, "\n")))
			}
		}
	}
	return nil
}
