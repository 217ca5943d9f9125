package postgres_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/testrun"
)

// declared is a step that declares its undo.
func (d *database) declared(sql string, undo ...map[string]any) *step {
	return d.step("postgres.exec", map[string]any{"database": "main", "sql": sql, "undo": undo})
}

func back(sql string, params ...any) map[string]any {
	s := map[string]any{"sql": sql}
	if params != nil {
		s["params"] = params
	}
	return s
}

// TestDeclaredUndoTakesBackWhatHasNoInverse: the dump with the schema is the one from before, and
// the report says so.
func TestDeclaredUndoTakesBackWhatHasNoInverse(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people,
		`CREATE TABLE nokey (a int); INSERT INTO nokey VALUES (1), (2); CREATE TYPE mood AS ENUM ('ok');
			CREATE SEQUENCE counter;
		CREATE TABLE felt (id int PRIMARY KEY, m mood DEFAULT 'ok'); INSERT INTO felt VALUES (1), (2);
		CREATE MATERIALIZED VIEW seen AS SELECT id FROM felt;
		CREATE FUNCTION ddl() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CREATE TABLE made AS SELECT 1 AS a; END $$;
		CREATE TABLE part (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
		CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (10); INSERT INTO part VALUES (1, 'a')`)
	steps := map[string]*step{
		"a column of another type": d.declared("ALTER TABLE person ALTER id TYPE bigint",
			back("ALTER TABLE person ALTER id TYPE integer")),
		"a new kind in an enum": d.declared("ALTER TYPE mood ADD VALUE 'new'",
			back("ALTER TYPE mood RENAME TO old; CREATE TYPE mood AS ENUM ('ok'); ALTER TABLE felt ALTER m DROP DEFAULT; "+
				"ALTER TABLE felt ALTER m TYPE mood USING m::text::mood; ALTER TABLE felt ALTER m SET DEFAULT 'ok'; DROP "+
				"TYPE old")),
		"a sequence": d.declared("ALTER SEQUENCE counter RESTART WITH 7",
			back("ALTER SEQUENCE counter RESTART WITH 1")),
		"rows without a key":     d.declared("INSERT INTO nokey VALUES (3)", back("DELETE FROM nokey WHERE a = $1", 3)),
		"a function that alters": d.declared("SELECT ddl()", back("DROP TABLE made")),
		"a rewriting default": d.declared("ALTER TABLE person ADD x uuid DEFAULT gen_random_uuid()",
			back("ALTER TABLE person DROP x")),
		"an aggregate": d.declared("CREATE AGGREGATE total (int) (SFUNC = int4pl, STYPE = int)",
			back("DROP AGGREGATE total(int)")),
		"an operator": d.declared("CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq)",
			back("DROP OPERATOR === (int, int)")),
		"a refreshed view": d.declared("INSERT INTO felt VALUES (3); REFRESH MATERIALIZED VIEW seen",
			back("DELETE FROM felt WHERE id = 3; REFRESH MATERIALIZED VIEW seen")),
		"an extension": d.declared("CREATE EXTENSION citext", back("DROP EXTENSION citext")),
		"a partition that goes": d.declared("ALTER TABLE part DETACH PARTITION part1",
			back("ALTER TABLE part ATTACH PARTITION part1 FOR VALUES FROM (0) TO (10)")),
		"a table that comes again": d.declared("CREATE TABLE x AS SELECT 1 AS a; DROP TABLE x; UPDATE nokey SET a = a + 1",
			back("UPDATE nokey SET a = a - 1")),
	}
	names := slices.Sorted(maps.Keys(steps))
	if testrun.Plain() {
		names = []string{"a column of another type", names[testrun.Rand(t).IntN(len(names))]}
	}
	for _, name := range slices.Compact(names) {
		s := steps[name]
		before := d.wholeDump()
		plan := s.plan()
		require.Equal(t, before, d.wholeDump(), name)
		require.Empty(t, plan.Losses, name)
		require.False(t, plan.Ask, name)
		require.Equal(t, activities.High, plan.Risk, name)
		require.Contains(t, plan.Facts, "undo: it is declared, and was tried: it gives back exactly what the step changes",
			name)
		_, err := s.action.Apply(t.Context(), s.entry, s.with, plan.Digest)
		require.NoError(t, err, name)
		after := d.wholeDump()
		s.apply() // the answer to the COMMIT was lost
		require.Equal(t, after, d.wholeDump(), name)
		look, err := s.action.Observe(t.Context(), s.entry)
		require.NoError(t, err, name)
		require.Equal(t, activities.AsLeft, look.State, name)
		u := s.undo(activities.Restored)
		require.Contains(t, u.Observed, "all is as it was", name)
		require.Equal(t, before, d.wholeDump(), name)
		require.Equal(t, u, s.undo(activities.Restored), name)
	}
}

