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

// movedKinds are the kinds of things that a DROP moves away, by the word that follows it: they hold rows, or are known to others by an id.
var movedKinds = map[string]string{
	"table": "TABLE", "materialized": "MATERIALIZED VIEW", "sequence": "SEQUENCE", "type": "TYPE", "domain": "DOMAIN", "schema": "SCHEMA",
}

// moveAway runs a DROP as a move into a schema of ours, where all stays as it is until the record is released: rows, indexes, positions of
// sequences, privileges and comments. What the real statement would drop is found out by running it, and rolled back.
func (t *trial) moveAway(kind string) (*Alteration, error) {
	gone, dropped, err := t.tryDrop()
	if err != nil {
		return nil, err
	}
	things, err := t.thingsIn(gone, kind)
	if err != nil || len(things) == 0 { // IF EXISTS
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

// tryDrop runs the statement, and rolls it back: it returns what it drops, and a description of what it leaves.
func (t *trial) tryDrop() (gone []schema.Object, left string, err error) {
	before, err := schema.Objects(t.Connection)
	if err != nil {
		return nil, "", err
	}
	err = t.rolledBack(func() error {
		if _, _, _, err := statement.Execute(t.Connection, t.Statement, 0); err != nil {
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
		return fmt.Errorf("a dropped schema cannot be kept; it must belong to the worker's role, which needs CREATE on the database: %w", err)
	}
	return nil
}

// takeAllAway moves things into a schema of ours.
func (t *trial) takeAllAway(a *Alteration, things []schema.Object) error {
	if err := t.Run("CREATE SCHEMA " + t.holding()); err != nil {
		return fmt.Errorf("the schema that holds what is dropped cannot be made; grant CREATE on the database to the worker's role: %w", err)
	}
	for _, each := range things {
		if err := t.hold(a, each); err != nil {
			return err
		}
		last := a.Held[len(a.Held)-1]
		if err := t.Run(fmt.Sprintf("ALTER %s %s SET SCHEMA %s", each.Kind, each.Name, t.holding())); err != nil {
			return err
		}
		a.Undo = append(a.Undo, fmt.Sprintf("ALTER %s %s SET SCHEMA %s", each.Kind, last.Name, server.Quote(last.schema)))
	}
	a.Does = "drops " + a.Does
	a.Undo = append(a.Undo, "DROP SCHEMA "+t.holding())
	return nil
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
	if err := t.Scan(`SELECT nspname::text, name::text FROM (SELECT 'pg_class'::regclass::oid, oid, relname, relnamespace FROM pg_class UNION ALL
		SELECT 'pg_type'::regclass::oid, oid, typname, typnamespace FROM pg_type) x(class, id, name, schema) JOIN pg_namespace n ON n.oid = schema WHERE class = $1 AND id = $2`,
		[]any{o.Class, o.OID}, &h.schema, &h.table); err != nil {
		return err
	}
	h.Name = t.holding() + "." + server.Quote(h.table)
	a.Held = append(a.Held, h)
	a.Does = strings.TrimPrefix(a.Does+", "+strings.ToLower(o.Kind)+" "+o.Name, ", ")
	return nil
}

// thingsIn are those among the things that a statement drops which have to be moved. It refuses what cannot be moved.
func (t *trial) thingsIn(gone []schema.Object, kind string) (things []schema.Object, err error) {
	var tables []uint32
	for _, o := range gone {
		if o.Kind == kind {
			things = append(things, o)
			tables = append(tables, o.OID)
		}
	}
	if kind == "SCHEMA" && len(things) > 1 {
		return nil, t.noInverse("it drops several schemas; write a statement for each")
	}
	for _, o := range gone {
		switch o.Kind {
		case kind:
		case "TABLE", "VIEW", "MATERIALIZED VIEW", "ROUTINE", "DOMAIN", "TYPE", "SCHEMA":
			if kind != "SCHEMA" || !o.IsIn(things[0].Name) {
				return nil, t.noInverse(fmt.Sprintf("it drops the %s %s too", strings.ToLower(o.Kind), o.Name))
			}
		}
	}
	if kind != "TABLE" {
		return things, nil
	}
	var related bool
	if err := t.Scan("SELECT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = ANY($1::oid[]) OR inhparent = ANY($1::oid[]))", []any{tables}, &related); err != nil {
		return nil, err
	}
	if related {
		return nil, t.noInverse("a partition, or a table that others inherit from, cannot be moved out of the way")
	}
	return things, nil
}

// keptKey is a foreign key that does not move with a table.
type keptKey struct{ Table, Name, Definition string }

// foreignKeysBetween lists the foreign keys between these tables and others: they would go on binding the others.
func (t *trial) foreignKeysBetween(tables []schema.Object) (all []keptKey, err error) {
	ids := make([]uint32, len(tables))
	for i, o := range tables {
		ids[i] = o.OID
	}
	err = schema.WithPlainNames(t.Connection, func() error {
		all, err = server.Collect(t.Connection, pgx.RowToStructByPos[keptKey], `SELECT conrelid::regclass::text, quote_ident(conname), pg_get_constraintdef(oid) FROM pg_constraint
			WHERE contype = 'f' AND conparentid = 0 AND (conrelid = ANY($1::oid[])) <> (confrelid = ANY($1::oid[])) ORDER BY 1, 2`, ids)
		return err
	})
	return all, err
}
