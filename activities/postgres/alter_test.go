package postgres_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/testrun"
)

// shop is a schema with all that hangs on a table.
const shop = `CREATE TYPE mood AS ENUM ('ok', 'bad');
	CREATE TABLE customer (id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, name text NOT NULL DEFAULT 'nobody', m mood);
	COMMENT ON TABLE customer IS 'who buys';
	CREATE TABLE "Order" (id serial PRIMARY KEY, customer int REFERENCES customer ON
	DELETE CASCADE, total numeric CHECK (total >= 0), twice numeric GENERATED ALWAYS AS (total * 2) STORED);
	COMMENT ON COLUMN "Order".total IS 'with tax'; CREATE INDEX order_total ON "Order" (total) WHERE total > 5;
	ALTER TABLE "Order" ALTER customer SET STATISTICS 50;
	GRANT SELECT ON "Order" TO PUBLIC; GRANT UPDATE (total) ON "Order" TO PUBLIC;
	ALTER TABLE "Order" REPLICA IDENTITY FULL;
	CREATE TABLE line ("order" int REFERENCES "Order", n int, what text, PRIMARY KEY ("order", n));
	CREATE TABLE loose (a int, b text);
	CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
	CREATE TRIGGER tr BEFORE INSERT ON line FOR EACH ROW EXECUTE FUNCTION f();
	CREATE TABLE measured (a int, b int); CREATE STATISTICS st ON a, b FROM measured; CREATE DOMAIN amount AS numeric;
	ALTER TABLE line ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON line USING (n > 0);
	INSERT INTO customer (name, m) SELECT 'c' || g, 'ok' FROM generate_series(1, 30) g;
	INSERT INTO "Order" (customer, total) SELECT g, g FROM generate_series(1, 30) g;
	INSERT INTO line SELECT g, n, 'w' FROM generate_series(1, 30) g, generate_series(1, 2) n;
	INSERT INTO loose SELECT g % 3, NULL FROM generate_series(1, 10) g`

