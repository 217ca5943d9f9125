package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// moveAway runs a DROP TABLE as a move into a schema of ours, where the tables stay as they are until the record is released: with rows,
// indexes, sequences, privileges and comments. What the real statement would drop is found out by running it, and rolled back.
func (t *trial) moveAway() (*alteration, error) {
	before, err := t.objects()
	if err != nil {
		return nil, err
	}
	var gone []object
	var dropped string
	if err := t.rolledBack(func() error {
		if _, _, _, err := t.execute(t.statement, 0); err != nil {
			return err
		}
		after, err := t.objects()
		if err != nil {
			return err
		}
		gone = lacking(before, after)
		dropped, err = t.describe()
		return err
	}); err != nil {
		return nil, err
	}
	tables, err := t.tablesIn(gone)
	if err != nil || len(tables) == 0 { // IF EXISTS
		return nil, err
	}
	if err := t.run("CREATE SCHEMA " + t.holding()); err != nil {
		return nil, fmt.Errorf("the schema that holds dropped tables cannot be made; grant CREATE on the database to the worker's role: %w", err)
	}
	keys, err := t.foreignKeysBetween(tables)
	if err != nil {
		return nil, err
	}
	var a alteration
	for _, k := range keys {
		if err := t.run(fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %s", k.Table, k.Name)); err != nil {
			return nil, err
		}
	}
	for _, table := range tables {
		if err := t.takeAway(&a, table); err != nil {
			return nil, err
		}
	}
	a.Undo = append(a.Undo, "DROP SCHEMA "+t.holding())
	for _, k := range keys {
		a.Undo = append(a.Undo, fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %s %s", k.Table, k.Name, k.Definition))
	}
	is, err := t.describe()
	if err == nil && is != dropped {
		err = t.noInverse("moved out of the way, the tables would leave: " + firstDifference(is, dropped))
	}
	return &a, err
}

// takeAway moves one table into the schema of ours.
func (t *trial) takeAway(a *alteration, table object) error {
	if err := t.checkAffected(table.OID, table.Name); err != nil {
		return err
	}
	var schema, name string
	if err := t.scan("SELECT nspname::text, relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = $1", []any{table.OID}, &schema, &name); err != nil {
		return err
	}
	if err := t.run(fmt.Sprintf("ALTER TABLE %s SET SCHEMA %s", table.Name, t.holding())); err != nil {
		return err
	}
	moved := held{Name: t.holding() + "." + quote(name), Of: table.Name, schema: schema, table: name}
	a.Held = append(a.Held, moved)
	a.Undo = append(a.Undo, fmt.Sprintf("ALTER TABLE %s SET SCHEMA %s", moved.Name, quote(schema)))
	a.Does = strings.TrimPrefix(a.Does+", drops table "+table.Name, ", ")
	return nil
}

// tablesIn are the tables among things that a statement drops. It refuses what cannot be moved.
func (t *trial) tablesIn(gone []object) (tables []object, err error) {
	var ids []uint32
	for _, o := range gone {
		switch o.Kind {
		case "TABLE":
			tables, ids = append(tables, o), append(ids, o.OID)
		case "VIEW", "MATERIALIZED VIEW", "ROUTINE", "DOMAIN", "TYPE", "SCHEMA":
			return nil, t.noInverse(fmt.Sprintf("it drops the %s %s too", strings.ToLower(o.Kind), o.Name))
		}
	}
	var related bool
	if err := t.scan("SELECT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = ANY($1::oid[]) OR inhparent = ANY($1::oid[]))", []any{ids}, &related); err != nil {
		return nil, err
	}
	if related {
		return nil, t.noInverse("a partition, or a table that others inherit from, cannot be moved out of the way")
	}
	return tables, nil
}

// keptKey is a foreign key that does not move with a table.
type keptKey struct{ Table, Name, Definition string }

// foreignKeysBetween lists the foreign keys between these tables and others: they would go on binding the others.
func (t *trial) foreignKeysBetween(tables []object) (all []keptKey, err error) {
	ids := make([]uint32, len(tables))
	for i, o := range tables {
		ids[i] = o.OID
	}
	err = t.withPlainNames(func() error {
		all, err = collect(t.connection, pgx.RowToStructByPos[keptKey], `SELECT conrelid::regclass::text, quote_ident(conname), pg_get_constraintdef(oid) FROM pg_constraint
			WHERE contype = 'f' AND conparentid = 0 AND (conrelid = ANY($1::oid[])) <> (confrelid = ANY($1::oid[])) ORDER BY 1, 2`, ids)
		return err
	})
	return all, err
}
