package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// TestCommonStatementsOfASchema: each is undone exactly.
func TestCommonStatementsOfASchema(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		schema     string
		statements []string
	}{
		"a table that refers to itself": {"", []string{"CREATE TABLE t (id int PRIMARY KEY, up int REFERENCES t)"}},
		"tables that refer to each other": {"",
			[]string{"CREATE TABLE a (id int PRIMARY KEY, b int)", "CREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a)",
				"ALTER TABLE a ADD FOREIGN KEY (b) REFERENCES b"}},
		"a partition of a table with a key": {partitioned,
			[]string{"CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)", "INSERT INTO p VALUES (12, 1)"}},
		"a partitioned table with its partitions": {"",
			[]string{"CREATE TABLE q (id int PRIMARY KEY, v int) PARTITION BY RANGE (id); CREATE TABLE q1 PARTITION OF q " +
				"FOR VALUES FROM (0) TO (10); CREATE INDEX ON q (v)"}},
		"an index of a partitioned table": {partitioned, []string{"CREATE INDEX ON p (v)"}},
		"a column of a partitioned table": {partitioned, []string{"ALTER TABLE p ADD w int DEFAULT 5"}},
		"a table, and then the function it uses": {
			"CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE TABLE t (a int DEFAULT f()); INSERT INTO t " +
				"DEFAULT VALUES", []string{"DROP TABLE t", "DROP FUNCTION f()"}},
		"the same in one text": {
			"CREATE VIEW v AS SELECT 1 AS a; CREATE MATERIALIZED VIEW m AS SELECT a FROM v",
			[]string{"DROP MATERIALIZED VIEW m; DROP VIEW v;"}},
		"a table with a view": {
			"CREATE TABLE t (a int); INSERT INTO t VALUES (1); CREATE VIEW v AS SELECT a FROM t; COMMENT ON VIEW v IS 'v'",
			[]string{"DROP TABLE t CASCADE"}},
		"a table with a materialized view": {
			"CREATE TABLE t (a int); INSERT INTO t VALUES (1); CREATE MATERIALIZED VIEW m AS SELECT a FROM t; CREATE INDEX " +
				"ON m (a)", []string{"DROP TABLE t CASCADE"}},
		"a table with a view of a view": {
			"CREATE TABLE t (a int); CREATE VIEW z AS SELECT a FROM t; CREATE VIEW b AS SELECT a FROM z; GRANT SELECT ON b " +
				"TO PUBLIC", []string{"DROP TABLE t CASCADE"}},
		"a materialized view, and then its view": {
			"CREATE VIEW v AS SELECT 1 AS a; CREATE MATERIALIZED VIEW m AS SELECT a FROM v",
			[]string{"DROP MATERIALIZED VIEW m", "DROP VIEW v"}},
		"a table, and then its sequence": {
			"CREATE SEQUENCE s; CREATE TABLE t (a int DEFAULT nextval('s')); INSERT INTO t DEFAULT VALUES",
			[]string{"DROP TABLE t", "DROP SEQUENCE s"}},
		"a table, and then its type": {
			"CREATE TYPE e AS ENUM ('x'); CREATE TABLE t (a e); INSERT INTO t VALUES ('x')",
			[]string{"DROP TABLE t", "DROP TYPE e"}},
		"a type with all that uses it": {
			"CREATE TYPE e AS ENUM ('x'); CREATE DOMAIN de AS e; CREATE FUNCTION f(e) RETURNS e LANGUAGE sql AS 'SELECT " +
				"$1'; CREATE VIEW v AS SELECT 'x'::e AS a; COMMENT ON FUNCTION f(e) IS 'f'; GRANT SELECT ON v TO PUBLIC",
			[]string{"DROP TYPE e CASCADE"}},
		"a table, what it uses, and all again": {
			"CREATE TYPE e AS ENUM ('x'); CREATE TABLE t (a e); INSERT INTO t VALUES ('x')",
			[]string{"DROP TABLE t", "DROP TYPE e", "CREATE TYPE e AS ENUM ('y')", "CREATE TABLE t (a e)"}},
		"a view with a view": {"CREATE VIEW v AS SELECT 1 AS a; CREATE VIEW w AS SELECT a FROM v",
			[]string{"DROP VIEW v CASCADE"}},
		"a function with statements": {"CREATE TABLE t (id int PRIMARY KEY)",
			[]string{"CREATE FUNCTION f() RETURNS bigint LANGUAGE sql BEGIN ATOMIC INSERT INTO t VALUES (1); SELECT CASE " +
				"WHEN true THEN 1 END; SELECT count(*) FROM t; END; CREATE FUNCTION g() RETURNS int LANGUAGE sql RETURN 1"}},
		"a procedure with statements": {"CREATE TABLE t (id int PRIMARY KEY)",
			[]string{"CREATE OR REPLACE PROCEDURE f() BEGIN ATOMIC INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); END"}},
		"a rule with statements": {
			"CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE l (id int PRIMARY KEY)",
			[]string{"CREATE RULE r AS ON INSERT TO t DO ALSO (INSERT INTO l VALUES (NEW.id); INSERT INTO l VALUES (NEW.id " +
				"+ 1)); COMMENT ON TABLE t IS 'x'"}},
		"a schema with a comment": {
			"CREATE SCHEMA s; COMMENT ON SCHEMA s IS 'of s'; CREATE TABLE s.t (id int); COMMENT ON TABLE s.t IS 'of t'; " +
				"COMMENT ON COLUMN s.t.id IS 'of id'", []string{"DROP SCHEMA s CASCADE"}},
		"an empty schema with a comment": {"CREATE SCHEMA s; COMMENT ON SCHEMA s IS 'of s'",
			[]string{"DROP SCHEMA s"}},
		"a materialized view with no data": {"CREATE TABLE t (a int)",
			[]string{"CREATE MATERIALIZED VIEW m AS SELECT a FROM t WITH NO DATA"}},
		"one with no data is dropped": {"CREATE MATERIALIZED VIEW m AS SELECT 1 AS a WITH NO DATA",
			[]string{"DROP MATERIALIZED VIEW m"}},
		"a table as a query with no data": {"CREATE TABLE t (a int)",
			[]string{"CREATE TABLE u AS SELECT a FROM t WITH NO DATA"}},
		"made and renamed": {"",
			[]string{"CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)", "ALTER TABLE a RENAME TO b",
				"ALTER TABLE b RENAME id TO n"}},
		"a column made and renamed": {"CREATE TABLE t (id int PRIMARY KEY)",
			[]string{"ALTER TABLE t ADD a int", "UPDATE t SET a = 1", "ALTER TABLE t RENAME a TO b"}},
		"a table takes the place of another": {
			"CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x')",
			[]string{"CREATE TABLE t_new (id bigint PRIMARY KEY, v text)", "INSERT INTO t_new SELECT * FROM t",
				"ALTER TABLE t RENAME TO t_old", "ALTER TABLE t_new RENAME TO t"}},
		"the other is dropped": {
			"CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x')",
			[]string{"CREATE TABLE t_new (id bigint PRIMARY KEY, v text)", "INSERT INTO t_new SELECT * FROM t", "DROP TABLE t",
				"ALTER TABLE t_new RENAME TO t"}},
		"a schema made and renamed": {"",
			[]string{"CREATE SCHEMA a", "CREATE TABLE a.t (id int)", "ALTER SCHEMA a RENAME TO b"}},
		"made and moved": {"CREATE SCHEMA s",
			[]string{"CREATE TABLE t (id serial PRIMARY KEY)", "ALTER TABLE t SET SCHEMA s"}},
		"a shell type": {"", []string{"CREATE TYPE s"}},
		"a view made and renamed": {"CREATE TABLE t (a int)",
			[]string{"CREATE VIEW v AS SELECT a FROM t", "ALTER VIEW v RENAME TO w"}},
		"made and dropped": {"CREATE TABLE t (a int)",
			[]string{"CREATE VIEW v AS SELECT a FROM t", "DROP VIEW v", "COMMENT ON TABLE t IS 'x'"}},
		"rows at random": {
			"CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT g, g FROM generate_series(1, 50) g",
			[]string{"UPDATE t SET v = 0 WHERE random() < 0.5 OR id = 1"}},
		"rows in a database that publishes": {
			"CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT g, g FROM generate_series(1, 5) g",
			[]string{"UPDATE t SET v = 0 WHERE id < 3", "DELETE FROM t WHERE id = 3", "INSERT INTO t VALUES (9, 9)"}},
		"a table in a database that publishes": {
			"CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT g, g FROM generate_series(1, 5) g",
			[]string{"TRUNCATE t", "CREATE TABLE made (id int PRIMARY KEY)", "INSERT INTO made VALUES (1)", "DROP TABLE t"}},
		"a column in a database that publishes": {
			"CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT g, g FROM generate_series(1, 5) g",
			[]string{"ALTER TABLE t DROP v"}},
		"a default in a database that publishes": {"CREATE TABLE t (id int PRIMARY KEY, v int)",
			[]string{"ALTER TABLE t ADD w int", "UPDATE t SET w = 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, c.schema)
			if strings.HasSuffix(name, "publishes") {
				d.asAdmin("CREATE PUBLICATION everything FOR ALL TABLES")
			}
			if name == "a shell type" {
				d.dsn = d.server.Admin(d.name)
			}
			before := d.wholeDump()
			s := d.exec(c.statements...)
			planned := s.plan()
			require.Equal(t, before, d.wholeDump(), "after the plan")
			want := planned.Digest
			if name == "rows at random" {
				want = ""
			}
			_, err := s.action.Apply(t.Context(), s.entry, s.with, want)
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

// TestWhatIsPutAsideStaysWhole: what it uses is dropped later, by a step or by others.
func TestWhatIsPutAsideStaysWhole(t *testing.T) {
	t.Parallel()
	const schema = "CREATE TYPE e AS ENUM ('x'); CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE " +
		"TABLE t (a e, n int DEFAULT f()); INSERT INTO t VALUES ('x'); CREATE TABLE u (a e, n int DEFAULT f())"
	d := newDatabase(t, schema)
	before := d.wholeDump()
	var steps []*step
	for _, sql := range []string{"DROP TABLE t", "DROP TABLE u", "DROP TYPE e", "DROP FUNCTION f()"} {
		s := d.exec(sql)
		s.apply()
		steps = append(steps, s)
	}
	for _, s := range slices.Backward(steps) {
		s.undo(activities.Restored)
	}
	require.Equal(t, before, d.wholeDump())

	d.exec("DROP TABLE t", "DROP TYPE e").refused("cannot drop type e because other objects depend on it")
	d.exec("DROP TABLE t, u", "DROP FUNCTION f() CASCADE").refused("it would take away a part of what is kept in unwind_")
	s := d.exec("DROP TABLE t")
	s.apply()
	d.run("DROP FUNCTION f() CASCADE")
	theirs := d.wholeDump()
	_, err := s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
	require.ErrorContains(t, err, "has lost a part")
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err))
	require.Equal(t, theirs, d.wholeDump())
}

// TestUncommonStatementsAreRefusedWithTheWayOut: nothing takes them back exactly.
func TestUncommonStatementsAreRefusedWithTheWayOut(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, partitioned,
		"CREATE TABLE loose (id int NOT NULL, v int CONSTRAINT p_v_check CHECK (v > 0)); CREATE TYPE e AS ENUM ('x'); "+
			"CREATE SEQUENCE s; CREATE TABLE t (id int PRIMARY KEY, a e, n int DEFAULT nextval('s'))")
	before := d.wholeDump()
	for _, sql := range []string{
		"ALTER TABLE p DETACH PARTITION p1", "ALTER TABLE p ATTACH PARTITION loose FOR VALUES FROM (10) TO (20)",
		"DROP TYPE e CASCADE", "DROP SEQUENCE s CASCADE", "DROP TABLE p1",
	} {
		d.exec(sql).refused("Declare the statements that take the step back as its undo, or run it by hand")
	}
	for _, sql := range []string{"CREATE TABLE pg_temp.x (id int)",
		"CREATE FUNCTION pg_temp.x() RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE TYPE pg_temp.x AS ENUM ('a')",
		"CREATE DOMAIN pg_temp.x AS int"} {
		d.exec(sql).refused(
			"it makes x for its own session only, which ends with the step; use a WITH query, or a table that is not temporary")
	}
	require.Equal(t, before, d.wholeDump())
}