// TestSchemaChangesAreUndoneExactly compares whole dumps, with the schema.
func TestSchemaChangesAreUndoneExactly(t *testing.T) {
	t.Parallel()
	for name, statements := range map[string][]string{
		"truncate":                 {"TRUNCATE loose"},
		"truncate cascade":         {`TRUNCATE customer RESTART IDENTITY CASCADE`},
		"truncate, and fill again": {`TRUNCATE line`, `INSERT INTO line VALUES (1, 1, 'again')`},
		"drop":                     {"DROP TABLE line"},
		"drop many":                {`DROP TABLE line, "Order", customer`},
		"drop cascade":             {`DROP TABLE "Order" CASCADE`},
		"drop, and make anew": {"DROP TABLE loose", "CREATE TABLE loose (a int PRIMARY KEY, c int)",
			"INSERT INTO loose VALUES (1, 2)"},
		"drop what is not there": {"DROP TABLE IF EXISTS nowhere", "DELETE FROM line"},
		"create table": {
			`CREATE TABLE made (id serial PRIMARY KEY, o int REFERENCES "Order", m mood); CREATE INDEX ON made (o);
				INSERT INTO made (o) SELECT id FROM "Order"`},
		"create table as": {`CREATE TABLE made AS SELECT * FROM "Order"`},
		"create index":    {`CREATE UNIQUE INDEX ON "Order" (customer, total)`},
		"create view": {`CREATE VIEW v AS SELECT name FROM customer`,
			`CREATE MATERIALIZED VIEW mv AS SELECT name FROM customer`},
		"create others": {"CREATE SCHEMA s", "CREATE TABLE s.customer (id int)", "CREATE SEQUENCE s.q",
			"CREATE TYPE s.t AS ENUM ('x')", "CREATE DOMAIN s.d AS int CHECK (value > 0)",
			"CREATE FUNCTION s.f(int) RETURNS int LANGUAGE sql AS 'SELECT $1'"},
		"add columns": {
			"ALTER TABLE customer ADD age int, ADD note text NOT NULL DEFAULT 'none' CHECK (note <> ''), ADD o int " +
				"REFERENCES \"Order\""},
		"types without equality": {
			`ALTER TABLE customer ADD p point, ADD j json DEFAULT '{"a": 1}', ADD g polygon DEFAULT '((0,0),(1,1))',
				ADD x xml DEFAULT '<a/>', ADD b bool DEFAULT true, ADD c char(5) DEFAULT 'x', ADD f float8 DEFAULT 0.1,
				ADD a int[] DEFAULT '{1,2}'`},
		"add a column and fill it": {"ALTER TABLE customer ADD age int", "UPDATE customer SET age = id",
			"CREATE INDEX ON customer (age)"},
		"add constraints": {
			`ALTER TABLE "Order" ADD UNIQUE (total), ADD CONSTRAINT small CHECK (total < 1000)`},
		"add to what the step has made": {"CREATE TABLE made (id int)", "ALTER TABLE made ADD late int DEFAULT 5",
			"INSERT INTO made VALUES (1, 2)"},
		"the target of statistics":      {"ALTER STATISTICS st SET STATISTICS 500"},
		"statistics that have a target": {"ALTER STATISTICS st SET STATISTICS 400", "DROP STATISTICS st"},
		"what a domain allows":          {"ALTER DOMAIN amount SET NOT NULL"},
		"options of TOAST":              {"ALTER TABLE loose SET (toast.autovacuum_enabled = false)"},
		"two names that differ in case": {`CREATE TABLE "order" (id int)`, `DROP TABLE line`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testrun.Sampled(t)
			d := newDatabase(t, shop)
			before := d.wholeDump()
			s := d.exec(statements...)
			planned := s.plan()
			require.Equal(t, before, d.wholeDump(), "after the plan")
			_, err := s.action.Apply(t.Context(), s.entry, s.with, planned.Digest)
			require.NoError(t, err)
			require.NotEqual(t, before, d.wholeDump())
			seen, err := s.action.Observe(t.Context(), s.entry)
			require.NoError(t, err)
			require.Equal(t, activities.AsLeft, seen.State, seen.Detail)
			s.undo(activities.Restored)
			require.Equal(t, before, d.wholeDump())
			require.Equal(t, "0", d.value("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'unwind\\_%'"))
		})
	}
}

// TestAMigrationOfSeveralStepsIsUndoneInOrder: what an earlier step knows of its rows stays right
// through changes of the schema.
func TestAMigrationOfSeveralStepsIsUndoneInOrder(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, shop)
	before := d.wholeDump()
	steps := []*step{
		d.exec("UPDATE customer SET name = 'x' WHERE id < 10"), d.exec("ALTER TABLE customer ADD age int"),
		d.exec("UPDATE customer SET age = id"),
		d.exec("TRUNCATE customer CASCADE"), d.exec("DROP TABLE customer CASCADE"),
		d.exec("CREATE TABLE customer (id text PRIMARY KEY)"), d.exec("INSERT INTO customer VALUES ('new')"),
	}
	for _, s := range steps {
		s.apply()
	}
	for _, s := range slices.Backward(steps) {
		s.undo(activities.Restored)
	}
	require.Equal(t, before, d.wholeDump())
}

