package alteration

import (
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

// dropped are columns that a statement has dropped from a table, and where their values are.
type dropped struct {
	// Table is the table as the statement left it.
	Table capture.Table `json:"table"`
	Copy  string        `json:"copy"` // quoted: the keys of the rows and the values
	// Columns are those that went, quoted.
	Columns []string `json:"columns"`
	// Goes and Comes are the lines of the schema's description that the undo takes away and brings
	// back, as it did when it was tried.
	Goes  []string `json:"goes"`
	Comes []string `json:"comes"`
	// Sealed says that the table was so at the end of the step.
	Sealed bool `json:"sealed,omitempty"`
}

// place is a column from the first one on that is dropped.
type place struct {
	Number    int32
	Name      string // quoted
	Type      string // with its collation
	Default   *string
	Generated bool
	Identity  bool

	gone bool
}

// dropColumns runs an ALTER TABLE that may drop columns. Their values are copied before with the
// keys of the rows, and the columns are then really dropped. The undo adds them at the end of the
// table, and the columns that were behind them behind them again.
func (t *trial) dropColumns() (*Alteration, error) {
	gone, left, err := t.tryDrop()
	if err != nil {
		return nil, err
	}
	columns := slices.DeleteFunc(slices.Clone(gone),
		func(o schema.Object) bool { return o.Kind != "COLUMN" || t.did.IsMade(o.OID) })
	if len(columns) == 0 {
		return t.alterInPlace()
	}
	r, places, err := t.checkDroppable(columns)
	if err != nil {
		return nil, err
	}
	if err := t.Run("CREATE SCHEMA " + t.holding() + "; LOCK TABLE " + r.Quoted() +
		" IN ACCESS EXCLUSIVE MODE"); err != nil {
		return nil, fmt.Errorf(
			"the schema that holds the values of dropped columns cannot be made; grant CREATE on the database to the "+
				"worker's role: %w", err)
	}
	stays := capture.Table{OID: r.OID, Schema: r.Schema, Name: r.Name, Key: r.Key}
	d := dropped{Table: stays, Copy: t.holding() + "." + server.Quote(fmt.Sprintf("columns_%d", r.OID))}
	for _, p := range places {
		if p.gone {
			d.Columns = append(d.Columns, p.Name)
		}
	}
	kept := slices.Clone(d.Columns)
	for _, k := range slices.Backward(r.Key) {
		kept = slices.Insert(kept, 0, server.Quote(k))
	}
	tag, err := t.Exec(t.Ctx,
		fmt.Sprintf("CREATE TABLE %s AS SELECT %s FROM ONLY %s", d.Copy, strings.Join(kept, ", "), r.Quoted()))
	if err != nil {
		return nil, t.Explain(err)
	}
	first, err := t.holdSequences(gone)
	if err != nil {
		return nil, err
	}
	a, err := t.alterInPlace()
	if err != nil {
		return nil, err
	}
	a.Does = strings.TrimSuffix(fmt.Sprintf("drops %s of %s (%s), with the values of %s; %s",
		activities.CountOf(len(d.Columns), "column"), r.FullName(),
		strings.Join(d.Columns, ", "), activities.CountOf(tag.RowsAffected(), "row"), a.Does), "; ")
	a.Undo = slices.Concat(first, a.Undo)
	a.Held = append(a.Held, held{Name: d.Copy, Of: r.Quoted(), schema: r.Schema, table: r.Name})
	now, err := capture.Describe(t.Connection, []uint32{r.OID})
	if err != nil {
		return nil, err
	}
	d.Table.Columns = now[0].Columns
	a.Dropped = &d
	a.back = places
	is, err := schema.Describe(t.Connection)
	switch {
	case err != nil:
		return nil, err
	case is != left:
		return nil, t.noInverse("with its values and sequences kept, the column would leave: " +
			schema.FirstDifference(is, left))
	case !slices.Equal(now[0].Key, r.Key):
		return nil, t.noInverse(r.FullName() + withoutKey)
	}
	return a, nil
}

// checkDroppable returns the table, and its columns from the first one on that goes.
func (t *trial) checkDroppable(columns []schema.Object) (*capture.Relation, []place, error) {
	oid := columns[0].OID
	all, err := capture.Describe(t.Connection, []uint32{oid})
	if err != nil {
		return nil, nil, err
	}
	r := all[0]
	var places []place
	if err := schema.WithPlainNames(t.Connection, func() (err error) {
		places, err = server.Collect(t.Connection, func(row pgx.CollectableRow) (p place, err error) {
			return p, row.Scan(&p.Number, &p.Name, &p.Type, &p.Default, &p.Generated, &p.Identity)
		}, `SELECT attnum::int, quote_ident(attname), format_type(atttypid, atttypmod) || CASE
			WHEN attcollation <> typcollation THEN ' COLLATE ' || attcollation::regcollation ELSE '' END,
			pg_get_expr(adbin, adrelid), attgenerated <> '', attidentity <> '' FROM pg_attribute a
			JOIN pg_type t ON t.oid = atttypid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
			WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum`, oid)
		return err
	}); err != nil {
		return nil, nil, err
	}
	for i := range places {
		places[i].gone = slices.ContainsFunc(columns,
			func(o schema.Object) bool { return o.OID == oid && o.Sub == places[i].Number })
	}
	places = places[slices.IndexFunc(places, func(p place) bool { return p.gone }):]
	var related bool
	if err := t.Scan("SELECT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = $1 OR inhparent = $1)", []any{oid},
		&related); err != nil {
		return nil, nil, err
	}
	inKey := func(p place) bool {
		return p.gone && slices.ContainsFunc(r.Key, func(k string) bool { return server.Quote(k) == p.Name || k == p.Name })
	}
	switch {
	case r.Kind != "r" || related:
		return nil, nil, t.noInverse("a column of a partition, or of a table that others inherit from, cannot be put back")
	case r.Security:
		return nil, nil, activities.Errorf(activities.Refused,
			"%s: row security applies to the worker's role, so an undo might not see all rows; give the role BYPASSRLS, or "+
				"make it the owner of the table", r.FullName())
	case len(r.Key) == 0 || slices.ContainsFunc(places, inKey):
		return nil, nil, t.noInverse(r.FullName() + withoutKey)
	case slices.ContainsFunc(places, func(p place) bool { return p.Generated || p.Identity }):
		return nil, nil, t.noInverse("a generated or identity column goes, or stands behind one that goes")
	}
	if firing, err := findFiring(t.Connection, oid); err != nil || firing != "" {
		if err == nil {
			err = t.noInverse(fmt.Sprintf("%s would run on the rows while an undo fills them", firing))
		}
		return nil, nil, err
	}
	return r, places, t.checkAffected(oid, r.FullName())
}

const withoutKey = " would have no primary key or unique index on columns that are NOT NULL and stay, by which the " +
	"values find their rows again"

// findFiring returns a trigger or rule that is enabled so that it runs on rows that an undo
// updates; empty if there is none.
func findFiring(c *server.Connection, oid uint32) (found string, err error) {
	const update = 16 // of tgtype
	return found,
		c.Scan(`SELECT coalesce((SELECT format('trigger %I', tgname) FROM pg_trigger WHERE tgrelid = $1 AND NOT tgisinternal
			AND tgenabled IN ('A', 'R') AND tgtype & $2 > 0 LIMIT 1),
		(SELECT format('rule %I', rulename) FROM pg_rewrite WHERE ev_class = $1 AND ev_type = '2'
		AND ev_enabled IN ('A', 'R') LIMIT 1), '')`, []any{oid, update}, &found)
}

// holdSequences moves the sequences away that go with the columns, and returns how they come back.
func (t *trial) holdSequences(gone []schema.Object) (undo []string, err error) {
	for _, o := range gone {
		if o.Kind != "SEQUENCE" {
			continue
		}
		var from, name string
		if err := t.Scan(
			"SELECT nspname::text, relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = $1",
			[]any{o.OID}, &from, &name); err != nil {
			return nil, err
		}
		if err := t.Run(fmt.Sprintf("ALTER SEQUENCE %s OWNED BY NONE; ALTER SEQUENCE %[1]s SET SCHEMA %s", o.Name,
			t.holding())); err != nil {
			return nil, err
		}
		undo = append(undo,
			fmt.Sprintf("ALTER SEQUENCE %s.%s SET SCHEMA %s", t.holding(), server.Quote(name), server.Quote(from)))
	}
	return undo, nil
}

// putColumnsBack adds the statements to the inverse that bring columns back: new ones at the end of
// the table, filled, in the order in which they were, while the old ones behind them go. What hangs
// on those is dropped by name, never by CASCADE.
func (t *trial) putColumnsBack(a *Alteration) error {
	d := a.Dropped
	name := d.Table.Quoted()
	var adds, sets, drops, renames []string
	for i, p := range a.back {
		if p.gone {
			lost := "q." + p.Name // NULL, or what the type has by default
			if p.Default != nil {
				lost = *p.Default
			}
			adds = append(adds, fmt.Sprintf("ADD COLUMN %s %s", p.Name, p.Type))
			sets = append(sets,
				fmt.Sprintf("%s = CASE WHEN h.%s IS NULL THEN %s ELSE h.%[1]s END", p.Name, server.Quote(d.Table.Key[0]), lost))
			continue
		}
		temporary := server.Quote(fmt.Sprintf("unwind!%d", i))
		adds = append(adds, fmt.Sprintf("ADD COLUMN %s %s", temporary, p.Type))
		sets = append(sets, fmt.Sprintf("%s = q.%s", temporary, p.Name))
		drops = append(drops, "DROP COLUMN "+p.Name)
		renames = append(renames, fmt.Sprintf("ALTER TABLE %s RENAME COLUMN %s TO %s", name, temporary, p.Name))
	}
	steps := []string{
		fmt.Sprintf("ALTER TABLE %s %s", name, strings.Join(adds, ", ")),
		fmt.Sprintf("UPDATE ONLY %[1]s q SET %[2]s FROM ONLY %[1]s same LEFT JOIN %[3]s h ON %[4]s WHERE %[5]s", name,
			strings.Join(sets, ", "), d.Copy,
			capture.SameColumns("same", d.Table.Key, "h.*", d.Table.Key),
			capture.SameColumns("same", d.Table.Key, "q.*", d.Table.Key)),
	}
	if drops != nil {
		alter := fmt.Sprintf("ALTER TABLE %s %s", name, strings.Join(drops, ", "))
		for _, s := range steps {
			if err := t.tryBack(s); err != nil {
				return err
			}
		}
		hanging, err := t.hanging(alter + " CASCADE")
		if err != nil {
			return err
		}
		a.Undo = append(a.Undo, steps...)
		steps = append(append(hanging, alter), renames...)
	}
	for _, s := range steps {
		if err := t.tryBack(s); err != nil {
			return err
		}
	}
	a.Undo = append(a.Undo, steps...)
	return nil
}

// hanging are the statements that drop what only CASCADE would take along.
func (t *trial) hanging(cascade string) (drops []string, err error) {
	was, err := schema.Traits(t.Connection)
	if err != nil {
		return nil, err
	}
	if err := t.Run("SAVEPOINT hanging"); err != nil {
		return nil, err
	}
	cascade = strings.ReplaceAll(cascade, ", DROP COLUMN", " CASCADE, DROP COLUMN")
	if err := t.tryBack(cascade); err != nil {
		return nil, err
	}
	is, err := schema.Traits(t.Connection)
	if err != nil {
		return nil, err
	}
	for _, gone := range slices.Backward(schema.Compare(was, is).Gone) {
		if gone.Hangs() {
			drops = append(drops, gone.Drop)
		}
	}
	return drops, t.Run("ROLLBACK TO hanging; RELEASE hanging")
}

// findReshaped returns what others did to a table of which the step has dropped columns; empty if
// nothing that an undo would lose.
func findReshaped(c *server.Connection, d *dropped) (problem string, err error) {
	now, err := capture.Describe(c, []uint32{d.Table.OID})
	if err != nil {
		return "", err
	}
	switch {
	case len(now) == 0:
		return fmt.Sprintf("table %s, of which the step has dropped columns, is gone", d.Table.FullName()), nil
	case now[0].FullName() != d.Table.FullName() || !slices.Equal(now[0].Columns, d.Table.Columns):
		return fmt.Sprintf("table %s, of which the step has dropped columns, was altered\n- %s\n+ %s", d.Table.FullName(),
			capture.ListColumns(d.Table.Columns), capture.ListColumns(now[0].Columns)), nil
	case now[0].Security:
		return fmt.Sprintf("row security now applies to the worker's role on table %s", d.Table.FullName()), nil
	}
	if !slices.Equal(now[0].Key, d.Table.Key) {
		return fmt.Sprintf(
			"the primary key or unique index of table %s, by which the values of dropped columns find their rows again, is "+
				"another one now", d.Table.FullName()), nil
	}
	firing, err := findFiring(c, d.Table.OID)
	if err == nil && firing != "" {
		problem = fmt.Sprintf("%s of table %s would run on the rows while an undo fills the dropped columns", firing,
			d.Table.FullName())
	}
	return problem, err
}

// findUnmatched returns why values cannot be given back to their rows; empty if they can. Rows that
// others have inserted get the default of a column, and values of rows that they have deleted are
// not needed; but a row whose key they have changed looks like both.
func findUnmatched(c *server.Connection, d *dropped) (problem string, err error) {
	var without, lost int64
	same := capture.SameColumns("q", d.Table.Key, "h.*", d.Table.Key)
	if err := c.Scan(
		fmt.Sprintf(
			"SELECT (SELECT count(*) FROM ONLY %[1]s q WHERE NOT EXISTS (SELECT FROM %[2]s h WHERE %[3]s)), (SELECT "+
				"count(*) FROM %[2]s h WHERE NOT EXISTS (SELECT FROM ONLY %[1]s q WHERE %[3]s))",
			d.Table.Quoted(), d.Copy, same), nil, &without, &lost); err != nil {
		return "", err
	}
	if without > 0 && lost > 0 {
		problem = fmt.Sprintf(
			"%s of %s with a key that is new since the step, and %s gone: whether rows were deleted and inserted or their "+
				"keys changed, and so which value belongs to which, is not known",
			activities.CountOf(without, "row"), d.Table.FullName(), activities.CountOf(lost, "key"))
	}
	return problem, nil
}

// findHindrance locks the table, and returns why its columns cannot be put back; empty if they can.
func findHindrance(c *server.Connection, d *dropped) (problem string, err error) {
	for _, look := range []func(*server.Connection, *dropped) (string, error){
		findReshaped,
		func(c *server.Connection, d *dropped) (string, error) {
			return "", c.Run("LOCK TABLE " + d.Table.Quoted() + " IN ACCESS EXCLUSIVE MODE")
		},
		findReshaped, findUnmatched,
	} {
		if problem, err = look(c, d); err != nil || problem != "" {
			return problem, err
		}
	}
	return "", nil
}

// watch runs an undo that puts columns back. It is drift if that does anything else to the schema
// than it did when it was tried, since it makes things anew that others may have changed, or if a
// row does not get its values.
func watch(c *server.Connection, d *dropped, undo func() error) error {
	was, err := schema.Describe(c)
	if err != nil {
		return err
	}
	if err := undo(); err != nil {
		return err
	}
	is, err := schema.Describe(c)
	if err != nil {
		return err
	}
	lacks := func(lines, known []string) (more []string) {
		return slices.DeleteFunc(lines, func(line string) bool { return slices.Contains(known, line) })
	}
	lost, back := lacks(schema.MissingLines(was, is), d.Goes), lacks(schema.MissingLines(is, was), d.Comes)
	if len(lost)+len(back) > 0 {
		var shown strings.Builder
		for _, line := range lost {
			fmt.Fprintf(&shown, "\n- %s", line)
		}
		for _, line := range back {
			fmt.Fprintf(&shown, "\n+ %s", line)
		}
		return drift.New(
			fmt.Sprintf(
				"others have changed what hangs on table %s, of which the step has dropped columns; an undo would lose it%s",
				d.Table.FullName(), shown.String()))
	}
	row := func(of string) string { return "ROW(" + of + strings.Join(d.Columns, ", "+of) + ")::text" }
	var other int64
	if err := c.Scan(fmt.Sprintf("SELECT count(*) FROM ONLY %s q JOIN %s h ON %s WHERE %s <> %s", d.Table.Quoted(), d.Copy,
		capture.SameColumns("q", d.Table.Key, "h.*", d.Table.Key), row("q."), row("h.")),
		nil, &other); err != nil {
		return err
	}
	if other > 0 {
		return drift.New(fmt.Sprintf("%s of %s would not have the values of the dropped columns back; nothing was touched",
			activities.CountOf(other, "row"), d.Table.FullName()))
	}
	return nil
}