// TestADeclaredUndoIsComparedByAllThatItChanges: what the undo does not give back is lost or
// refused, however small it is.
func TestADeclaredUndoIsComparedByAllThatItChanges(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.dsn = d.server.Admin(d.name)
	d.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"CREATE TYPE mood AS ENUM ('ok')", "CREATE TYPE pair AS (a int)", "CREATE CAST (mood AS pair) WITH INOUT",
		"CREATE AGGREGATE ag (int) (SFUNC = int4pl, STYPE = int)", "CREATE TYPE span AS RANGE (SUBTYPE = int4)",
		"CREATE PUBLICATION pub FOR TABLE t (id) WHERE (id > 1)",
		"CREATE FOREIGN DATA WRAPPER fdw", "CREATE SERVER srv FOREIGN DATA WRAPPER fdw", "CREATE FOREIGN TABLE ft (a "+
			"int) SERVER srv")
	for sql, lost := range map[string]string{
		"ALTER FUNCTION f() COST 9":                                                     "routine f()",
		"ALTER EXTENSION plpgsql ADD FUNCTION f()":                                      "extension plpgsql has function f()",
		"ALTER PUBLICATION pub SET TABLE t (id)":                                        "publication pub t {id} ",
		"ALTER PUBLICATION pub SET TABLE t WHERE (id > 1)":                              "publication pub t",
		"CREATE OR REPLACE AGGREGATE ag (int) (SFUNC = int4mi, STYPE = int)":            "aggregate ag(integer)",
		"DROP CAST (mood AS pair); CREATE CAST (mood AS pair) WITH INOUT AS ASSIGNMENT": "cast mood pair",
		"DROP TYPE span; CREATE TYPE span AS RANGE (SUBTYPE = int8)":                    "range span",
		"ALTER FOREIGN TABLE ft ALTER a OPTIONS (x '1')":                                "column ft 1 a",
	} {
		plan := d.declared(sql, back("SELECT 1")).plan()
		require.True(t, plan.Ask, sql)
		require.Contains(t, strings.ReplaceAll(strings.Join(plan.Losses, "\n"), "public.", ""), lost, sql)
	}
	for _, sql := range []string{"GRANT SELECT ON pg_authid TO PUBLIC", "COMMENT ON FUNCTION now() IS 'x'",
		"INSERT INTO t VALUES (1)"} {
		d.declared(sql,
			back("GRANT EXECUTE ON FUNCTION pg_ls_logdir() TO PUBLIC")).refused("it changes the server's own objects, in pg_")
	}
}

// TestDeclaredUndoThatLoses is told in the plan, asked for, and reported as what was seen.
func TestDeclaredUndoThatLoses(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	s := d.declared("ALTER TABLE person ALTER mail TYPE varchar(3) USING CASE WHEN id < 30 THEN mail ELSE id::text END",
		back("ALTER TABLE person ALTER mail TYPE text"))
	plan := s.plan()
	require.True(t, plan.Ask)
	require.Equal(t, activities.Compensation, plan.Strategy)
	require.Len(t, plan.Losses, 1, plan.Losses)
	require.Contains(t, plan.Losses[0], "public.person: before the step 40 rows, then 40 rows that are not the same")
	require.Contains(t, plan.Diff, "+ column public.person")
	require.Equal(t, "changes column public.person.mail", plan.Schema[0])

	// The approval covers the rows of what it touches.
	d.run("UPDATE person SET mail = 'mai' WHERE id = 2")
	_, err := s.action.Apply(t.Context(), s.entry, s.with, plan.Digest)
	require.Equal(t, activities.StaleApproval, activities.TypeOf(err), err)
	s.apply()
	u := s.undo(activities.Compensated)
	require.Equal(t, plan.Losses, u.Losses)
	require.Contains(t, u.Observed, "not all is as it was")

	partial := d.declared("ALTER TABLE person ALTER id TYPE bigint; CREATE INDEX found ON person (mail)",
		back("ALTER TABLE person ALTER id TYPE integer"))
	require.Contains(t, partial.plan().Losses, "the schema has instead or besides: index public.found CREATE INDEX found ON public.person USING btree (mail) f f t") //nolint:dupword // of a trait
}