// TestWhatOthersDidToASchemaIsNotLost: nothing is touched, and the reason is shown.
func TestWhatOthersDidToASchemaIsNotLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ step, others, shows string }{
		"rows in a table that was made": {"CREATE TABLE made (id int)", "INSERT INTO made VALUES (1)",
			"table public.made, which the step made, has other rows"},
		"an index on a table that was made": {"CREATE TABLE made (id int PRIMARY KEY)",
			"CREATE INDEX theirs ON made (id)",
			"would be lost: index public.theirs"},
		"a trigger on a table that was made": {"CREATE TABLE made (id int)",
			"CREATE TRIGGER theirs BEFORE UPDATE ON made EXECUTE FUNCTION suppress_redundant_updates_trigger()",
			"would be lost: trigger theirs on table public.made"},
		"a partition of a table that was made": {"CREATE TABLE made (id int) PARTITION BY LIST (id)",
			"CREATE TABLE theirs PARTITION OF made FOR VALUES IN (1)", "would be lost: table public.theirs"},
		"a sequence of a table that was made": {"CREATE TABLE made (id int)",
			"CREATE SEQUENCE theirs OWNED BY made.id",
			"would be lost: sequence public.theirs"},
		"an empty column of a table that was made": {"CREATE TABLE made (id int)", "ALTER TABLE made ADD theirs text",
			"would be lost: column public.made 2 theirs text"},
		"another default": {"CREATE TABLE made (id int DEFAULT 1)", "ALTER TABLE made ALTER id SET DEFAULT 2",
			"the default of public.made.id is not as the step left it"},
		"a comment on a table that was made": {"CREATE TABLE made (id int)", "COMMENT ON TABLE made IS 'theirs'",
			"would be lost: comment table public.made theirs"},
		"a comment on a column that was added": {"ALTER TABLE customer ADD age int",
			"COMMENT ON COLUMN customer.age IS 'theirs'",
			"would be lost: comment column age of table public.customer theirs"},
		"a default of a column that was added": {"ALTER TABLE customer ADD age int",
			"ALTER TABLE customer ALTER age SET DEFAULT 7", "would be lost: default value for column age"},
		"privileges on a column that was added": {"ALTER TABLE customer ADD age int",
			"GRANT SELECT (age) ON customer TO PUBLIC",
			"would be lost: column public.customer"},
		"privileges on a table that was made": {"CREATE TABLE made (id int)", "GRANT SELECT ON made TO PUBLIC",
			"privileges of table public.made is not as the step left it"},
		"a value of an enumeration": {"CREATE TYPE made AS ENUM ('a')",
			"ALTER TYPE made ADD VALUE 'theirs'", "would be lost: type public.made"},
		"an attribute of a type": {"CREATE TYPE made AS (a int)",
			"ALTER TYPE made ADD ATTRIBUTE theirs int", "would be lost: column public.made"},
		"a CHECK of a domain": {"CREATE DOMAIN made AS int",
			"ALTER DOMAIN made ADD CONSTRAINT theirs CHECK (VALUE > 0)",
			"would be lost: constraint theirs"},
		"default privileges in a schema": {"CREATE SCHEMA made",
			"ALTER DEFAULT PRIVILEGES IN SCHEMA made GRANT SELECT ON TABLES TO PUBLIC",
			"would be lost: default privileges on new relations"},
		"the clustering by an index": {"CREATE INDEX made ON customer (name)",
			"ALTER TABLE customer CLUSTER ON made", "would be lost: index public.made"},
		"a publication": {"CREATE TABLE made (id int)", "CREATE PUBLICATION theirs FOR TABLE made",
			"would be lost: publication of table public.made in publication theirs"},
		"extended statistics": {"CREATE TABLE made (a int, b int)", "CREATE STATISTICS theirs ON a, b FROM made",
			"would be lost: statistics object public.theirs"},
		"row security": {"CREATE TABLE made (id int)",
			"ALTER TABLE made ENABLE ROW LEVEL SECURITY", "row security of public.made is not as the step left it"},
		"another body of a function": {"CREATE FUNCTION made() RETURNS int LANGUAGE sql AS 'SELECT 1'",
			"CREATE OR REPLACE FUNCTION made() RETURNS int LANGUAGE sql AS 'SELECT 2'",
			"function public.made() is not as the step left it"},
		"an index on a column": {"ALTER TABLE customer ADD age int UNIQUE",
			"CREATE INDEX theirs ON customer (age)", "would be lost: index public.theirs"},
		"a table that was made is gone": {"CREATE TABLE made (id int)", "DROP TABLE made",
			"table public.made, which the step made, is gone"},
		"a view on a table that was made": {"CREATE TABLE made (id int)", "CREATE VIEW v AS SELECT * FROM made",
			"other objects depend on it"},
		"values in a column": {"ALTER TABLE customer ADD age int DEFAULT 7",
			"UPDATE customer SET age = 3 WHERE id < 3", "2 rows of public.customer with a value in the column age"},
		"another type of a column": {"ALTER TABLE customer ADD age int",
			"ALTER TABLE customer ALTER age TYPE bigint",
			"would be lost: column public.customer 4 age bigint"},
		"another name of a column": {"ALTER TABLE customer ADD age int", "ALTER TABLE customer RENAME age TO years",
			"age"},
		"the name is taken": {"DROP TABLE loose", "CREATE TABLE loose (x int)",
			`relation "loose" already exists`},
		"the row that others refer to": {"TRUNCATE line", `DELETE FROM "Order" WHERE id = 3`,
			"the foreign key line_order_fkey would not hold"},
		"a key that is there again": {"TRUNCATE line", "INSERT INTO line VALUES (1, 1, 'theirs')",
			"cannot be put back beside what others have done since"},
		"rows that a foreign key forbids": {"DROP TABLE line", `DELETE FROM "Order" WHERE id = 3`,
			"violates foreign key constraint"},
		"the truncated table was altered": {"TRUNCATE loose", "ALTER TABLE loose DROP COLUMN b", "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testrun.Sampled(t)
			d := newDatabase(t, shop)
			s := d.exec(c.step)
			s.apply()
			d.run(c.others)
			theirs := d.wholeDump()
			require.Contains(t, s.undo(activities.Drifted).Drift.Diff, c.shows)
			require.Equal(t, theirs, d.wholeDump())
		})
	}
	d := newDatabase(t, shop)
	s := d.exec("ALTER TABLE customer ADD age int")
	s.apply()
	d.run("COMMENT ON TABLE customer IS 'theirs'; CREATE INDEX theirs ON customer (name); ALTER TABLE customer ADD late int")
	s.undo(activities.Restored)
	require.Equal(t, "theirs", d.value("SELECT obj_description('customer'::regclass)"), "it is of the table that was there")
	s = d.exec("TRUNCATE loose")
	s.apply()
	d.run("INSERT INTO loose VALUES (77, 'theirs')")
	s.undo(activities.Restored)
	require.Equal(t, "11", d.value("SELECT count(*) FROM loose"), "what others inserted stays")
}

