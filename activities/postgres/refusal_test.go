package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres"
)

// TestWhatCannotBeUndoneIsRefusedByName: nothing is changed, whether a plan was made or not.
//
//nolint:dupword // SQL
func TestWhatCannotBeUndoneIsRefusedByName(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people,
		`CREATE TABLE nokey (a int); CREATE TABLE nullable (a int UNIQUE); CREATE UNLOGGED TABLE u (id int PRIMARY KEY);
		CREATE TABLE guarded (id int PRIMARY KEY); ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
		ALTER TABLE guarded FORCE ROW LEVEL SECURITY;
		CREATE POLICY p ON guarded USING (true);
		CREATE FUNCTION ddl() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CREATE TABLE made (a int); END $$;
		CREATE FUNCTION trunc() RETURNS void LANGUAGE plpgsql AS $$ BEGIN TRUNCATE team CASCADE; END $$;
		CREATE FUNCTION disarm() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('unwind.record', '', true);
		END $$;
		CREATE FUNCTION disarm_and_rearm() RETURNS void LANGUAGE plpgsql AS $$ DECLARE r text :=
		current_setting('unwind.record'); BEGIN
			PERFORM set_config('unwind.record', '', true); UPDATE person SET mail = 'x' WHERE id = 1;
			PERFORM set_config('unwind.record', r, true); END $$;
		CREATE FUNCTION elsewhere() RETURNS void LANGUAGE plpgsql AS $$ DECLARE r text := current_setting('unwind.record');
		BEGIN
			PERFORM set_config('unwind.record', '999999', true); UPDATE person SET mail = 'x' WHERE id = 1;
			PERFORM set_config('unwind.record', r, true); END $$;
		CREATE FUNCTION makes_up() RETURNS void LANGUAGE plpgsql AS $$ DECLARE r text := current_setting('unwind.record');
		BEGIN
			PERFORM set_config('unwind.record', '', true); UPDATE person SET mail = 'x' WHERE id = 1;
			DELETE FROM unwind.change WHERE ctid = (SELECT min(ctid) FROM unwind.change WHERE record > 0);
			PERFORM set_config('unwind.record', r, true); END $$;
		CREATE FUNCTION spoils() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
			UPDATE person SET mail = 'x' WHERE id = 1; UPDATE unwind.change SET old = new WHERE record > 0; END $$;
		CREATE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS $$ BEGIN BEGIN INSERT INTO team VALUES (77), (1);
		EXCEPTION WHEN unique_violation THEN NULL; END; END $$;
		CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$;
		CREATE SCHEMA unwind_app; CREATE TABLE unwind_app.account (id int PRIMARY KEY);
		INSERT INTO unwind_app.account VALUES (1), (2);
		CREATE SCHEMA unwind_0_1; CREATE TABLE unwind_0_1.t (id int PRIMARY KEY); INSERT INTO unwind_0_1.t VALUES (1);
		CREATE TYPE mood AS ENUM ('ok'); CREATE SEQUENCE counter`)
	d.asAdmin("CREATE EXTENSION postgres_fdw",
		fmt.Sprintf("CREATE SERVER away FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', dbname '%s')", d.server.Dir,
			d.name),
		"CREATE USER MAPPING FOR worker SERVER away OPTIONS (user 'worker', password_required 'false')",
		"CREATE FOREIGN TABLE far (id int) SERVER away OPTIONS (table_name 'team')", "GRANT ALL ON far TO worker")
	d.exec("UPDATE person SET mail = 'warm' WHERE id = 2").apply() // the tables are prepared
	d.exec("DELETE FROM team WHERE id = 3").apply()
	before := d.dump()
	for statement, want := range map[string]string{
		"/* a */ -- b\n ALTER SYSTEM SET " +
			"work_mem = 1": "ALTER SYSTEM is not allowed: it is about what no schema holds",
		"REFRESH MATERIALIZED VIEW x": "REFRESH is not allowed",
		"COMMENT ON DATABASE " + d.name +
			" IS 'x'": "it changes pg_shdescription, which is no part of a schema",
		"GRANT CONNECT ON DATABASE " + d.name + " TO PUBLIC": "it changes pg_database",
		"ALTER TYPE mood ADD VALUE 'new'": "it has no exact inverse (taking it back would not give " +
			"back: type public.mood",
		"ALTER SEQUENCE counter " +
			"RESTART WITH 7": "it rewrites the table public.counter",
		"UPDATE person SET mail = 'x' WHERE id = 1; ALTER TABLE person ALTER secret SET " +
			"NOT NULL": "the step has changed rows of public.person before",
		"UPDATE person SET mail = 'x' WHERE id = 1; ALTER TABLE person ADD UNIQUE " +
			"(secret)": "the step has changed rows of public.person before",
		"CREATE INDEX CONCURRENTLY ON " +
			"person (mail)": "CONCURRENTLY runs outside of transactions",
		"CREATE TEMP TABLE x (a int)": "it is about what no schema holds",
		"ALTER TABLE person DROP " +
			"COLUMN id": "public.person would have no primary key or unique index on columns that are NOT NULL and stay, by " +
			"which the values find their rows again",
		"UPDATE person SET mail = 'x' WHERE id = 1; ALTER TABLE person " +
			"DROP secret": "the step has changed rows of public.person before",
		"ALTER TABLE person ADD x uuid DEFAULT " +
			"gen_random_uuid()": "it has no exact inverse (it rewrites the table public.person",
		"ALTER TABLE person ALTER id TYPE bigint": "it has no exact inverse",
		"DROP TABLE team":                         "cannot drop table team because other objects depend on it",
		"DROP TABLE nowhere":                      `table "nowhere" does not exist`,
		"UPDATE person SET mail = 'x' WHERE id = 1; DROP TABLE person": "the step has changed rows of public.person before",
		"CREATE TABLE x (a int); DROP TABLE x":                         "the step makes it and takes it away again",
		"DROP TABLE guarded; SELECT ddl()":                             "from within a function",
		"VACUUM person":                                                "VACUUM is not allowed",
		"COMMIT": "COMMIT is not allowed: all statements of a step " +
			"are one transaction",
		"DELETE FROM person; COMMIT":      "statement 2: COMMIT is not allowed",
		`SELECT "pg_notify"('a', 'b')`:    "pg_notify is not allowed",
		"COPY person TO PROGRAM 'true'":   "COPY is not allowed",
		"NOTIFY x":                        "NOTIFY is not allowed",
		"SELECT pg_notify('a', 'b')":      "pg_notify is not allowed",
		"SET ROLE postgres":               "SET is not allowed",
		"SELECT * FROM dblink('', '')":    "dblink is not allowed",
		"SELECT lo_import('/etc/passwd')": "lo_import is not allowed",
		"SELECT lo_create(0)":             "large objects",
		"SELECT ddl()": "it changes the schema, or truncates a table, " +
			"from within a function",
		"SELECT trunc()":          "it changes the schema, or truncates a table",
		"SELECT 1 AS a INTO made": "it changes the schema",
		"WITH x AS (SELECT 1) SELECT * INTO TEMP made FROM x": "it changes the schema",
		"SELECT disarm(); DELETE FROM team WHERE id = 2":      "a statement changed settings",
		"SELECT elsewhere()":        "1 row of public.person changed, and 0 captured",
		"SELECT makes_up()":         "1 row of public.person changed, and 0 captured",
		"SELECT spoils()":           "a statement changed unwind.change",
		"SELECT disarm_and_rearm()": "1 row of public.person changed, and 0 captured",
		"DELETE FROM unwind_app.account WHERE id = 1; DELETE FROM unwind_0_1.t": "unwind_0_1.t: it is the journal of Unwind",
		"CREATE TABLE pg_temp.person (id int PRIMARY KEY)":                      "it makes person for its own session only",
		"CREATE VIEW pg_temp.v AS SELECT 1":                                     "it makes v for its own session only",
		"SELECT fails()": "a function rolled back a part of " +
			"what it did",
		"INSERT INTO nokey VALUES (1)":                         "public.nokey: it has no primary key",
		"INSERT INTO nullable VALUES (1)":                      "public.nullable: it has no primary key",
		"INSERT INTO guarded VALUES (1)":                       "public.guarded: row security applies",
		"DELETE FROM unwind.record":                            "unwind.record: it is the journal of Unwind",
		"UPDATE unwind.change SET old = '{}'":                  "unwind",
		"INSERT INTO far VALUES (4)":                           "far: it is a foreign table",
		"INSERT INTO nowhere VALUES (1)":                       `relation "nowhere" does not exist`,
		"SELEC 1":                                              "SELEC is not allowed: a step runs INSERT",
		"SELECT $1":                                            "it has 1 parameter, params has 0",
		"CALL commits()":                                       "invalid transaction termination",
		"-- nothing":                                           "there is no statement in it",
		"DELETE FROM person WHERE mail = 'it''s; -- ' AND $$;": "unterminated",
	} {
		t.Run(statement, func(t *testing.T) {
			s := d.exec(statement)
			s.database = &database{t: t}
			s.refused(want)
		})
	}
	require.Equal(t, before, d.dump())
}

func TestParametersThatAreWrongAreRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	for want, with := range map[string]map[string]any{
		`"other" is not one of this worker's postgres.databases: main`: {"database": "other", "sql": "SELECT 1"},
		"sql, statements: give one of the two": {"database": "main", "sql": "SELECT 1",
			"statements": []any{map[string]any{"sql": "SELECT 1"}}},
		"sql: give the statements to run": {"database": "main"},
		"params: they belong to sql": {"database": "main", "params": []any{1},
			"statements": []any{map[string]any{"sql": "SELECT 1"}}},
		"params and changes belong to one statement": {"database": "main", "sql": "SELECT $1; SELECT 2",
			"params": []any{1}},
		`unknown field "query"`: {"database": "main", "query": "SELECT 1"},
		"invalid input syntax for type integer": {"database": "main",
			"sql": "DELETE FROM person WHERE id = $1", "params": []any{"x"}},
	} {
		d.step("postgres.exec", with).refused(want)
	}
	s := d.step("postgres.exec",
		map[string]any{"database": "main", "statements": []any{map[string]any{"sql": "DELETE FROM person", "changes": 1}}})
	_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
	require.ErrorContains(t, err, "statements 1: it changes 40 rows, and must change 1; nothing was changed")
	require.Equal(t, "40", d.value("SELECT count(*) FROM person"))
}

