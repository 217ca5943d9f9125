package alteration

import (
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/drift"
	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// copied is a table whose rows a checkpoint holds in a schema of ours, until the record is
// released.
type copied struct {
	Name  string        `json:"name"` // of the content
	Table capture.Table `json:"table"`
	Copy  string        `json:"copy"` // quoted
	Rows  int64         `json:"rows"`
	Bytes int64         `json:"bytes"`
}

func (d copied) tell() string {
	const kib = 1024
	return fmt.Sprintf("checkpoint: it copies %s of %s (%d KiB), which take their space until the record is released",
		activities.CountOf(d.Rows, "row"), d.Table.FullName(), (d.Bytes+kib-1)/kib)
}

// takeCheckpoint copies the rows of tables, which are locked.
func takeCheckpoint(c *server.Connection, n int64, names map[string]bool) (all []copied, err error) {
	tables := map[string]*capture.Relation{}
	for name := range names {
		if r, err := capture.Find(c, name); err != nil {
			return nil, err
		} else if r != nil {
			tables[name] = r
		}
	}
	if len(tables) == 0 {
		return nil, nil
	}
	holding := server.Quote(schema.HoldingOf(n, 1))
	if err := c.Run("CREATE SCHEMA " + holding); err != nil {
		return nil, fmt.Errorf(
			"the schema that holds the checkpoint cannot be made; grant CREATE on the database to the worker's role: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		r := tables[name]
		one := copied{Name: name, Table: r.Table, Copy: holding + "." + server.Quote(fmt.Sprintf("rows_%d", r.OID))}
		tag, err := c.Exec(c.Ctx, fmt.Sprintf("CREATE TABLE %s AS TABLE ONLY %s", one.Copy, r.Quoted()))
		if err != nil {
			return nil, c.Explain(err)
		}
		one.Rows = tag.RowsAffected()
		if err := c.Scan("SELECT pg_total_relation_size($1::regclass)", []any{one.Copy}, &one.Bytes); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// putCheckpointBack replaces the rows of tables that have other rows than before the step by those
// of the checkpoint. A table that is gone, or has other columns, is left: the comparison that
// follows shows it. Triggers do not run; foreign keys are looked at afterwards.
func putCheckpointBack(c *server.Connection, d *Declared) error {
	if d.Checkpoint == nil {
		return nil
	}
	now, err := schema.ReadContents(c, d.watched())
	if err != nil {
		return err
	}
	var replaced []*capture.Table
	var kept []capture.Kept
	if err := c.Run("SET LOCAL session_replication_role = replica"); err != nil {
		return err
	}
	for _, one := range d.Checkpoint {
		is, err := findReplaceable(c, d, one, now)
		if err != nil {
			return err
		}
		if is == nil {
			continue
		}
		replaced, kept = append(replaced, is), append(kept, copyOf(is, one.Copy))
	}
	if err := capture.WithoutTriggers(c, replaced, func() error {
		for _, t := range replaced {
			if err := c.Run("DELETE FROM ONLY " + t.Quoted()); err != nil {
				return err
			}
		}
		return capture.PutBack(c, kept)
	}); err != nil {
		return err
	}
	if err := c.Run("SET LOCAL session_replication_role = origin"); err != nil {
		return err
	}
	return checkReplaced(c, replaced)
}

// findReplaceable returns a table as it is now, if its rows have to be replaced and can be.
func findReplaceable(c *server.Connection, d *Declared, one copied, now map[string]*string) (*capture.Table, error) {
	var there bool
	if err := c.Scan("SELECT to_regclass($1) IS NOT NULL", []any{one.Copy}, &there); err != nil {
		return nil, err
	}
	if !there {
		return nil, activities.Errorf(activities.DamagedRecord,
			"database %s: %s, which holds the rows of %s for the undo, is gone; nothing was touched", c.Name, one.Copy,
			one.Table.FullName())
	}
	i := slices.IndexFunc(d.Contents, func(x content) bool { return x.Name == one.Name })
	if sameContent(d.Contents[i].Before, now[one.Name]) {
		return nil, nil //nolint:nilnil // documented
	}
	if err := checkCopy(c, one.Copy, one.Table.FullName(), one.Rows); err != nil {
		return nil, err
	}
	r, err := capture.Find(c, one.Name)
	if err != nil || r == nil || !slices.Equal(r.Columns, one.Table.Columns) {
		return nil, err
	}
	return &r.Table, nil
}

// checkReplaced looks for rows without the row that they refer to, in tables whose rows were
// replaced, and in those that refer to them.
func checkReplaced(c *server.Connection, tables []*capture.Table) error {
	for _, t := range tables {
		all, err := capture.References(c, t)
		if err != nil {
			return err
		}
		for _, r := range all {
			if err := checkReference(c, r, r.Child); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkReference looks for rows without the row that they refer to. Rows is the table that has
// them: the child, or a copy of it.
func checkReference(c *server.Connection, r capture.Reference, rows string) error {
	broken, err := server.Collect(c, pgx.RowTo[string],
		fmt.Sprintf("SELECT to_jsonb(q.*)::text FROM %s q WHERE %s AND NOT EXISTS (SELECT FROM %s p WHERE %s) LIMIT %d",
			rows, capture.AllSet("q", r.From), r.Parent, capture.SameColumns("p", r.To, "q.*", r.From), capture.ShownRows))
	if err != nil || len(broken) == 0 {
		return err
	}
	shown, err := capture.ShowRows(c, r.Child, broken)
	if err != nil {
		return err
	}
	return drift.New(
		fmt.Sprintf("the foreign key %s would not hold: these rows of %s would refer to rows of %s that are gone\n%s", r.Name,
			r.Child, r.Parent, shown))
}
