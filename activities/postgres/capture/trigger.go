package capture

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// captureRow is the SQL of the function that the trigger of a table calls for each row that a step
// changes.
func (r *Relation) captureRow() string {
	return fmt.Sprintf(`
DECLARE r bigint := pg_catalog.current_setting('unwind.record');
BEGIN
	IF TG_OP = 'INSERT' THEN
		INSERT INTO unwind.change (record, relid, new) VALUES (r, TG_RELID, ARRAY[NEW::pg_catalog.text]);
	ELSIF TG_OP = 'DELETE' THEN
		INSERT INTO unwind.change (record, relid, old) VALUES (r, TG_RELID, ARRAY[OLD::pg_catalog.text]);
	ELSE
		INSERT INTO unwind.change (record, relid, old, new, moved)
		VALUES (r, TG_RELID, ARRAY[OLD::pg_catalog.text], ARRAY[NEW::pg_catalog.text], %s);
	END IF;
	RETURN NULL;
END`, isMoved(r.keyRow("OLD"), r.keyRow("NEW")))
}

// captureStatement is the same for all rows that one statement changes, a batch of them at a time.
// The server keeps an old row and a new one of an UPDATE at the same place.
func (r *Relation) captureStatement() string {
	batches := func(table string) string {
		return fmt.Sprintf(`(SELECT q.batch, pg_catalog.array_agg(q.image) AS images, pg_catalog.array_agg(q.key) AS keys
			FROM (SELECT pg_catalog.row_number() OVER () / %d AS batch, (q.*)::pg_catalog.text AS image, %s AS key FROM %s q) q
			GROUP BY q.batch)`, Batch, r.keyRow("q"), table)
	}
	return fmt.Sprintf(`
DECLARE r bigint := pg_catalog.current_setting('unwind.record');
BEGIN
	IF TG_OP = 'INSERT' THEN
		INSERT INTO unwind.change (record, relid, new) SELECT r, TG_RELID, n.images FROM %[2]s n;
	ELSIF TG_OP = 'DELETE' THEN
		INSERT INTO unwind.change (record, relid, old) SELECT r, TG_RELID, o.images FROM %[1]s o;
	ELSE
		INSERT INTO unwind.change (record, relid, old, new, moved) SELECT r, TG_RELID, o.images, n.images, %[3]s
			FROM %[1]s o JOIN %[2]s n USING (batch);
	END IF;
	RETURN NULL;
END`, batches("old_rows"), batches("new_rows"), isMoved("ROW(o.keys)", "ROW(n.keys)"))
}

// isMoved is the condition that keys differ in any bit: those that are equal may have other texts.
func isMoved(before, after string) string {
	return fmt.Sprintf("pg_catalog.record_image_ne(%s, %s)", before, after)
}

// trigger is one of ours on a table.
type trigger struct{ name, event, refers string }

// The triggers that a table needs, by name. A statement on a table with parents or children shows
// rows of all of them to the triggers of that table, and none to theirs: only triggers for each row
// see whose they are.
var (
	eachRow       = []trigger{{server.TriggerName, "INSERT OR UPDATE OR DELETE", ""}}
	eachStatement = []trigger{
		{server.TriggerName + " delete", "DELETE", " REFERENCING OLD TABLE AS old_rows"},
		{server.TriggerName + " insert", "INSERT", " REFERENCING NEW TABLE AS new_rows"},
		{server.TriggerName + " update", "UPDATE", " REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows"},
	}
)

// listTriggers lists triggers, and what they run, as describe finds them.
func listTriggers(all []trigger, source string) string {
	lines := make([]string, len(all))
	for i, each := range all {
		lines[i] = each.name + ": " + source
	}
	return strings.Join(lines, "\n")
}

// DropTriggers is the SQL that takes our triggers off a table, given its quoted name.
func DropTriggers(table string) string {
	var sql []string
	for _, each := range slices.Concat(eachRow, eachStatement) {
		sql = append(sql, fmt.Sprintf("DROP TRIGGER IF EXISTS %s ON %s", server.Quote(each.name), table))
	}
	return strings.Join(sql, ";\n")
}

