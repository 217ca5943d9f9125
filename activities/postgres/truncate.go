package postgres

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// emptied is a table that a statement has truncated, and where its rows are.
type emptied struct {
	Table table  `json:"table"`
	Copy  string `json:"copy"` // quoted
	Rows  int64  `json:"rows"`
}

// truncate copies the rows of all tables that the statement empties, also by CASCADE, and runs it. Which those are is found out by
// running it, and rolled back: a table that was truncated has its rows in another file.
func (t *trial) truncate() (*alteration, error) {
	changed, err := t.wouldEmpty()
	if err != nil {
		return nil, err
	}
	var ids []uint32
	var a alteration
	for _, oid := range slices.Sorted(maps.Keys(changed)) {
		if changed[oid].kind == "r" {
			ids = append(ids, oid)
			continue
		}
		var undo string // RESTART IDENTITY
		if err := t.scan(fmt.Sprintf(`SELECT format('ALTER SEQUENCE %%s RESTART WITH %%s', $1::text, last_value + CASE WHEN is_called THEN seqincrement ELSE 0 END)
			FROM %s, pg_sequence WHERE seqrelid = $2`, changed[oid].name), []any{changed[oid].name, oid}, &undo); err != nil {
			return nil, err
		}
		a.Undo = append(a.Undo, undo)
	}
	if ids == nil { // all were made by this step
		return nil, t.noInverse("it truncates a table that the step has made")
	}
	relations, err := t.describeTables(ids)
	if err != nil {
		return nil, err
	}
	if err := t.run("CREATE SCHEMA " + t.holding()); err != nil {
		return nil, fmt.Errorf("the schema that holds rows of truncated tables cannot be made; grant CREATE on the database to the worker's role: %w", err)
	}
	for _, r := range relations {
		if err := t.keepRows(&a, r); err != nil {
			return nil, err
		}
	}
	if _, _, _, err := t.execute(t.statement, 0); err != nil {
		return nil, err
	}
	return &a, nil
}

// wouldEmpty lists tables and sequences whose files change when the statement runs.
func (t *trial) wouldEmpty() (map[uint32]fileNode, error) {
	was, err := t.fileNodes()
	if err != nil {
		return nil, err
	}
	changed := map[uint32]fileNode{}
	return changed, t.rolledBack(func() error {
		if _, _, _, err := t.execute(t.statement, 0); err != nil {
			return err
		}
		is, err := t.fileNodes()
		for oid, node := range is {
			if was[oid].node != node.node && node.ours && !t.did.isMade(oid) {
				changed[oid] = node
			}
		}
		return err
	})
}

// keepRows copies the rows of a table that will be truncated, under the lock that the statement takes.
func (t *trial) keepRows(a *alteration, r *relation) error {
	if err := t.checkAffected(r.OID, r.name()); err != nil {
		return err
	}
	if r.Security {
		return refused("%s: row security applies to the worker's role, so an undo might not see all rows; give the role BYPASSRLS, or make it the owner of the table", r.name())
	}
	e := emptied{Table: r.table, Copy: t.holding() + "." + quote(fmt.Sprintf("rows_%d", r.OID))}
	if err := t.run("LOCK TABLE ONLY " + r.quoted() + " IN ACCESS EXCLUSIVE MODE"); err != nil {
		return err
	}
	tag, err := t.Exec(t.ctx, fmt.Sprintf("CREATE TABLE %s AS TABLE ONLY %s", e.Copy, r.quoted()))
	if err != nil {
		return t.explain(err)
	}
	e.Rows = tag.RowsAffected()
	a.Emptied = append(a.Emptied, e)
	a.Held = append(a.Held, held{Name: e.Copy, Of: r.quoted(), schema: r.Schema, table: r.Name})
	a.Does = strings.TrimPrefix(fmt.Sprintf("%s, truncates table %s, %s", a.Does, r.name(), activities.CountOf(e.Rows, "row")), ", ")
	return nil
}

// refill puts the rows of a truncated table back.
func (c *connection) refill(n int64, e emptied) error {
	var names []string
	for _, column := range e.Table.Columns {
		if !column.Generated {
			names = append(names, quote(column.Name))
		}
	}
	columns := strings.Join(names, ", ")
	if err := c.checkCopy(e.Copy, e.Table.name(), e.Rows); err != nil {
		return err
	}
	err := c.run(fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s", e.Table.quoted(), columns, columns, e.Copy))
	if denied, ok := errors.AsType[*activities.Error](err); ok {
		return newDrift(fmt.Sprintf("rows of %s cannot be put back beside what others have done since: %s", e.Table.name(), denied.Message))
	}
	if err != nil {
		return err
	}
	var missing int64
	if err := c.scan(fmt.Sprintf("SELECT count(*) FROM (SELECT (q.*)::text FROM %s q EXCEPT ALL SELECT (q.*)::text FROM ONLY %s q) s", e.Copy, e.Table.quoted()), nil, &missing); err != nil {
		return err
	}
	if missing > 0 {
		return newDrift(fmt.Sprintf("%d of %s of %s would not be as before; nothing was touched", missing, activities.CountOf(e.Rows, "row"), e.Table.name()))
	}
	// Earlier steps know their rows by version.
	return c.run(fmt.Sprintf(`UPDATE unwind.change c SET version = pg_current_xact_id()::xid FROM unwind.record r, (SELECT (q.*)::text AS row FROM %s q) e
		WHERE r.state IN ('applied', 'undoing') AND r.n < $1 AND c.record = r.n AND c.relid = $2 AND c.new = e.row`, e.Copy), n, e.Table.OID)
}

// checkCopy is DamagedRecord unless a copy of a table's rows, whose name is quoted, has as many as were copied.
func (c *connection) checkCopy(name, of string, rows int64) error {
	var there int64
	if err := c.scan("SELECT count(*) FROM "+name, nil, &there); err != nil {
		return err
	}
	if there != rows {
		return activities.Errorf(activities.DamagedRecord, "database %s: %s, which holds %s of %s for the undo, has %d; nothing was touched", c.name, name, activities.CountOf(rows, "row"), of, there)
	}
	return nil
}