// TestWhatAnUndoMakesAnewIsWhatAnEarlierStepLeft: it has other ids, and a column another number.
func TestWhatAnUndoMakesAnewIsWhatAnEarlierStepLeft(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{"CREATE TABLE made (id int PRIMARY KEY, c text)", "DROP TABLE made"},
		{"CREATE TABLE made (id int PRIMARY KEY, c text)", "ALTER TABLE made DROP c"},
		{"CREATE TABLE made (id int)", "ALTER TABLE made ADD late text DEFAULT 'x'"},
		{"CREATE TABLE made (id int)", "ALTER TABLE made RENAME TO named"},
		{"CREATE TABLE made (id int PRIMARY KEY, c int REFERENCES customer)", "ALTER TABLE made DROP CONSTRAINT made_c_fkey"},
		{"CREATE TABLE made (id serial UNIQUE)", "ALTER TABLE made DROP CONSTRAINT made_id_key"},
		{"ALTER TABLE customer ADD made int", "ALTER TABLE customer DROP made"},
		{"ALTER TABLE customer ADD CONSTRAINT made CHECK (id > 0)", "ALTER TABLE customer DROP CONSTRAINT made"},
		{"CREATE INDEX made ON customer (name)", "DROP INDEX made"},
		{"CREATE VIEW made AS SELECT 1 AS a", "DROP VIEW made"},
		{"CREATE MATERIALIZED VIEW made AS SELECT 1 AS a", "DROP MATERIALIZED VIEW made"},
		{"CREATE SEQUENCE made", "DROP SEQUENCE made"},
		{"CREATE FUNCTION made(int, text) RETURNS int LANGUAGE sql AS 'SELECT 1'", "DROP FUNCTION made"},
		{"CREATE TYPE made AS ENUM ('a')", "DROP TYPE made"},
		{"CREATE TYPE made AS (a int)", "DROP TYPE made"},
		{"CREATE DOMAIN made AS int CHECK (VALUE > 0)", "DROP DOMAIN made"},
		{"CREATE SCHEMA made", "DROP SCHEMA made"},
	} {
		t.Run(c[0]+"; "+c[1], func(t *testing.T) {
			t.Parallel()
			testrun.Sampled(t)
			d := newDatabase(t, shop)
			before := d.wholeDump()
			first, second := d.exec(c[0]), d.exec(c[1])
			first.apply()
			second.apply()
			second.undo(activities.Restored)
			first.undo(activities.Restored)
			require.Equal(t, before, d.wholeDump())
		})
	}
}