func TestParametersKeepTheirTypes(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, "CREATE TABLE t (id bigint PRIMARY KEY, n numeric, b bool, j jsonb, a text[], at timestamptz)")
	s := d.step("postgres.exec", map[string]any{
		"database": "main", "sql": "INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6) RETURNING *",
		"params": []any{json.Number("9007199254740993"), json.Number("1.10"), true, map[string]any{"a": []any{1, nil}},
			[]any{"x,\"y\\", nil, "{}"}, "2020-01-01T00:00:00Z"},
	})
	r := s.apply()
	require.Equal(t,
		`(9007199254740993,1.10,t,"{""a"": [1, null]}","{""x,\\""y\\\\"",NULL,""{}""}","2020-01-01 00:00:00+00")`,
		d.value("SELECT t FROM t"))
	raw, err := json.Marshal(r.Outputs)
	require.NoError(t, err)
	require.Contains(t, string(raw), `"id":9007199254740993`)
	require.Contains(t, string(raw), `"tables":{"public.t":{"came":1,"changed":0,"went":0}}`)
	n := d.step("postgres.exec",
		map[string]any{"database": "main", "sql": "DELETE FROM t WHERE id = ANY($1)",
			"params": []any{[]any{1, json.Number("9007199254740993")}}})
	require.Equal(t, json.Number("1"), n.apply().Outputs["changes"])
}

func TestTheWorkersConfigLimitsTables(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	d.limit(postgres.Database{Allow: []string{"public.per*"}, Deny: []string{"public.team"}})
	d.exec("UPDATE person SET mail = 'x' WHERE id = 1").apply()
	d.exec("INSERT INTO team VALUES (8)").refused("public.team: this worker's config denies it in database main")
	d.exec("UPDATE person SET mail = t.id::text FROM team t WHERE t.id = 1 AND person.id = 1").refused(
		"public.team: this worker's config denies it")
	q := d.step("postgres.query", map[string]any{"database": "main", "sql": "SELECT * FROM team"})
	_, err := q.action.Apply(t.Context(), q.entry, q.with, "")
	require.ErrorContains(t, err, "public.team: this worker's config denies it")
	d.exec("GRANT SELECT ON team TO PUBLIC").refused("public.team: this worker's config")
	d.exec("ALTER TABLE person ALTER mail SET DEFAULT 'x'").apply()
	d.limit(postgres.Database{Allow: []string{"public.other"}})
	d.exec("COMMENT ON TABLE person IS 'x'").refused("public.person: this worker's config allows changes of public.other")
	d.exec("ALTER TABLE person RENAME mail TO x").refused(
		"public.person: this worker's config allows changes of public.other")
	d.exec("DELETE FROM person WHERE id = 1").refused("public.person: this worker's config allows changes of public.other")
}