// TestSchemasOfTheServerAndTheJournalDoNotChangeInSilence: what somebody has made there is a part of
// the schema, and none of the server's own objects goes unseen.
func TestSchemasOfTheServerAndTheJournalDoNotChangeInSilence(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, "CREATE TABLE wide (id int PRIMARY KEY, v text); INSERT INTO wide VALUES (1, 'x')")
	d.dsn = d.server.Admin(d.name)
	d.run("SET allow_system_table_mods = on", "CREATE TABLE pg_catalog.kept (id int PRIMARY KEY, v text)",
		"CREATE INDEX kept_v ON pg_catalog.kept (v)", "CREATE DOMAIN pg_catalog.small AS int",
		"CREATE FUNCTION information_schema.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"CREATE POLICY theirs ON information_schema.sql_parts USING (true)",
		"CREATE SCHEMA unwind_3", "CREATE TABLE unwind_3.t (id int)")
	d.exec("UPDATE wide SET v = 'y'").apply() // the table is prepared
	before := readCatalogs(t, d.dsn, false)
	toast := "pg_toast.pg_toast_" + d.value("SELECT 'wide'::regclass::oid")
	const drops = "it drops what was not made in this database"
	for sql, want := range map[string]string{
		"ALTER TABLE kept RENAME TO other":                               "would not give back: column kept 1 id",
		"ALTER TABLE kept DROP CONSTRAINT kept_pkey":                     "would not give back: column kept_pkey 1 id",
		"ALTER TABLE kept ALTER v SET DEFAULT 'x'":                       "would not give back: column kept 2 v",
		"GRANT SELECT ON kept TO PUBLIC":                                 "would not give back: relation kept",
		"DROP INDEX kept_v":                                              "would not give back: column kept_v 1 v",
		"ALTER DOMAIN small SET DEFAULT 3":                               "would not give back: type small",
		"DROP FUNCTION information_schema.f()":                           "would not give back: routine information_schema.f()",
		"ALTER FUNCTION information_schema.f() COST 7":                   "would not give back: routine information_schema.f()",
		"ALTER FUNCTION g() SET SCHEMA information_schema":               "without routine information_schema.g()",
		"DROP RULE pg_settings_n ON pg_settings":                         "would not give back: built-in objects",
		"DROP POLICY theirs ON information_schema.sql_parts":             "would not give back: built-in objects",
		"DROP FUNCTION information_schema._pg_char_octet_length CASCADE": "would not give back: built-in objects",
		"DROP TABLE information_schema.sql_parts":                        drops,
		"DROP SCHEMA information_schema CASCADE":                         drops,
		"GRANT SELECT ON " + toast + " TO PUBLIC":                        "would not give back: relation public.wide",
		"ALTER TABLE unwind.record RENAME owner TO other":                "would not give back: column unwind.record",
		"GRANT SELECT ON unwind.record TO PUBLIC":                        "would not give back: relation unwind.record",
		"ALTER SCHEMA unwind OWNER TO worker":                            "would not give back: schema unwind",
	} {
		d.exec(sql).refused(want)
		require.Empty(t, readCatalogs(t, d.dsn, false).compare(before), sql)
	}
	for _, sql := range []string{
		"CREATE FUNCTION pg_catalog.made() RETURNS int LANGUAGE sql AS 'SELECT 1'", "DROP TABLE kept",
		"COMMENT ON FUNCTION information_schema.f() IS 'x'", "ALTER TABLE unwind_3.t RENAME TO u",
		"ALTER TABLE unwind_3.t ADD CHECK (id > 0)",
	} {
		s := d.exec(sql)
		s.apply()
		require.NotEmpty(t, readCatalogs(t, d.dsn, false).compare(before), sql)
		s.undo(activities.Restored)
		require.Empty(t, readCatalogs(t, d.dsn, false).compare(before), sql)
	}
}