func (r *Relation) function() string { return server.Quote("unwind", fmt.Sprintf("capture_%d", r.OID)) }

// SQL makes a table ready for steps: with triggers that do nothing unless a step of ours changes a
// row.
func (r *Relation) SQL() string {
	settings, _ := server.CanonicalFor()
	captures, triggers, each := r.captureStatement(), eachStatement, "STATEMENT"
	if r.Related {
		captures, triggers, each = r.captureRow(), eachRow, "ROW"
	}
	sql := []string{
		fmt.Sprintf(
			"CREATE OR REPLACE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER%s AS $capture$%s$capture$;\n%s;",
			r.function(), settings, captures, DropTriggers(r.Quoted()))}
	for _, one := range triggers {
		sql = append(sql,
			fmt.Sprintf(
				"CREATE TRIGGER %s AFTER %s ON %s%s FOR EACH %s\n\tWHEN (pg_catalog.current_setting('unwind.record', true) <> "+
					"'') EXECUTE FUNCTION %s();",
				server.Quote(one.name), one.event, r.Quoted(), one.refers, each, r.function()))
	}
	return strings.Join(sql, "\n")
}

// Prepare makes tables ready, in a transaction of its own or in the current one.
func Prepare(c *server.Connection, tables []*Relation) error {
	for _, r := range tables {
		if err := c.Run(r.SQL()); err != nil {
			return fmt.Errorf(
				"%s: the triggers that capture rows cannot be made; grant TRIGGER on the table to the worker's role, or make "+
					"it by hand with this SQL:\n%s\n%w",
				r.FullName(), r.SQL(), err)
		}
	}
	return nil
}

// Mend makes the triggers anew that name columns by names which the transaction has changed, or
// whose table it has given parents or children.
func Mend(c *server.Connection) error {
	ids, err := server.Collect(c, pgx.RowTo[uint32],
		"SELECT DISTINCT tgrelid FROM pg_trigger WHERE "+server.IsTrigger+
			" AND (EXISTS (SELECT FROM pg_attribute x WHERE attrelid = tgrelid AND "+schema.Ours+`)
		OR EXISTS (SELECT FROM pg_inherits x WHERE tgrelid IN (inhrelid, inhparent) AND `+schema.Ours+"))")
	if err != nil || ids == nil {
		return err
	}
	all, err := Describe(c, ids)
	if err != nil {
		return err
	}
	return Prepare(c, slices.DeleteFunc(all, func(r *Relation) bool { return r.Captured || len(r.Key) == 0 }))
}

// Stale is the error Uncaptured if a statement failed in a trigger of ours that names a column by a
// name which it had before.
func Stale(err error) error {
	said, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || said.Code != undefinedColumn {
		return err
	}
	found := captureFunction.FindStringSubmatch(said.Where)
	if found == nil {
		return err
	}
	oid, _ := strconv.ParseUint(found[1], 10, 32) // digits
	return Uncaptured{[]uint32{uint32(oid)}}
}

const undefinedColumn = "42703"

var captureFunction = regexp.MustCompile(`PL/pgSQL function unwind\.capture_([0-9]+)\(\)`)

// Renew makes the triggers of ours anew: their functions have the numbers of the tables in their
// names.
func Renew(c *server.Connection) error {
	ids, err := server.Collect(c, pgx.RowTo[uint32],
		"SELECT DISTINCT tgrelid FROM pg_trigger WHERE "+server.IsTrigger+" AND tgparentid = 0")
	if err != nil {
		return err
	}
	all, err := Describe(c, ids)
	if err != nil {
		return err
	}
	for _, r := range all {
		if err := c.Run(DropTriggers(r.Quoted())); err != nil {
			return err
		}
	}
	functions, err := server.Collect(c, pgx.RowTo[string],
		`SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'unwind'::regnamespace
			AND proname ~ '^capture_[0-9]+$'`)
	if err != nil {
		return err
	}
	for _, f := range functions {
		if err := c.Run("DROP FUNCTION " + f); err != nil {
			return err
		}
	}
	return Prepare(c, all)
}