func TestQueryReadsAndCannotWrite(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people, "CREATE FUNCTION w() RETURNS int LANGUAGE sql AS 'DELETE FROM person RETURNING 1'")
	run := func(sql string, params ...any) (activities.Result, error) {
		s := d.step("postgres.query", map[string]any{"database": "main", "sql": sql, "params": params, "limit": 5})
		c, err := s.action.Plan(t.Context(), s.entry, s.with)
		require.NoError(t, err)
		require.True(t, c.Unchanged)
		r, err := s.action.Apply(t.Context(), s.entry, s.with, c.Digest)
		if err == nil {
			s.undo(activities.Nothing)
		}
		return r, err
	}
	r, err := run(
		"SELECT id, mail, NULL AS none, '{\"a\": 1}'::jsonb AS j, true AS b FROM person WHERE id <= $1 ORDER BY id", 2)
	require.NoError(t, err)
	raw, err := json.Marshal(r.Outputs)
	require.NoError(t, err)
	require.JSONEq(t, `{"count": 2, "value": 1,
		"rows": [{"id": 1, "mail": "p1", "none": null, "j": {"a": 1}, "b": true}, {"id": 2, "mail": "p2", "none": null, "j": {"a": 1}, "b": true}]}`, string(raw))
	_, err = run("TABLE person")
	require.ErrorContains(t, err, "it returns more than 5 rows; narrow it, or raise limit")
	for _, writes := range []string{"DELETE FROM person", "SELECT w()",
		"WITH x AS (DELETE FROM team RETURNING 1) SELECT * FROM x", "SELECT nextval('s')"} {
		_, err = run(writes)
		require.Error(t, err, writes)
		require.Equal(t, activities.Refused, activities.TypeOf(err), err)
	}
	require.Equal(t, "40", d.value("SELECT count(*) FROM person"))
	require.Equal(t, "true", d.value("SELECT to_regclass('unwind.record') IS NULL"), "reading leaves nothing")
}

func TestChecksRunBeforeTheCommit(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	s := d.exec("DELETE FROM person WHERE id = 1", "SELECT count(*)::int AS left FROM person")
	s.with.Checks = []activities.Check{{JSON: &activities.JSONCheck{At: "/rows/0/left", Equals: json.RawMessage("40")}}}
	_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
	require.Equal(t, activities.CheckFailed, activities.TypeOf(err), err)
	require.Equal(t, "40", d.value("SELECT count(*) FROM person"))
	s.with.Checks[0].JSON.Equals = json.RawMessage("39")
	s.apply()
	require.Equal(t, "39", d.value("SELECT count(*) FROM person"))
}

// TestAQueryIsCheckedBeforeTheCommit: it sees what the step has done, and cannot change anything
// itself.
func TestAQueryIsCheckedBeforeTheCommit(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people, "CREATE FUNCTION w() RETURNS int LANGUAGE sql AS 'DELETE FROM team RETURNING 1'")
	query := func(when activities.When, sql, expect string) activities.Check {
		return activities.Check{When: when, Query: &activities.QueryCheck{SQL: sql, Expect: json.RawMessage(expect)}}
	}
	before := d.wholeDump()
	for _, c := range []struct {
		check activities.Check
		says  string
		kind  activities.ErrorType
	}{
		{query("", "SELECT count(*) FROM person", "40"),
			"check 1 (query, staged): SELECT count(*) FROM person: it is 39, want 40", activities.CheckFailed},
		{query("", "SELECT id FROM person WHERE id = 1", "1"), "it is null, want 1", activities.CheckFailed},
		{query("", "SELECT id, mail FROM person", "1"), "it must return one row of one column", activities.Refused},
		{query("", "SELECT w()", "1"), "read-only transaction", activities.Refused},
		{query("", "DROP TABLE person", "1"), "give one statement that reads", activities.Refused},
		{query("", "NOTIFY x", "1"), "NOTIFY is not allowed", activities.Refused},
		{query("", "SELECT nothing", "1"), "column \"nothing\" does not exist", activities.Refused},
	} {
		s := d.exec("DELETE FROM person WHERE id = 1")
		s.with.Checks = []activities.Check{c.check}
		_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
		require.ErrorContains(t, err, c.says)
		require.Equal(t, c.kind, activities.TypeOf(err), err)
	}
	require.Equal(t, before, d.wholeDump())
	s := d.exec("DELETE FROM person WHERE id = 1")
	s.with.Checks = []activities.Check{query("", "SELECT max(id) IS NOT NULL FROM person", "true"),
		query(activities.Live, "SELECT count(*) FROM person", "39")}
	s.apply()
	s = d.step("postgres.query", map[string]any{"database": "main", "sql": "SELECT 1"})
	for _, when := range []activities.When{"", activities.Staged, activities.Live} {
		s.with.Checks = []activities.Check{query(when, "SELECT count(*) FROM person", "40")}
		_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
		require.ErrorContains(t, err, "it is 39, want 40")
	}
}