// TestDeclaredUndoIsRefusedWhereItFails before anything is changed.
func TestDeclaredUndoIsRefusedWhereItFails(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people,
		"CREATE FUNCTION disarm() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('unwind.record', '7', "+
			"true); END $$")
	before := d.wholeDump()
	alter := "ALTER TABLE person ALTER id TYPE bigint"
	for want, s := range map[string]*step{
		"the undo that the step declares fails after the step, so nothing was changed: undo 1": d.declared(alter,
			back("ALTER TABLE person ALTER nothing TYPE integer")),
		"undo 2: COMMIT is not allowed": d.declared(alter,
			back("SELECT 1"), back("COMMIT")),
		"undo 1: params and changes belong to one statement": d.declared(alter,
			back("SELECT $1; SELECT 2", 1)),
		"undo 1: there is no statement in it": d.declared(alter,
			back("-- later")),
		"undo: give the statements that take the step back, or leave it out": d.declared(alter,
			[]map[string]any{}...),
		"CREATE ROLE is not allowed: it concerns the whole server, or the connection alone": d.declared("CREATE ROLE x",
			back("DROP ROLE x")),
		"unwind.change: it is the journal of Unwind": d.declared(alter,
			back("INSERT INTO unwind.change (record, relid) VALUES (1, 1)")),
		"a statement changed settings of the connection": d.declared("SELECT disarm()",
			back("SELECT 1")),
		"it changes pg_database, which is of the whole server, or not for the " +
			"worker's role": d.declared("GRANT CONNECT ON DATABASE "+d.name+" TO PUBLIC",
			back("REVOKE CONNECT ON DATABASE "+d.name+" FROM PUBLIC")),
		"it changes pg_largeobject, which is of the whole " +
			"server, or ": d.declared("SELECT lo_from_bytea(4711, 'a')", back("SELECT lo_unlink(4711)")),
	} {
		s.refused(want)
		require.Equal(t, before, d.wholeDump(), want)
	}
	d.limit(postgres.Database{Allow: []string{"public.team"}})
	d.declared(alter,
		back("ALTER TABLE person ALTER id TYPE integer")).refused(
		"public.person: this worker's config allows changes of public.team")
	d.limit(postgres.Database{Deny: []string{"public.person"}})
	d.declared("UPDATE team SET id = id + 10 WHERE id = 3", back("UPDATE team SET id = id - 10 WHERE id = 13"),
		back("SELECT count(*) FROM person")).refused("public.person: this worker's config denies it")
	require.Equal(t, before, d.wholeDump())
}

