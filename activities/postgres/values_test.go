package postgres_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/postgres"
)

// Values come back to the last digit, whatever settings a statement, a function or the database has
// when they change.
func TestValuesComeBackUnderAnySettings(t *testing.T) {
	t.Parallel()
	d := newDatabase(t,
		`CREATE TABLE m (id int PRIMARY KEY, f float8, d date, i interval, b bytea, t timestamptz, c money, n int);
		INSERT INTO m VALUES (1, 0.1::float8 + 0.2::float8, '2024-04-03', '1 month 2 days 03:04:05.678', '\x00ff27',
		'2024-04-30 23:59:59.123456+02', 12.34, 0)`)
	before := d.dump()
	for name, value := range map[string]string{
		"extra_float_digits": "0", "datestyle": "German, DMY", "intervalstyle": "sql_standard", "bytea_output": "escape",
		"timezone": "Asia/Kolkata",
	} {
		t.Run(name, func(t *testing.T) {
			d.run("CREATE OR REPLACE FUNCTION bump() RETURNS void LANGUAGE plpgsql SET " + name + " = '" + value +
				"' AS $$ BEGIN UPDATE m SET n = n + 1; UPDATE m SET n = n + 1; END $$")
			for _, sql := range []string{
				"SELECT bump()",
				"DO $$ BEGIN SET LOCAL " + name + " = '" + value + "'; UPDATE m SET n = n + 1; UPDATE m SET n = n + 1; END $$",
			} {
				s := d.exec(sql)
				s.database = &database{t: t}
				s.apply()
				d.asAdmin("ALTER DATABASE " + d.name + " SET " + name + " = '" + value + "'")
				s.undo(activities.Restored)
				d.asAdmin("ALTER DATABASE " + d.name + " RESET " + name)
				require.Equal(t, before, d.dump(), sql)
			}
		})
	}
}

// What a role is allowed in a session of its own says nothing of an undo.
func TestNoLimitOfTheRoleBoundsAnUndo(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, "CREATE FUNCTION slow() RETURNS boolean LANGUAGE sql AS 'SELECT pg_sleep(0.1) IS NOT NULL'",
		"CREATE TABLE big (id int PRIMARY KEY CHECK (slow())); INSERT INTO big SELECT generate_series(1, 25)")
	before := d.dump()
	s := d.exec("DELETE FROM big")
	s.apply()
	for _, limit := range []string{"statement_timeout = '2s'", "default_transaction_read_only = on",
		"default_transaction_isolation = 'serializable'"} {
		d.asAdmin("ALTER ROLE worker IN DATABASE " + d.name + " SET " + limit)
	}
	s.undo(activities.Restored)
	require.Equal(t, before, d.dump())
}

// Keys that are equal by their type but not as text are keys of two rows, one after the other.
func TestKeysThatAreEqualOnlyByTypeAreTwo(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.asAdmin("CREATE EXTENSION citext")
	d.run("CREATE TABLE person (mail citext PRIMARY KEY, n int); INSERT INTO person VALUES ('Bob@x', 0), ('eve@x', 0)",
		"CREATE TABLE price (p numeric PRIMARY KEY, n int); INSERT INTO price VALUES (1.0, 0)")
	before := d.dump()
	for _, statements := range [][]string{
		{"UPDATE person SET mail = lower(mail::text)::citext WHERE n = 0", "UPDATE person SET n = n + 1"},
		{"UPDATE price SET p = 1.00", "UPDATE price SET n = n + 1"},
		{"DELETE FROM price", "INSERT INTO price VALUES (1.000, 7)"},
	} {
		s := d.exec(statements...)
		s.apply()
		s.undo(activities.Restored)
		require.Equal(t, before, d.dump(), statements)
	}
}

// A table that took the name of the one that the step has changed is somebody's.
func TestATableThatTookTheNameIsNotTouched(t *testing.T) {
	t.Parallel()
	d := newDatabase(t,
		"CREATE TABLE orders (id int PRIMARY KEY, n int); INSERT INTO orders SELECT g, g FROM generate_series(1, 5) g")
	s := d.exec("DELETE FROM orders WHERE id > 3")
	s.apply()
	d.run("ALTER TABLE orders RENAME TO orders_2025; CREATE TABLE orders (id int PRIMARY KEY, n int)")
	theirs := d.dump()
	require.Contains(t, s.undo(activities.Drifted).Drift.Diff, "table public.orders is another one now")
	require.Equal(t, theirs, d.dump())
}