func TestThePlanOfADropShowsWhatGoes(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, shop)
	c := d.exec(`DROP TABLE "Order" CASCADE`).plan()
	require.Equal(t, activities.High, c.Risk)
	require.True(t, c.Ask)
	require.False(t, d.exec("CREATE TABLE made (id int)").plan().Ask)
	require.Contains(t, c.Facts, `schema: it drops table public."Order"`)
	require.Contains(t, c.Schema, `drops table public."Order"`)
	require.Contains(t, c.Diff, "- id=1 customer=1 total=1 twice=2\n")
	require.Contains(t, c.Diff, "  ... and 10 more\n")
	s := d.exec("TRUNCATE loose")
	approved := s.plan()
	d.run("INSERT INTO loose VALUES (1, 'late')")
	_, err := s.action.Apply(t.Context(), s.entry, s.with, approved.Digest)
	require.Equal(t, activities.StaleApproval, activities.TypeOf(err), err)
}

// TestWhatIsHeldGoesWithItsRecord: a release drops the tables, and only then are they gone.
func TestWhatIsHeldGoesWithItsRecord(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, shop)
	s := d.exec(`DROP TABLE line, "Order"`, "TRUNCATE loose")
	s.apply()
	count := func() string {
		return d.value(
			"SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname LIKE 'unwind\\_%' " +
				"AND relkind = 'r'")
	}
	require.Equal(t, "3", count())
	require.NoError(t, s.action.Release(t.Context(), s.entry))
	require.Equal(t, "0", count())
	d.run(`DELETE FROM customer`)
}

// TestASchemaThatIsHeldTakesNothingOfOthersAlong: a table of somebody else has come to use a type
// of a schema that was dropped.
func TestASchemaThatIsHeldTakesNothingOfOthersAlong(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, shop,
		"CREATE SCHEMA old; CREATE TYPE old.mood AS ENUM ('good'); CREATE FUNCTION old.f() RETURNS old.mood LANGUAGE sql "+
			"AS $$ SELECT 'good'::old.mood $$")
	s := d.exec("DROP SCHEMA old CASCADE")
	s.apply()
	held := d.value("SELECT quote_ident(nspname) FROM pg_namespace WHERE nspname LIKE 'unwind\\_%'")
	d.run("CREATE TABLE theirs (how " + held + ".mood)")
	theirs := d.wholeDump()
	require.ErrorContains(t, s.action.Release(t.Context(), s.entry), "the column how depends on what is kept in "+held)
	require.Equal(t, theirs, d.wholeDump())
	d.run("DROP TABLE theirs")
	require.NoError(t, s.action.Release(t.Context(), s.entry))
	require.Equal(t, "0",
		d.value("SELECT count(*) FROM pg_namespace WHERE nspname IN ('old', '"+strings.ReplaceAll(held, `"`, "")+"')"))
}

// TestASchemaIsDroppedWithNothingBesideIt: what the real statement would drop elsewhere cannot be
// moved along.
func TestASchemaIsDroppedWithNothingBesideIt(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, shop,
		"CREATE SCHEMA old; CREATE TABLE old.log (id int); CREATE VIEW logged AS SELECT id FROM old.log; CREATE SCHEMA other")
	d.exec("DROP SCHEMA old CASCADE").refused("it drops the view public.logged too")
	d.exec("DROP SCHEMA old, other CASCADE").refused("write a statement for each")
	d.limit(postgres.Database{Deny: []string{"old.*"}})
	d.exec("DROP VIEW logged", "DROP SCHEMA old CASCADE").refused("old.log: this worker's config denies it")
}