// TestDeclaredUndoStopsAtDrift: what others changed since is shown, and only exactly that can be
// forced.
func TestDeclaredUndoStopsAtDrift(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	s := d.declared("ALTER TABLE person ALTER id TYPE bigint", back("ALTER TABLE person ALTER id TYPE integer"))
	s.apply()
	d.run("UPDATE person SET mail = 'theirs' WHERE id = 1")
	left := d.wholeDump()
	u := s.undo(activities.Drifted)
	require.Contains(t, u.Drift.Diff,
		"public.person: as the step left it 40 rows, now 40 rows that are not the same\n+ id=1")
	require.Contains(t, u.Drift.Diff, `"theirs"`)
	require.Equal(t, left, d.wholeDump())
	d.run("UPDATE person SET mail = 'again' WHERE id = 1")
	s.decide(activities.Decision{Done: true, Force: u.Drift.Digest}, activities.Drifted) // it is another drift
	u = s.undo(activities.Drifted)
	u = s.decide(activities.Decision{Done: true, Force: u.Drift.Digest}, activities.Compensated)
	require.Equal(t, []string{"public.person: before the step 40 rows, then 40 rows that are not the same"}, u.Losses)
	require.Contains(t, u.Observed, "over what someone else had changed")
	require.Equal(t, "integer again", d.value("SELECT pg_typeof(id) || ' ' || mail FROM person WHERE id = 1"))

	// A definition that others have replaced is drift too; what they have made elsewhere is not.
	s = d.declared("CREATE AGGREGATE total (int) (SFUNC = int4pl, STYPE = int); ALTER TABLE person ALTER id TYPE bigint",
		back("DROP AGGREGATE total (int); ALTER TABLE person ALTER id TYPE integer"))
	s.apply()
	d.run("ALTER TABLE person ALTER id SET DEFAULT 7", "CREATE TABLE elsewhere (a int)")
	require.Contains(t, s.undo(activities.Drifted).Drift.Diff, "- column public.person 1 id bigint")
	d.run("ALTER TABLE person ALTER id DROP DEFAULT")
	s.undo(activities.Restored)
	require.Equal(t, "0", d.value("SELECT count(*) FROM elsewhere"))
}

// TestDeclaredUndoThatDoesOtherwise than when it was tried touches nothing.
func TestDeclaredUndoThatDoesOtherwise(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people, "CREATE TABLE nokey (a int); CREATE TABLE other (a int); INSERT INTO other VALUES (1)",
		"CREATE FUNCTION undo() RETURNS void LANGUAGE plpgsql AS $$ BEGIN DELETE FROM nokey; END $$")
	s := d.declared("INSERT INTO nokey VALUES (1)", back("SELECT undo()"))
	s.apply()
	d.run("CREATE OR REPLACE FUNCTION undo() RETURNS void LANGUAGE plpgsql AS $$ BEGIN DELETE FROM other; END $$")
	before := d.wholeDump()
	u := s.undo(activities.Drifted)
	require.Contains(t, u.Drift.Diff,
		"would not do what it did when it was tried; nothing was touched\nit touches public.other now\npublic.nokey: "+
			"before the step 0 rows, then 1 row")
	require.Equal(t, before, d.wholeDump())
	u = s.decide(activities.Decision{Done: true, Force: u.Drift.Digest}, activities.Compensated)
	require.Len(t, u.Losses, 1)
}

// TestEarlierStepsKnowTheirRowsAfterDeclaredUndo: the undo has written them anew, with other
// versions.
func TestEarlierStepsKnowTheirRowsAfterDeclaredUndo(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people,
		"CREATE TABLE plain (id int PRIMARY KEY, v text); INSERT INTO plain VALUES (1, 'one'), (2, NULL)")
	before := d.wholeDump()
	steps := []*step{
		d.exec("UPDATE person SET mail = 'first ' || id WHERE id < 3; UPDATE plain SET v = 'first'"),
		d.declared("CREATE TABLE copied AS TABLE plain; DROP TABLE plain",
			back("CREATE TABLE plain (id int PRIMARY KEY, v text); INSERT INTO plain TABLE copied; DROP TABLE copied")),
		d.declared("ALTER TABLE person ALTER id TYPE bigint", back("ALTER TABLE person ALTER id TYPE integer")),
		d.exec("DELETE FROM person WHERE id = 1"),
		d.declared("CREATE TABLE kept AS TABLE person; ALTER TABLE person RENAME mail TO email; UPDATE person SET "+
			"email = NULL",
			back("ALTER TABLE person RENAME email TO mail; UPDATE person p SET mail = k.mail FROM kept k WHERE k.id = p.id; "+
				"DROP TABLE kept")),
		d.exec("INSERT INTO person (id, email) VALUES (99, 'x')"),
	}
	for _, s := range steps {
		s.apply()
	}
	for _, s := range slices.Backward(steps) {
		s.undo(activities.Restored)
	}
	require.Equal(t, before, d.wholeDump())
}