// Triggers and rules that run whatever session_replication_role is do not run in an undo, and are
// enabled as before afterwards.
func TestTriggersThatAlwaysRunDoNotRunInAnUndo(t *testing.T) {
	t.Parallel()
	d := newDatabase(t,
		"CREATE TABLE account (id int PRIMARY KEY, n int); INSERT INTO account SELECT g, g FROM generate_series(1, 5) g",
		`CREATE TABLE audit (n bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, what text);
			CREATE TABLE seen (id int PRIMARY KEY);
		CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit (what) VALUES (TG_OP);
		RETURN NULL; END $$;
		CREATE TRIGGER log AFTER INSERT OR UPDATE OR DELETE ON account FOR EACH ROW EXECUTE FUNCTION log();
		ALTER TABLE account ENABLE ALWAYS TRIGGER log;
		CREATE RULE note AS ON INSERT TO account DO ALSO INSERT INTO seen VALUES (NEW.id);
		ALTER TABLE account ENABLE REPLICA RULE note`)
	before := d.wholeDump()
	s := d.exec("UPDATE account SET n = 0 WHERE id = 1")
	s.apply()
	s.undo(activities.Restored)
	require.Equal(t, before, d.wholeDump())
}

// A foreign key that is NOT VALID may not have held before the step.
func TestAForeignKeyThatIsNotValidBindsAsBefore(t *testing.T) {
	t.Parallel()
	d := newDatabase(t,
		`CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (id int PRIMARY KEY, parent int, note text);
		INSERT INTO child VALUES (1, 99, ''); ALTER TABLE child ADD FOREIGN KEY (parent) REFERENCES parent NOT VALID`)
	before := d.dump()
	s := d.exec("UPDATE child SET note = 'x'")
	s.apply()
	s.undo(activities.Restored)
	require.Equal(t, before, d.dump())

	s = d.exec("DELETE FROM child")
	s.apply()
	drift := s.undo(activities.Drifted).Drift
	require.Contains(t, drift.Diff, "child_parent_fkey would not hold")
}

// The names of columns are theirs: those that statements of ours use for tables are not taken for
// one.
func TestColumnsNamedAsTablesInStatements(t *testing.T) {
	t.Parallel()
	var columns []string
	for name := 'a'; name <= 'z'; name++ {
		columns = append(columns, string(name)+" int")
	}
	d := newDatabase(t,
		"CREATE TABLE parent (id int PRIMARY KEY, "+strings.Join(columns, ", ")+
			"); CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent, again int UNIQUE DEFERRABLE, "+
			strings.Join(columns, ", ")+")",
		"INSERT INTO parent SELECT i, i FROM generate_series(1, 3) AS s(i); INSERT INTO child SELECT i, i + 0, i, i + 0 "+
			"FROM generate_series(1, 3) AS s(i)")
	before := d.wholeDump()
	for _, statement := range []string{
		"UPDATE parent SET a = 7", "UPDATE child SET again = -again", "DELETE FROM child",
		"INSERT INTO parent (id) VALUES (9)", "TRUNCATE parent CASCADE", "TRUNCATE child", "DROP TABLE parent CASCADE",
		"ALTER TABLE child DROP COLUMN c",
	} {
		s := d.exec(statement)
		s.apply()
		s.undo(activities.Restored)
		require.Equal(t, before, d.wholeDump(), statement)
	}
}

// The schema public is there in each database from the beginning: it cannot be moved out of the
// way.
func TestTheSchemaPublicIsNotDropped(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.asAdmin("ALTER SCHEMA public OWNER TO worker")
	d.exec("DROP SCHEMA public").refused("it drops what was not made in this database")
	d.run("CREATE TABLE t (a int)")
	d.exec("DROP SCHEMA public CASCADE").refused("it drops what was not made in this database")
	d.exec("DROP SCHEMA IF EXISTS none").apply()
}

