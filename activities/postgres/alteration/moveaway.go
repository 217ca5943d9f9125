package alteration

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/postgres/statement"
)

// laterMoved are the kinds of things that a DROP moves away where what was put aside before depends
// on them.
var laterMoved = map[string]string{"view": "VIEW", "function": "ROUTINE", "procedure": "ROUTINE", "routine": "ROUTINE",
	"aggregate": "ROUTINE"}

// movedKinds are the kinds of things that a DROP moves away, by the word that follows it: they hold
// rows, or are known to others by an id.
var movedKinds = map[string]string{
	"table": "TABLE", "materialized": "MATERIALIZED VIEW", "sequence": "SEQUENCE", "type": "TYPE", "domain": "DOMAIN",
	"schema": "SCHEMA",
}

// moveAway runs a DROP as a move into a schema of ours, where all stays as it is until the record
// is released: rows, indexes, positions of sequences, privileges and comments. What the real
// statement would drop is found out by running it, and rolled back.
func (t *trial) moveAway(kind string) (*Alteration, error) {
	gone, dropped, err := t.tryDrop()
	if err != nil {
		return nil, err
	}
	things, err := t.thingsIn(gone, kind)
	if err == nil && len(things) == 0 { // IF EXISTS, or the schema public
		var is string
		if is, err = schema.Describe(t.Connection); err == nil && is != dropped {
			err = t.noInverse("it drops what was not made in this database")
		}
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	tables := slices.DeleteFunc(gone, func(o schema.Object) bool { return o.Kind != "TABLE" })
	keys, err := t.foreignKeysBetween(tables)
	if err != nil {
		return nil, err
	}
	var a Alteration
	for _, k := range keys {
		if err := t.Run(fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %s", k.Table, k.Name)); err != nil {
			return nil, err
		}
	}
	if kind == "SCHEMA" {
		err = t.renameAway(&a, things[0], tables)
	} else {
		err = t.takeAllAway(&a, things)
	}
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		a.Undo = append(a.Undo, fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %s %s", k.Table, k.Name, k.Definition))
	}
	is, err := schema.Describe(t.Connection)
	if err == nil && is != dropped {
		err = t.noInverse("moved out of the way, it would leave: " + schema.FirstDifference(is, dropped))
	}
	return &a, err
}

// tryDrop runs the statement, and rolls it back: it returns what it drops, and a description of
// what it leaves.
func (t *trial) tryDrop() (gone []schema.Object, left string, err error) {
	before, err := schema.Objects(t.Connection)
	if err != nil {
		return nil, "", err
	}
	err = t.rolledBack(func() error {
		if err := t.Run("SAVEPOINT held"); err != nil {
			return err
		}
		_, _, _, err := statement.Execute(t.Connection, t.Statement, 0)
		if server.IsCode(err, dependent) { // perhaps only for what is put aside
			if err = t.dropHeld(); err == nil {
				before, err = schema.Objects(t.Connection)
			}
			if err == nil {
				_, _, _, err = statement.Execute(t.Connection, t.Statement, 0)
			}
		}
		if err != nil {
			return err
		}
		after, err := schema.Objects(t.Connection)
		if err != nil {
			return err
		}
		gone = schema.Lacking(before, after)
		left, err = schema.Describe(t.Connection)
		return err
	})
	return gone, left, err
}

// dependent is the code of a DROP that fails for what depends on the thing.
const dependent = "2BP01"

// dropHeld drops all that is put aside, in a trial.
func (t *trial) dropHeld() error {
	if err := t.Run("ROLLBACK TO held"); err != nil {
		return err
	}
	all, err := server.Collect(t.Connection, pgx.RowTo[string],
		"SELECT quote_ident(nspname) FROM pg_namespace WHERE nspname ~ $1", schema.HoldingPattern)
	if err != nil || len(all) == 0 {
		return err
	}
	return t.Run("DROP SCHEMA " + strings.Join(all, ", ") + " CASCADE")
}

// renameAway makes a schema one of ours, with all that it has.
func (t *trial) renameAway(a *Alteration, whole schema.Object, tables []schema.Object) error {
	for _, table := range tables {
		if err := t.hold(a, table); err != nil {
			return err
		}
	}
	a.Does = strings.TrimSuffix("drops schema "+whole.Name+" with "+a.Does, " with ")
	a.Undo = []string{fmt.Sprintf("ALTER SCHEMA %s RENAME TO %s", t.holding(), whole.Name)}
	if err := t.Run(fmt.Sprintf("ALTER SCHEMA %s RENAME TO %s", whole.Name, t.holding())); err != nil {
		return fmt.Errorf(
			"a dropped schema cannot be kept; it must belong to the worker's role, which needs CREATE on the database: %w", err)
	}
	return nil
}

// takeAllAway moves things into a schema of ours.
func (t *trial) takeAllAway(a *Alteration, things []schema.Object) error {
	if err := t.Run("CREATE SCHEMA " + t.holding()); err != nil {
		return fmt.Errorf(
			"the schema that holds what is dropped cannot be made; grant CREATE on the database to the worker's role: %w", err)
	}
	for _, each := range things {
		if err := t.hold(a, each); err != nil {
			return err
		}
		last := &a.Held[len(a.Held)-1]
		was, err := t.nameOf(each)
		if err != nil {
			return err
		}
		if err := t.Run(fmt.Sprintf("ALTER %s %s SET SCHEMA %s", each.Kind, was, t.holding())); err != nil {
			return err
		}
		if last.Name, err = t.nameOf(each); err != nil {
			return err
		}
		a.Undo = slices.Insert(a.Undo, 0,
			fmt.Sprintf("ALTER %s %s SET SCHEMA %s", each.Kind, last.Name, server.Quote(last.schema)))
	}
	a.Does = "drops " + a.Does
	a.Undo = append(a.Undo, "DROP SCHEMA "+t.holding())
	return nil
}

// nameOf is the name that a thing has now: that of a function has the types of its arguments, which
// may have moved.
func (t *trial) nameOf(o schema.Object) (name string, err error) {
	return name, schema.WithPlainNames(t.Connection, func() error {
		return t.Scan(
			"SELECT CASE $1::oid::regclass::text WHEN 'pg_class' THEN $2::oid::regclass::text WHEN 'pg_type' THEN "+
				"$2::oid::regtype::text ELSE $2::oid::regprocedure::text END", []any{o.Class, o.OID}, &name)
	})
}

// hold notes where a thing will be, before it moves.
func (t *trial) hold(a *Alteration, o schema.Object) error {
	if o.Kind == "TABLE" {
		if err := t.checkAffected(o.OID, o.Name); err != nil {
			return err
		}
	}
	h := held{Of: o.Name, OID: o.OID}
	if o.Kind != "TABLE" {
		h.Kind = o.Kind
	}
	if err := t.Scan(`SELECT nspname::text, name::text FROM (SELECT 'pg_class'::regclass::oid, oid, relname, relnamespace
		FROM pg_class UNION ALL
		SELECT 'pg_type'::regclass::oid, oid, typname, typnamespace FROM pg_type UNION ALL
		SELECT 'pg_proc'::regclass::oid, oid, proname, pronamespace FROM pg_proc) x(class, id, name, schema)
		JOIN pg_namespace n ON n.oid = schema WHERE class = $1 AND id = $2`,
		[]any{o.Class, o.OID}, &h.schema, &h.table); err != nil {
		return err
	}
	h.Name = t.holding() + "." + server.Quote(h.table)
	a.Held = append(a.Held, h)
	a.Does = strings.TrimPrefix(a.Does+", "+strings.ToLower(o.Kind)+" "+o.Name, ", ")
	return nil
}

// thingsIn are those among the things that a statement drops which have to be moved. It refuses
// what cannot be moved.
func (t *trial) thingsIn(gone []schema.Object, kind string) (things []schema.Object, err error) {
	var tables []uint32
	for _, o := range gone {
		if o.Kind == "" || schema.IsHeld(o.Name) || o.Kind != kind &&
			(kind == "SCHEMA" || !slices.Contains(alsoMoved, o.Kind)) {
			continue
		}
		things = append(things, o)
		if o.Kind == "TABLE" {
			tables = append(tables, o.OID)
		}
	}
	if kind == "SCHEMA" {
		return things, t.checkAlone(things, gone)
	}
	slices.SortStableFunc(things,
		func(a, b schema.Object) int { return slices.Index(alsoMoved, a.Kind) - slices.Index(alsoMoved, b.Kind) })
	var related bool
	if err := t.Scan(
		"SELECT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = ANY($1::oid[]) OR inhparent = ANY($1::oid[]))",
		[]any{tables}, &related); err != nil {
		return nil, err
	}
	if related {
		return nil, t.noInverse("a partition, or a table that others inherit from, cannot be moved out of the way")
	}
	return things, nil
}

// alsoMoved are the kinds of things that move with another by CASCADE, in the order in which they
// move: functions, whose names have types, at the end.
var alsoMoved = []string{"TABLE", "VIEW", "MATERIALIZED VIEW", "DOMAIN", "TYPE", "ROUTINE"}

// checkAlone refuses where several schemas go, or things outside of one.
func (t *trial) checkAlone(schemas, gone []schema.Object) error {
	switch len(schemas) {
	case 0:
		return nil
	case 1:
	default:
		return t.noInverse("it drops several schemas; write a statement for each")
	}
	for _, o := range gone {
		if slices.Contains(alsoMoved, o.Kind) && !schema.IsHeld(o.Name) && !o.IsIn(schemas[0].Name) {
			return t.noInverse(fmt.Sprintf("it drops the %s %s too", strings.ToLower(o.Kind), o.Name))
		}
	}
	return nil
}

// keptKey is a foreign key that does not move with a table.
type keptKey struct{ Table, Name, Definition string }

// foreignKeysBetween lists the foreign keys between these tables and others: they would go on
// binding the others.
func (t *trial) foreignKeysBetween(tables []schema.Object) (all []keptKey, err error) {
	ids := make([]uint32, len(tables))
	for i, o := range tables {
		ids[i] = o.OID
	}
	err = schema.WithPlainNames(t.Connection, func() error {
		all, err = server.Collect(t.Connection, pgx.RowToStructByPos[keptKey],
			`SELECT conrelid::regclass::text, quote_ident(conname), pg_get_constraintdef(oid) FROM pg_constraint
			WHERE contype = 'f' AND conparentid = 0 AND (conrelid = ANY($1::oid[])) <> (confrelid = ANY($1::oid[]))
			ORDER BY 1, 2`, ids)
		return err
	})
	return all, err
}