// TestWhatEscapesFromATransactionIsNotTried: a plan would do it as well as the step.
func TestWhatEscapesFromATransactionIsNotTried(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, `CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE u (id int PRIMARY KEY);
		CREATE FUNCTION deep() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN
		(pg_create_physical_replication_slot('s')).slot_name; END $$;
		CREATE FUNCTION outer() RETURNS text LANGUAGE sql BEGIN ATOMIC SELECT deep(); END;
		CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM deep(); RETURN NEW; END $$;
		CREATE TRIGGER fires BEFORE INSERT ON u FOR EACH ROW EXECUTE FUNCTION fires();
		CREATE FUNCTION fires_too() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM deep(); RETURN NULL; END $$;
		CREATE TRIGGER fires_too BEFORE TRUNCATE ON u EXECUTE FUNCTION fires_too();
		CREATE TABLE coded (id int PRIMARY KEY); INSERT INTO coded VALUES (1); CREATE TABLE ready (id int PRIMARY KEY)`)
	d.asAdmin("CREATE FUNCTION foreign_code() RETURNS trigger LANGUAGE internal AS 'suppress_redundant_updates_trigger'",
		"CREATE TRIGGER foreign_code BEFORE UPDATE ON coded FOR EACH ROW EXECUTE FUNCTION foreign_code()",
		"CREATE EXTENSION dblink", "CREATE EXTENSION pgcrypto", "CREATE EXTENSION pg_prewarm",
		"CREATE FUNCTION uncounted() RETURNS int LANGUAGE plpgsql SET track_counts = off AS "+
			"$$ BEGIN COMMENT ON TABLE t IS 'x'; RETURN 1; END $$")
	d.dsn = d.server.Admin(d.name)
	before := d.wholeDump()
	for sql, name := range map[string]string{
		"SELECT pg_create_physical_replication_slot('s')":                                 "pg_create_physical_replication_slot",
		"INSERT INTO t SELECT 1, pg_create_restore_point('x')::text":                      "pg_create_restore_point",
		"CREATE TABLE made AS SELECT \"pg_switch_wal\"()":                                 "pg_switch_wal",
		"ALTER TABLE t ADD w text DEFAULT pg_logical_emit_message(false, 'a', 'b')::text": "pg_logical_emit_message",
		"DO $$ BEGIN PERFORM pg_stat_reset(); END $$":                                     "pg_stat_reset",
		"SELECT outer()":                          "pg_create_physical_replication_slot",
		"TRUNCATE u":                              "pg_create_physical_replication_slot",
		"UPDATE coded SET id = 1":                 "foreign_code",
		"INSERT INTO u VALUES (1)":                "pg_create_physical_replication_slot",
		"SELECT pg_prewarm('t')":                  "pg_prewarm",
		"SELECT uncounted()":                      "uncounted",
		"CREATE TABLE made AS SELECT uncounted()": "uncounted",
		"DO $$ BEGIN SET LOCAL track_counts = off; COMMENT ON TABLE t IS 'x'; SET LOCAL track_counts = on; END $$": "track_counts",
		"SELECT query_to_xml('SELECT pg_switch_wal()', true, false, '')":                                           "query_to_xml",
		"UPDATE t SET v = (SELECT pg_promote()::text)":                                                             "pg_promote",
	} {
		d.exec(sql).refused("it calls " + name + ", or names it in a function that it calls")
	}
	d.asAdmin("CREATE FUNCTION sees() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM deep(); END $$",
		"CREATE EVENT TRIGGER sees ON ddl_command_end EXECUTE FUNCTION sees()", "ALTER EVENT TRIGGER sees DISABLE")
	d.exec("CREATE TABLE seen (id int)").plan()
	d.exec("INSERT INTO ready VALUES (2)").apply()
	d.asAdmin("ALTER EVENT TRIGGER sees ENABLE")
	for _, sql := range []string{"CREATE TABLE seen (id int)", "COMMENT ON TABLE t IS 'x'",
		"DO $$ BEGIN EXECUTE 'DROP' || ' TABLE t'; END $$"} {
		d.exec(sql).refused("it calls pg_create_physical_replication_slot")
	}
	// t has no triggers of ours yet
	d.exec("INSERT INTO t VALUES (9)").refused("an event trigger calls pg_create_physical_replication_slot")
	d.exec("DELETE FROM ready").apply()
	d.asAdmin("DROP EVENT TRIGGER sees", "DROP FUNCTION sees")
	q := d.step("postgres.query",
		map[string]any{"database": "main", "sql": "SELECT pg_create_physical_replication_slot('s')"})
	_, err := q.action.Apply(t.Context(), q.entry, q.with, "")
	require.ErrorContains(t, err, "it calls pg_create_physical_replication_slot")
	require.Equal(t, before, d.wholeDump())
	require.Equal(t, "0", d.value("SELECT count(*) FROM pg_replication_slots"))
	s := d.exec(
		"INSERT INTO t SELECT 1, encode(gen_random_bytes(4), 'hex') || gen_random_uuid() || clock_timestamp() || "+
			"pg_relation_size('t')", "DO $$ BEGIN PERFORM pg_advisory_xact_lock(1); DELETE FROM t; END $$")
	s.apply()
	s.undo(activities.Restored)
}

const partitioned = `CREATE TABLE o (id int PRIMARY KEY); INSERT INTO o VALUES (1);
	CREATE TABLE p (id int PRIMARY KEY, v int REFERENCES o CHECK (v > 0)) PARTITION BY RANGE (id);
	CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p VALUES (1, 1)`