// No text shows what is sensitive: of a partition by the name of its table, of rows that others
// have linked.
func TestSensitiveValuesAreShownNowhere(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people, `CREATE TABLE account (id int, mail text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
		CREATE TABLE account_1 PARTITION OF account FOR VALUES FROM (0) TO (100);
		INSERT INTO account VALUES (1, 'HUSH-HUSH')`)
	d.limit(postgres.Database{Sensitive: []string{"public.account.mail", "public.person.secret"}})
	diff := d.exec("DELETE FROM account WHERE id = 1").plan().Diff
	require.Contains(t, diff, "mail=***")
	require.NotContains(t, diff, "HUSH-HUSH")

	s := d.exec("INSERT INTO team VALUES (9)")
	s.apply()
	d.run("INSERT INTO person VALUES (60, 'x', 'HUSH-HUSH', 9)")
	diff = s.undo(activities.Drifted).Drift.Diff
	require.Contains(t, diff, "secret=***")
	require.NotContains(t, diff, "HUSH-HUSH")
}

// Whoever fills a table that the step has made while the undo looks at it waits, and then finds no
// such table: nothing of theirs is dropped.
func TestNobodyFillsWhatAnUndoIsAboutToDrop(t *testing.T) {
	d := newDatabase(t, "CREATE TABLE account (id int PRIMARY KEY, n int); INSERT INTO account VALUES (1, 1)")
	before := d.dump()
	s := d.exec("CREATE TABLE fresh (id int PRIMARY KEY)", "UPDATE account SET n = 0")
	s.apply()
	locked := ""
	point.Hook(func(label string) {
		if label == "postgres.exec:removed" {
			locked = d.value(
				"SELECT count(*) FROM pg_locks WHERE relation = 'fresh'::regclass AND mode = 'AccessExclusiveLock' AND granted")
		}
	})
	defer point.Hook(nil)
	s.undo(activities.Restored)
	require.Equal(t, "1", locked)
	require.Equal(t, before, d.dump())
}

// Of two steps at once, the one that began first may write last: the other's row is again as that
// left it when the first is undone.
func TestStepsAtOnceAreUndoneInTheOrderInWhichTheyActed(t *testing.T) {
	d := newDatabase(t, "CREATE TABLE account (id int PRIMARY KEY, n int); INSERT INTO account VALUES (1, 1), (5, 5)")
	d.exec("UPDATE account SET n = 7 WHERE id = 5").apply() // the table is prepared
	before := d.dump()
	slow, quick := d.exec("UPDATE account SET n = 20 WHERE id = 1"), d.exec("UPDATE account SET n = 10 WHERE id = 1")
	once := false
	point.Hook(func(label string) {
		if label == "postgres.exec:recorded" && !once {
			once = true
			quick.apply()
		}
	})
	defer point.Hook(nil)
	slow.apply()
	require.Equal(t, "20", d.value("SELECT n FROM account WHERE id = 1"))
	slow.undo(activities.Restored)
	require.Equal(t, "10", d.value("SELECT n FROM account WHERE id = 1"))
	quick.undo(activities.Restored)
	require.Equal(t, before, d.dump())
}

// A statement changes more rows than the journal keeps together, and a later step some of them.
func TestManyRowsAreKeptTogether(t *testing.T) {
	t.Parallel()
	d := newDatabase(t,
		"CREATE TABLE many (id int PRIMARY KEY, n int); INSERT INTO many SELECT g, g FROM generate_series(1, 350) g")
	before := d.dump()
	first := d.exec("UPDATE many SET n = n + 1")
	first.apply()
	second := d.exec("UPDATE many SET n = -n WHERE id % 3 = 0", "DELETE FROM many WHERE id % 7 = 0",
		"INSERT INTO many SELECT g, g FROM generate_series(1001, 1250) g",
		"UPDATE many SET id = id + 1000 WHERE id > 1000")
	second.apply()
	d.run("UPDATE many SET n = 0 WHERE id = 299")
	second.undo(activities.Restored)
	seen := first.undo(activities.Drifted)
	require.Contains(t, seen.Drift.Diff, "since the step, 1 row changed")
	first.decide(activities.Decision{Force: seen.Drift.Digest}, activities.Restored)
	require.Equal(t, before, d.dump())
}
