package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// TestRowsComeBackInAnOrderThatTheirChecksAllow: no foreign key tells which rows a CHECK reads.
func TestRowsComeBackInAnOrderThatTheirChecksAllow(t *testing.T) {
	t.Parallel()
	// Of each pair of tables, the one reads the other.
	const needs = `CREATE FUNCTION there(int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RETURN EXISTS (SELECT FROM %[1]s
		WHERE id = $1); END $$;
		CREATE TABLE %[1]s (id int PRIMARY KEY); CREATE TABLE %[2]s (id int PRIMARY KEY, needs int CHECK (there(needs)));
		INSERT INTO %[1]s SELECT generate_series(1, 5); INSERT INTO %[2]s SELECT g, g FROM generate_series(1, 5) g`
	const chain = `CREATE TABLE t (id int PRIMARY KEY, up int); INSERT INTO t VALUES (1, NULL);
		CREATE FUNCTION there(int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RETURN $1 IS NULL OR EXISTS (SELECT FROM t
		WHERE id = $1); END $$;
		ALTER TABLE t ADD CHECK (there(up)); INSERT INTO t VALUES (3, 1), (2, 3), (4, 2), (5, 2), (9, 4), (8, 9)`
	const mutual = `CREATE TABLE a (id int PRIMARY KEY, b int); CREATE TABLE b (id int PRIMARY KEY, a int);
		CREATE FUNCTION in_a(int) RETURNS bool LANGUAGE sql AS 'SELECT EXISTS (SELECT FROM a WHERE id = $1)';
		CREATE FUNCTION in_b(int) RETURNS bool LANGUAGE sql AS 'SELECT EXISTS (SELECT FROM b WHERE id = $1)';
		INSERT INTO a VALUES (1, NULL); ALTER TABLE a ADD CHECK (b IS NULL OR in_b(b)); ALTER TABLE b ADD CHECK (in_a(a));
		INSERT INTO b VALUES (1, 1); INSERT INTO a VALUES (2, 1); INSERT INTO b VALUES (2, 2); INSERT INTO a VALUES (3, 2)`
	const always = `CREATE TABLE x (id int PRIMARY KEY); CREATE TABLE y (id int PRIMARY KEY); INSERT INTO x VALUES (1);
		INSERT INTO y VALUES (1); CREATE TABLE seen (n bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY);
		CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NOT EXISTS (SELECT
		FROM y) THEN RAISE 'y is empty'; END IF; INSERT INTO seen DEFAULT VALUES; RETURN NULL; END $$;
		CREATE TRIGGER look AFTER INSERT ON x FOR EACH ROW EXECUTE FUNCTION look(); ALTER TABLE x ENABLE ALWAYS TRIGGER look`
	for name, c := range map[string]struct {
		schema     string
		statements []string
	}{
		"by name before": {fmt.Sprintf(needs, "a", "b"),
			[]string{"DELETE FROM b", "DELETE FROM a"}},
		"by name after": {fmt.Sprintf(needs, "z", "b"),
			[]string{"DELETE FROM b", "DELETE FROM z"}},
		"by name far after": {fmt.Sprintf(needs, "z", "b") +
			"; CREATE TABLE m (id int PRIMARY KEY); INSERT INTO m VALUES (1)",
			[]string{"DELETE FROM b", "DELETE FROM m", "DELETE FROM z"}},
		"keys that change": {fmt.Sprintf(needs, "z", "b"),
			[]string{"UPDATE z SET id = id + 10", "UPDATE b SET needs = needs + 10"}},
		"truncated":                                 {fmt.Sprintf(needs, "z", "b"), []string{"TRUNCATE z, b"}},
		"truncated the other way":                   {fmt.Sprintf(needs, "z", "b"), []string{"TRUNCATE b", "TRUNCATE z"}},
		"in the table itself":                       {chain, []string{"DELETE FROM t"}},
		"in the table itself, and changed":          {chain, []string{"UPDATE t SET id = id + 10, up = NULL"}},
		"in the table itself, and truncated":        {chain, []string{"TRUNCATE t"}},
		"of each other":                             {mutual, []string{"DELETE FROM a", "DELETE FROM b"}},
		"of each other, and truncated":              {mutual, []string{"TRUNCATE a, b"}},
		"a trigger that always runs":                {always, []string{"DELETE FROM x", "DELETE FROM y"}},
		"a trigger that always runs, and truncated": {always, []string{"TRUNCATE x, y"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, c.schema)
			before := d.dump()
			s := d.exec(c.statements...)
			s.apply()
			require.NotEqual(t, before, d.dump())
			s.undo(activities.Restored)
			require.Equal(t, before, d.dump())
		})
	}
}

// TestRowsThatTheirChecksWouldNotTakeBackAreNotTouched: the undo of the step was tried.
func TestRowsThatTheirChecksWouldNotTakeBackAreNotTouched(t *testing.T) {
	t.Parallel()
	d := newDatabase(t,
		`CREATE TABLE z (id int PRIMARY KEY); CREATE FUNCTION there(int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RETURN
			EXISTS (SELECT FROM z WHERE id = $1); END $$;
		CREATE TABLE b (id int PRIMARY KEY, needs int CHECK (there(needs))); INSERT INTO z VALUES (1);
		INSERT INTO b VALUES (1, 1);
		CREATE TABLE old (id int PRIMARY KEY, n int); INSERT INTO old VALUES (1, -1), (2, 1);
		ALTER TABLE old ADD CONSTRAINT positive CHECK (n > 0) NOT VALID;
		CREATE TABLE offer (id int PRIMARY KEY, ends timestamptz); INSERT INTO offer VALUES (1, '2020-01-01');
		ALTER TABLE offer ADD CHECK (ends > now()) NOT VALID;
		CREATE DOMAIN rank AS int; CREATE TYPE whole AS (r rank[]); CREATE TABLE held (id int PRIMARY KEY, w whole[]);
		INSERT INTO held VALUES (1, ARRAY[ROW(ARRAY[-1])::whole])`,
		"ALTER DOMAIN rank ADD CHECK (VALUE > 0) NOT VALID")
	before := d.dump()
	const says = "an undo could not put rows back under the CHECKs of "
	d.exec("TRUNCATE z", "TRUNCATE b").refused(says + "b: rows of public.b cannot be put back")
	d.exec("DELETE FROM b", "TRUNCATE z").refused(says + "b: ")
	d.exec("DELETE FROM old").refused(says + "old: ")
	d.exec("UPDATE offer SET ends = '2999-01-01'").refused(says + "offer: ")
	d.exec("DELETE FROM held").refused(says + "held: ")
	require.Equal(t, before, d.dump())
	for _, s := range []*step{d.exec("DELETE FROM old WHERE n > 0"),
		d.exec("TRUNCATE z, b", "COMMENT ON TABLE z IS 'empty'")} {
		s.apply()
		s.undo(activities.Restored)
	}
	var steps []*step
	for _, sql := range []string{"ALTER TABLE old DROP CONSTRAINT positive", "DELETE FROM old WHERE n < 0",
		"ALTER TABLE old ADD CONSTRAINT positive CHECK (n > 0)", "DELETE FROM b", "DELETE FROM z"} {
		s := d.exec(sql)
		s.apply()
		steps = append(steps, s)
	}
	for _, s := range slices.Backward(steps) {
		s.undo(activities.Restored)
	}
	require.Equal(t, before, d.dump())
}
