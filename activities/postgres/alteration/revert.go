package alteration

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/drift"
	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// LockMade keeps others from changing the tables that a step has made, or has added columns to,
// until the transaction ends.
func LockMade(c *server.Connection, all []*Alteration) error {
	for _, a := range all {
		for _, m := range a.Made {
			if err := lockMade(c, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// FindLost returns what others did to that which a step made or moved away; empty if nothing.
func FindLost(c *server.Connection, all []*Alteration) (problem string, err error) {
	if all == nil {
		return "", nil
	}
	parts, err := heldParts(c, all)
	if err != nil {
		return "", err
	}
	for _, a := range all {
		if a.Dropped != nil && a.Dropped.Sealed {
			if problem, err := findReshaped(c, a.Dropped); err != nil || problem != "" {
				return problem, err
			}
		}
		if err := a.checkHeld(c, parts); err != nil {
			return "", err
		}
		if problem, err := findRemade(c, a.Made); err != nil || problem != "" {
			return problem, err
		}
	}
	if problem, err = findChanged(c, all, isLast); err != nil || problem != "" {
		return problem, err
	}
	for _, a := range all {
		if problem, err := a.findReworked(c); err != nil || problem != "" {
			return problem, err
		}
	}
	return "", nil
}

// checkHeld returns DamagedRecord unless all is there that is held for the undo; parts are those of
// all that is held.
func (a *Alteration) checkHeld(c *server.Connection, parts []string) error {
	for _, h := range a.Held {
		var oid uint32 // 0: it is gone
		if err := c.Scan(
			"SELECT coalesce(CASE WHEN $2 IN ('TYPE', 'DOMAIN') THEN to_regtype($1)::oid WHEN $2 = 'ROUTINE' THEN "+
				"to_regprocedure($1)::oid ELSE to_regclass($1)::oid END, 0::oid)", []any{h.Name, h.Kind}, &oid); err != nil {
			return err
		}
		if oid == 0 || h.OID != 0 && h.OID != oid {
			return activities.Errorf(activities.DamagedRecord,
				"database %s: %s, which holds %s for the undo, is gone, or another thing has its name; nothing was touched",
				c.Name, h.Name, h.Of)
		}
	}
	if a.partsIn(parts) != a.Parts {
		return activities.Errorf(activities.DamagedRecord,
			"database %s: what the step has dropped (%s), and an undo would bring back, has lost a part: something that it "+
				"uses was dropped with CASCADE since; nothing was touched", c.Name, a.Does)
	}
	return nil
}

// findRemade returns what others did to the tables among things that a statement has made; empty if
// nothing.
func findRemade(c *server.Connection, all []made) (problem string, err error) {
	for _, m := range all {
		if m.Column != "" {
			continue
		}
		content, there, err := schema.Content(c, m.OID, m.Left)
		switch {
		case err != nil:
			return "", err
		case !there:
			return fmt.Sprintf("table %s, which the step made, is gone, or has another name", m.Left), nil
		case m.Content == nil || content != *m.Content:
			return fmt.Sprintf("table %s, which the step made, has other rows than it left (%s now); they would be lost", m.Left,
				content), nil
		}
	}
	return "", nil
}

// lockMade locks the table that a statement has made, or has added a column to, if it is still
// there.
func lockMade(c *server.Connection, m made) error {
	var now *string
	if err := schema.WithPlainNames(c, func() error {
		return c.Scan("SELECT (SELECT oid::regclass::text FROM pg_class WHERE oid = $1 AND relkind IN ('r', 'p'))",
			[]any{m.OID}, &now)
	}); err != nil || now == nil {
		return err
	}
	return c.Run("LOCK TABLE ONLY " + *now + " IN ACCESS EXCLUSIVE MODE")
}

// Revert takes the alterations of a step back, the last one first.
func Revert(c *server.Connection, n int64, all []*Alteration) error {
	for _, a := range slices.Backward(all) {
		if err := revertOne(c, n, all, a); err != nil {
			return err
		}
	}
	return DropHeld(c, n)
}

// revertOne takes one of them back.
func revertOne(c *server.Connection, n int64, all []*Alteration, a *Alteration) error {
	if err := checkUnfilled(c, a); err != nil {
		return err
	}
	if problem, err := findObstacle(c, a); err != nil || problem != "" {
		if err == nil {
			err = drift.New(problem)
		}
		return err
	}
	if err := keepNames(c, n, all, a); err != nil {
		return err
	}
	// Earlier steps know their rows by version, and what was undone since has written those anew.
	anew := map[uint32]string{}
	for _, m := range a.Made {
		if m.Column != "" {
			if err := addInheriting(c, m.OID, anew); err != nil {
				return err
			}
		}
	}
	if a.Dropped != nil {
		anew[a.Dropped.Table.OID] = "ONLY " + a.Dropped.Table.Quoted()
	}
	for oid, name := range anew {
		if err := passOn(c, n, oid, name); err != nil {
			return err
		}
	}
	return refill(c, n, a.Emptied)
}

// addInheriting adds a table, and those that have its columns too, by their ids.
func addInheriting(c *server.Connection, oid uint32, to map[uint32]string) error {
	return schema.WithPlainNames(c, func() error {
		rows, err := c.Query(c.Ctx,
			`WITH RECURSIVE all_of(id) AS (SELECT $1::oid UNION SELECT inhrelid FROM all_of JOIN pg_inherits ON inhparent = id)
			SELECT id, 'ONLY ' || id::regclass::text FROM all_of`, oid)
		if err != nil {
			return c.Explain(err)
		}
		var id uint32
		var name string
		_, err = pgx.ForEachRow(rows, []any{&id, &name}, func() error {
			to[id] = name
			return nil
		})
		return c.Explain(err)
	})
}

// passOn tells other steps which versions the rows of a table have now that are as such a step left
// them.
func passOn(c *server.Connection, n int64, oid uint32, table string) error {
	return c.Canonically(func() error {
		return capture.PassVersions(c, fmt.Sprintf("SELECT (q.*)::text, q.xmin FROM %s q", table),
			"r.state IN ('applied', 'undoing') AND r.n <> $1 AND c.relid = $2", n, oid)
	})
}

// runUndo runs the statements that take an alteration back.
func runUndo(c *server.Connection, n int64, a *Alteration) error {
	undo := func() error {
		for _, sql := range a.Undo {
			err := c.Run(sql)
			if e, ok := errors.AsType[*activities.Error](err); ok {
				return drift.New(fmt.Sprintf("what the step did (%s) cannot be taken back beside what others have done since: %s",
					a.Does, e.Message))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	switch {
	case a.Declared != nil:
		return runDeclared(c, n, a.Declared)
	case a.Dropped != nil:
		return watch(c, a.Dropped, undo)
	}
	return undo()
}

// findObstacle returns what others did to that which one alteration changed, when all later ones
// are taken back; empty if nothing.
func findObstacle(c *server.Connection, a *Alteration) (problem string, err error) {
	if a.Dropped != nil {
		problem, err = findHindrance(c, a.Dropped)
	}
	if err != nil || problem != "" {
		return problem, err
	}
	return findChanged(c, []*Alteration{a}, isAny)
}

// checkUnfilled looks for values that others have put into a column that the step added.
func checkUnfilled(c *server.Connection, a *Alteration) error {
	for _, m := range a.Made {
		if m.Column == "" {
			continue
		}
		var filled int64
		var isType *string // nil: it is gone
		err := c.Canonically(func() error {
			return schema.WithPlainNames(c, func() error {
				if err := c.Scan(
					"SELECT (SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = $1 AND attrelid = "+
						"to_regclass($2) AND quote_ident(attname) = $3 AND NOT attisdropped)",
					[]any{m.OID, m.Table, m.Column}, &isType); err != nil || isType == nil {
					return err
				}
				// Not all types have an equality: values are compared as the server writes them.
				return c.Scan(
					fmt.Sprintf(
						"SELECT count(*) FROM %s q WHERE CASE WHEN q.%s IS DISTINCT FROM NULL THEN format('%%s', q.%[2]s) END IS "+
							"DISTINCT FROM $1::text", m.Table, m.Column), []any{m.Content}, &filled)
			})
		})
		if err != nil {
			return err
		}
		if isType == nil || *isType != m.Type {
			return drift.New(
				fmt.Sprintf("column %s of %s, which the step added, is gone, or has another name or type than it left", m.Column,
					m.Table))
		}
		if filled > 0 {
			return drift.New(fmt.Sprintf("%s of %s with a value in the column %s, which the step added; it would be lost",
				activities.CountOf(filled, "row"), m.Table, m.Column))
		}
	}
	return nil
}

// checkRefilled looks for rows that were not put back as they were, or without the row that they
// refer to.
func checkRefilled(c *server.Connection, e emptied) error {
	var missing int64
	if err := c.Scan(
		fmt.Sprintf("SELECT count(*) FROM (SELECT (q.*)::text FROM %s q EXCEPT ALL SELECT (q.*)::text FROM ONLY %s q) s",
			e.Copy, e.Table.Quoted()), nil, &missing); err != nil {
		return err
	}
	if missing > 0 {
		return drift.New(fmt.Sprintf("%d of %s of %s would not be as before; nothing was touched", missing,
			activities.CountOf(e.Rows, "row"), e.Table.FullName()))
	}
	all, err := capture.References(c, &e.Table)
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.Touches != "child" {
			continue
		}
		if err := checkReference(c, r, e.Copy); err != nil {
			return err
		}
	}
	return nil
}

// DropHeld drops what a record holds in schemas of ours: never anything that others have made
// elsewhere and that depends on it.
func DropHeld(c *server.Connection, n int64) error {
	schemas, err := server.Collect(c, pgx.RowTo[string],
		"SELECT quote_ident(nspname) FROM pg_namespace WHERE nspname ~ $1", fmt.Sprintf("^unwind_%d_[0-9]+$", n))
	if err != nil || len(schemas) == 0 {
		return err
	}
	before, err := schema.Objects(c)
	if err != nil {
		return err
	}
	if err := c.Run("DROP SCHEMA " + strings.Join(schemas, ", ") + " CASCADE"); err != nil {
		return err
	}
	after, err := schema.Objects(c)
	if err != nil {
		return err
	}
	for _, o := range schema.Lacking(before, after) {
		if !slices.ContainsFunc(schemas, o.IsIn) {
			return activities.Errorf(activities.Refused,
				"database %s: the %s %s depends on what is kept in %s for an undo, which is no longer needed; nothing was "+
					"dropped; drop it first, or let it use something else",
				c.Name, cmp.Or(strings.ToLower(o.Kind), "object"), o.Name, strings.Join(schemas, ", "))
		}
	}
	return nil
}
