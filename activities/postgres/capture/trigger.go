package capture

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// capture is the SQL of the function that the trigger of a table calls for each row that a step changes.
func (t *Table) capture() string {
	return fmt.Sprintf(`
DECLARE r bigint := pg_catalog.current_setting('unwind.record');
BEGIN
	IF TG_OP = 'INSERT' THEN
		INSERT INTO unwind.change (record, relid, new_key, new) VALUES (r, TG_RELID, %[2]s, NEW::pg_catalog.text);
	ELSIF TG_OP = 'DELETE' THEN
		INSERT INTO unwind.change (record, relid, old_key, old) VALUES (r, TG_RELID, %[1]s, OLD::pg_catalog.text);
	ELSE
		INSERT INTO unwind.change (record, relid, old_key, old, new_key, new) VALUES (r, TG_RELID, %[1]s, OLD::pg_catalog.text, %[2]s, NEW::pg_catalog.text);
	END IF;
	RETURN NULL;
END`, t.KeyOf("OLD"), t.KeyOf("NEW"))
}

func (t *Table) function() string { return server.Quote("unwind", fmt.Sprintf("capture_%d", t.OID)) }

// SQL makes a table ready for steps: with a trigger that does nothing unless a step of ours changes a row.
func (t *Table) SQL() string {
	settings, _ := server.CanonicalFor()
	return fmt.Sprintf(`CREATE OR REPLACE FUNCTION %[1]s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER%[5]s AS $capture$%[2]s$capture$;
DROP TRIGGER IF EXISTS %[3]s ON %[4]s;
CREATE TRIGGER %[3]s AFTER INSERT OR UPDATE OR DELETE ON %[4]s FOR EACH ROW
	WHEN (pg_catalog.current_setting('unwind.record', true) <> '') EXECUTE FUNCTION %[1]s();`,
		t.function(), t.capture(), server.Quote(server.TriggerName), t.Quoted(), settings)
}

// Prepare makes tables ready, in a transaction of its own or in the current one.
func Prepare(c *server.Connection, tables []*Relation) error {
	for _, r := range tables {
		if err := c.Run(r.SQL()); err != nil {
			return fmt.Errorf("%s: the trigger that captures rows cannot be made; grant TRIGGER on the table to the worker's role, or make it by hand with this SQL:\n%s\n%w",
				r.FullName(), r.SQL(), err)
		}
	}
	return nil
}

// Mend makes the triggers anew that name columns by names which the transaction has changed.
func Mend(c *server.Connection) error {
	ids, err := server.Collect(c, pgx.RowTo[uint32], "SELECT tgrelid FROM pg_trigger WHERE tgname = $1 AND EXISTS (SELECT FROM pg_attribute x WHERE attrelid = tgrelid AND "+schema.Ours+")", server.TriggerName)
	if err != nil || ids == nil {
		return err
	}
	all, err := Describe(c, ids)
	if err != nil {
		return err
	}
	return Prepare(c, slices.DeleteFunc(all, func(r *Relation) bool { return r.Captured || len(r.Key) == 0 }))
}

// Stale is the error Uncaptured if a statement failed in a trigger of ours that names a column by a name which it had before.
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

// Renew makes the triggers of ours anew: their functions have the numbers of the tables in their names.
func Renew(c *server.Connection) error {
	ids, err := server.Collect(c, pgx.RowTo[uint32], "SELECT tgrelid FROM pg_trigger WHERE tgname = $1 AND tgparentid = 0", server.TriggerName)
	if err != nil {
		return err
	}
	all, err := Describe(c, ids)
	if err != nil {
		return err
	}
	for _, r := range all {
		if err := c.Run(fmt.Sprintf("DROP TRIGGER %s ON %s", server.Quote(server.TriggerName), r.Quoted())); err != nil {
			return err
		}
	}
	functions, err := server.Collect(c, pgx.RowTo[string], `SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'unwind'::regnamespace AND proname ~ '^capture_[0-9]+$'`)
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
