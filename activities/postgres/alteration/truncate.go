package alteration

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/postgres/statement"
)

// emptied is a table that a statement has truncated, and where its rows are.
type emptied struct {
	Table capture.Table `json:"table"`
	Copy  string        `json:"copy"` // quoted
	Rows  int64         `json:"rows"`
}

// truncate copies the rows of all tables that the statement empties, also by CASCADE, and runs it.
// Which those are is found out by running it, and rolled back: a table that was truncated has its
// rows in another file.
func (t *trial) truncate() (*Alteration, error) {
	changed, err := t.wouldEmpty()
	if err != nil {
		return nil, err
	}
	var ids []uint32
	var a Alteration
	for _, oid := range slices.Sorted(maps.Keys(changed)) {
		if changed[oid].Kind == "r" {
			ids = append(ids, oid)
			continue
		}
		var undo string // RESTART IDENTITY
		if err := t.Scan(
			fmt.Sprintf(`SELECT format('ALTER SEQUENCE %%s RESTART WITH %%s', $1::text, last_value + CASE
				WHEN is_called THEN seqincrement ELSE 0 END)
			FROM %s, pg_sequence WHERE seqrelid = $2`, changed[oid].Name), []any{changed[oid].Name, oid}, &undo); err != nil {
			return nil, err
		}
		a.Undo = append(a.Undo, undo)
	}
	if ids == nil { // all were made by this step
		return nil, t.noInverse("it truncates a table that the step has made")
	}
	relations, err := capture.Describe(t.Connection, ids)
	if err != nil {
		return nil, err
	}
	if err := t.Run("CREATE SCHEMA " + t.holding()); err != nil {
		return nil, fmt.Errorf(
			"the schema that holds rows of truncated tables cannot be made; grant CREATE on the database to the worker's "+
				"role: %w", err)
	}
	for _, r := range relations {
		if err := t.keepRows(&a, r); err != nil {
			return nil, err
		}
	}
	if _, _, _, err := statement.Execute(t.Connection, t.Statement, 0); err != nil {
		return nil, err
	}
	return &a, nil
}

// wouldEmpty lists tables and sequences whose files change when the statement runs.
func (t *trial) wouldEmpty() (map[uint32]schema.FileNode, error) {
	was, err := schema.FileNodes(t.Connection)
	if err != nil {
		return nil, err
	}
	changed := map[uint32]schema.FileNode{}
	return changed, t.rolledBack(func() error {
		if _, _, _, err := statement.Execute(t.Connection, t.Statement, 0); err != nil {
			return err
		}
		is, err := schema.FileNodes(t.Connection)
		for oid, node := range is {
			if was[oid].Node != node.Node && node.Ours && !t.did.IsMade(oid) {
				changed[oid] = node
			}
		}
		return err
	})
}

// keepRows copies the rows of a table that will be truncated, under the lock that the statement
// takes.
func (t *trial) keepRows(a *Alteration, r *capture.Relation) error {
	if err := t.checkAffected(r.OID, r.FullName()); err != nil {
		return err
	}
	if r.Security {
		return activities.Errorf(activities.Refused,
			"%s: row security applies to the worker's role, so an undo might not see all rows; give the role BYPASSRLS, or "+
				"make it the owner of the table", r.FullName())
	}
	e := emptied{Table: r.Table, Copy: t.holding() + "." + server.Quote(fmt.Sprintf("rows_%d", r.OID))}
	if err := t.Run("LOCK TABLE ONLY " + r.Quoted() + " IN ACCESS EXCLUSIVE MODE"); err != nil {
		return err
	}
	tag, err := t.Exec(t.Ctx, fmt.Sprintf("CREATE TABLE %s AS TABLE ONLY %s", e.Copy, r.Quoted()))
	if err != nil {
		return t.Explain(err)
	}
	e.Rows = tag.RowsAffected()
	a.Emptied = append(a.Emptied, e)
	a.Held = append(a.Held, held{Name: e.Copy, Of: r.Quoted(), schema: r.Schema, table: r.Name})
	a.Does = strings.TrimPrefix(fmt.Sprintf("%s, truncates table %s, %s", a.Does, r.FullName(),
		activities.CountOf(e.Rows, "row")), ", ")
	return nil
}

// refill puts the rows of truncated tables back.
func refill(c *server.Connection, n int64, all []emptied) error {
	var tables []*capture.Table
	var kept []capture.Kept
	for _, e := range all {
		if err := checkCopy(c, e.Copy, e.Table.FullName(), e.Rows); err != nil {
			return err
		}
		tables, kept = append(tables, &e.Table), append(kept, copyOf(&e.Table, e.Copy))
	}
	if err := capture.WithoutTriggers(c, tables, func() error { return capture.PutBack(c, kept) }); err != nil {
		return err
	}
	for _, e := range all {
		if err := errors.Join(checkRefilled(c, e), passOn(c, n, e.Table.OID, "ONLY "+e.Table.Quoted())); err != nil {
			return err
		}
	}
	return nil
}

// copyOf are the rows of a table that a copy of it holds.
func copyOf(t *capture.Table, name string) capture.Kept {
	return capture.Kept{Of: t, From: name + " q", Row: "(q.*)::" + name, Where: "true", One: "format('ctid = %L', ctid)"}
}

// checkCopy is DamagedRecord unless a copy of a table's rows, whose name is quoted, has as many as
// were copied.
func checkCopy(c *server.Connection, name, of string, rows int64) error {
	var there int64
	if err := c.Scan("SELECT count(*) FROM "+name, nil, &there); err != nil {
		return err
	}
	if there != rows {
		return activities.Errorf(activities.DamagedRecord,
			"database %s: %s, which holds %s of %s for the undo, has %d; nothing was touched", c.Name, name,
			activities.CountOf(rows, "row"), of, there)
	}
	return nil
}