// TestWhatOthersDoToTheSchemaMeanwhileIsTheirs: a statement waits, and somebody else makes a table
// and rewrites another.
func TestWhatOthersDoToTheSchemaMeanwhileIsTheirs(t *testing.T) {
	t.Parallel()
	const waits = "CREATE TABLE made AS SELECT 1 AS a FROM pg_advisory_xact_lock(7)"
	for name, c := range map[string]struct{ step, others string }{
		"make":    {waits, "CREATE TABLE theirs (a int)"},
		"rewrite": {waits, "CREATE TABLE theirs (a int); ALTER TABLE loose ALTER a TYPE bigint"},
		"alter":   {"TRUNCATE line", "CREATE TABLE theirs (a int); ALTER TABLE loose ALTER a TYPE bigint"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, shop)
			s := d.exec(c.step)
			other, err := pgx.Connect(t.Context(), d.dsn)
			require.NoError(t, err)
			defer func() { _ = other.Close(context.Background()) }()
			_, err = other.Exec(t.Context(),
				`BEGIN; SELECT pg_advisory_xact_lock(7); LOCK TABLE line IN ACCESS SHARE MODE; `+c.others)
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() {
				_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
				done <- err
			}()
			d.awaitLocked()
			_, err = other.Exec(t.Context(), "COMMIT")
			require.NoError(t, err)
			require.NoError(t, <-done)
			s.undo(activities.Restored)
			require.Equal(t, "0", d.value("SELECT count(*) FROM theirs"))
			require.Equal(t, "10", d.value("SELECT count(*) FROM loose"))
		})
	}
}

// awaitLocked waits until one session waits for another one.
func (d *database) awaitLocked() {
	require.Eventually(d.t, func() bool {
		return d.value(
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == "1"
	}, 20*time.Second, 10*time.Millisecond)
}

// TestATableThatIsAlteredWhileItsUndoBeginsIsDrift: the undo compares its shape when nobody can
// alter it any more.
func TestATableThatIsAlteredWhileItsUndoBeginsIsDrift(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, shop)
	s := d.exec("UPDATE customer SET name = 'x' WHERE id < 3")
	s.apply()
	other, err := pgx.Connect(t.Context(), d.dsn)
	require.NoError(t, err)
	defer func() { _ = other.Close(context.Background()) }()
	_, err = other.Exec(t.Context(), "BEGIN; ALTER TABLE customer ADD late int")
	require.NoError(t, err)
	done := make(chan activities.Undone, 1)
	go func() {
		undone, err := s.action.Undo(t.Context(), s.entry, activities.Decision{})
		assert.NoError(t, err)
		done <- undone
	}()
	d.awaitLocked()
	_, err = other.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	undone := <-done
	require.Equal(t, activities.Drifted, undone.Outcome, undone.Observed)
	require.Contains(t, undone.Drift.Diff, "table public.customer was altered")
}

// TestACreateThatDoesMoreIsComparedWithTheWholeSchema, also where taking it back has failed: it runs
// again, and what it did to rows the first time is not counted.
func TestACreateThatDoesMoreIsComparedWithTheWholeSchema(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, `CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1), (2, 2);
		CREATE FUNCTION more() RETURNS int LANGUAGE plpgsql AS
		$$ BEGIN UPDATE t SET n = n + 1; GRANT SELECT ON t TO PUBLIC; RETURN 1; END $$;
		CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY LIST (id); CREATE TABLE refers (id int REFERENCES parts)`)
	before := d.wholeDump()
	s := d.exec("UPDATE t SET n = 7 WHERE id = 1", "CREATE TABLE made AS SELECT more() AS n", "DELETE FROM t WHERE id = 2")
	s.apply()
	s.undo(activities.Restored)
	require.Equal(t, before, d.wholeDump())
	d.exec("CREATE TABLE part PARTITION OF parts FOR VALUES IN (1)").refused("taking it back fails: ")
	require.Equal(t, before, d.wholeDump())
}