// TestDeclaredStepWithoutEffect has nothing to take back: its undo does not run.
func TestDeclaredStepWithoutEffect(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	before := d.wholeDump()
	s := d.declared("CREATE TABLE IF NOT EXISTS person (id int)", back("DROP TABLE person"))
	require.True(t, s.plan().Unchanged)
	s.apply()
	s.undo(activities.Restored)
	require.Equal(t, before, d.wholeDump())
}

// TestCheckpointGivesBackWhatTheStatementsOfAnUndoCannot: the rows of what the step touches come
// from a copy.
func TestCheckpointGivesBackWhatTheStatementsOfAnUndoCannot(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people,
		`CREATE TABLE "odd ""name" (id int PRIMARY KEY, v numeric, twice numeric GENERATED ALWAYS AS (v * 2) STORED);
			INSERT INTO "odd ""name" VALUES (1, 1.50), (2, NULL)`,
		"CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'a trigger runs'; END $$; CREATE "+
			"TRIGGER stop BEFORE INSERT ON person FOR EACH ROW EXECUTE FUNCTION stop()")
	lossy := "ALTER TABLE person ALTER mail TYPE varchar(3) USING CASE WHEN id < 30 THEN mail ELSE id::text END"
	backToText := back("ALTER TABLE person ALTER mail TYPE text")
	step := func(sql string, undo ...map[string]any) *step {
		return d.step("postgres.exec", map[string]any{"database": "main", "sql": sql, "undo": undo, "checkpoint": true})
	}
	before := d.wholeDump()
	for _, s := range []checkpointed{
		{step(lossy, backToText), "checkpoint: it copies 40 rows of public.person ("},
		{step(`UPDATE "odd ""name" SET v = 0; DELETE FROM "odd ""name" WHERE id = 2; DELETE FROM team`, back("SELECT 1")),
			"checkpoint: it copies 3 rows of public.team ("},
	} {
		plan := s.plan()
		require.Empty(t, plan.Losses)
		require.False(t, plan.Ask)
		require.Contains(t, strings.Join(plan.Facts, "\n"), s.fact)
		_, err := s.action.Apply(t.Context(), s.entry, s.with, plan.Digest)
		require.NoError(t, err)
		s.undo(activities.Restored)
		require.Equal(t, before, d.wholeDump())
		require.Equal(t, "0", d.value("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'unwind_%'"), "the copy is gone")
	}

	// What others have written since is drift. Forced, it goes as it was shown.
	s := step(lossy, backToText)
	s.apply()
	d.run("UPDATE person SET mail = 'new' WHERE id = 1")
	u := s.undo(activities.Drifted)
	require.Contains(t, u.Drift.Diff, `+ id=1 mail="new"`)
	s.decide(activities.Decision{Done: true, Force: u.Drift.Digest}, activities.Restored)
	require.Equal(t, before, d.wholeDump())

	// A row that others have made refers to one that the step inserted.
	s = step("INSERT INTO team VALUES (9)", back("SELECT 1"))
	s.apply()
	d.run("CREATE TABLE theirs (team int REFERENCES team)", "INSERT INTO theirs VALUES (9)")
	left := d.dump()
	require.Contains(t, s.undo(activities.Drifted).Drift.Diff, "the foreign key theirs_team_fkey would not hold")
	require.Equal(t, left, d.dump())
	d.run("DROP TABLE theirs")
	s.undo(activities.Restored)

	// Without the copy, nothing is touched. A release drops it.
	s = step(lossy, backToText)
	s.apply()
	require.NoError(t, s.action.Release(t.Context(), s.entry))
	require.Equal(t, "0", d.value("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'unwind_%'"))
	s = step("UPDATE team SET id = id + 10 WHERE id = 3", back("SELECT 1"))
	s.apply()
	d.asAdmin("DO $$ BEGIN EXECUTE (SELECT format('DROP SCHEMA %I CASCADE', nspname) FROM pg_namespace WHERE nspname " +
		"LIKE 'unwind_%'); END $$")
	_, err := s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
	d.step("postgres.exec",
		map[string]any{"database": "main", "sql": "SELECT 1", "checkpoint": true}).refused("checkpoint: it belongs to undo")
}

// checkpointed is a step with what its plan says of the checkpoint.
type checkpointed struct {
	*step

	fact string
}