func TestConnectionsThatDoNotWork(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	const password = "password-that-nobody-may-see"
	for dsn, want := range map[string]string{
		"host=/nowhere password=" + password:                             "the server cannot be reached",
		"postgres://u:" + password + "@[bad":                             "the connection string is not one of PostgreSQL",
		d.server.DSN("nothing") + " password=" + password:                "there is no such database",
		d.server.DSN(d.name) + " user=nobody_known password=" + password: "the server refuses the worker's role or password",
	} {
		s := d.exec("DELETE FROM person")
		good := d.dsn
		d.dsn = dsn
		_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
		d.dsn = good
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), password)
		require.NotContains(t, err.Error(), "/nowhere")
	}
	require.ErrorContains(t, postgres.Config{}.Validate(), "name at least one database")
	require.ErrorContains(t,
		postgres.Config{
			Databases: map[string]postgres.Database{"a b": {Allow: []string{"x"}, Sensitive: []string{"a.b"}}}}.Validate(),
		`"a b" must be a name`)
}

func TestARoleWithoutTheRightToUndoIsRefusedBeforeAnythingIsChanged(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	d.asAdmin("DROP ROLE IF EXISTS weak", "CREATE ROLE weak LOGIN", "GRANT ALL ON person, team TO weak",
		"GRANT CREATE ON DATABASE "+d.name+" TO weak")
	t.Cleanup(func() { d.asAdmin("DROP OWNED BY weak", "DROP ROLE weak") })
	good := d.dsn
	d.dsn = d.server.DSN(d.name) + " user=weak"
	s := d.exec("DELETE FROM person")
	s.refused("GRANT SET ON PARAMETER session_replication_role")
	s.undoAny(activities.Nothing)
	d.dsn = good
	require.Equal(t, "40", d.value("SELECT count(*) FROM person"))
}

// TestALockOfSomebodyElse: a step waits for a row, and prepares a table only under a short lock.
func TestALockOfSomebodyElse(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	conn, err := pgx.Connect(t.Context(), d.dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), "BEGIN; UPDATE person SET mail = 'theirs' WHERE id = 30")
	require.NoError(t, err)
	s := d.exec("DELETE FROM person WHERE id = 1")
	done := make(chan error)
	go func() {
		_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
		done <- err
	}()
	require.Eventually(t, func() bool {
		return d.value("SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'ShareRowExclusiveLock'") == "1"
	}, 10*time.Second, 5*time.Millisecond)
	_, err = conn.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	require.NoError(t, <-done)
	s.undo(activities.Restored)
	require.Equal(t, "theirs", d.value("SELECT mail FROM person WHERE id = 30"))
}

func TestARecordThatIsLostOrDamagedIsSaid(t *testing.T) {
	t.Parallel()
	for _, harm := range []string{
		"DELETE FROM unwind.record", "DELETE FROM unwind.change WHERE ctid = (SELECT min(ctid) FROM unwind.change)",
		"DROP SCHEMA unwind CASCADE",
		"UPDATE unwind.record SET tables = '['", "INSERT INTO unwind.change SELECT * FROM unwind.change",
	} {
		d := newDatabase(t, people)
		s := d.exec("UPDATE person SET secret = 'x' WHERE id < 3")
		s.apply()
		left := d.dump()
		d.run(harm)
		_, err := s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%s: %v", harm, err)
		require.Equal(t, left, d.dump())
	}
}

func TestEverythingOfOursCanBeTakenAway(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	count := func() string { return d.value("SELECT count(*) FROM pg_trigger WHERE tgname ~ '^!unwind'") }
	s := d.exec("DELETE FROM team WHERE id = 1")
	s.apply()
	s.undo(activities.Restored)
	require.Equal(t, "6", count())
	d.run("DROP SCHEMA unwind CASCADE")
	require.Equal(t, "0", count())
	d.exec("DELETE FROM team WHERE id = 1").apply()
}
