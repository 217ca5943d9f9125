package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres"
)

func (d *database) preparation(limits postgres.Database) *postgres.Preparation {
	d.t.Helper()
	limits.DSN = func() (string, error) { return d.dsn, nil }
	p, err := postgres.Config{Databases: map[string]postgres.Database{"main": limits}}.OpenPreparation(d.t.Context(),
		"main")
	require.NoError(d.t, err)
	d.t.Cleanup(p.Close)
	return p
}

func TestADatabaseIsPreparedAndEverythingIsTakenAwayAgain(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people,
		"CREATE TABLE nokey (a int); CREATE SCHEMA unwind_3; CREATE TABLE unwind_3.like_ours (id int PRIMARY KEY)")
	before := d.wholeDump()
	p := d.preparation(postgres.Database{Deny: []string{"public.team"}})
	sql, err := p.SQL(nil)
	require.NoError(t, err)
	prepared, err := p.Apply(nil)
	require.NoError(t, err)
	require.Equal(t, []string{"public.person", "unwind_3.like_ours"}, prepared, "nobody may change team, and nokey cannot be undone")
	rest, err := p.SQL(nil)
	require.NoError(t, err)
	require.Empty(t, rest)
	_, err = p.SQL([]string{"public.nowhere", "public.nokey"})
	require.ErrorContains(t, err, "has no table public.nowhere")
	require.ErrorContains(t, err, "public.nokey: it has no primary key")

	s := d.exec("DELETE FROM person WHERE id = 1")
	require.Len(t, s.plan().Facts, 1, "nothing is left to be made ready")
	s.apply()
	require.ErrorContains(t, p.Remove(), "its journal still needs 1 undo record")
	s.undo(activities.Restored)
	require.NoError(t, p.Remove())
	require.Equal(t, before, d.wholeDump())
	require.Equal(t, "0", d.value("SELECT count(*) FROM pg_trigger WHERE tgname ~ '^!unwind'"))
	require.Equal(t, "true", d.value("SELECT to_regnamespace('unwind') IS NULL"))

	d.run(sql) // an operator can run it as well
	require.Len(t, d.exec("DELETE FROM person WHERE id = 1").plan().Facts, 1)
}

// A statement on a table with children changes rows of those as well, so that their triggers have
// to be others. Others may do that at any time.
func TestTriggersFollowParentsAndChildren(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, "CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE part (id int PRIMARY KEY, v int)",
		"INSERT INTO t SELECT g, g FROM generate_series(1, 5) g",
		"INSERT INTO part SELECT g, g FROM generate_series(11, 15) g")
	back := func(statements ...string) {
		t.Helper()
		before := d.wholeDump()
		s := d.exec(statements...)
		s.apply()
		require.NotEqual(t, before, d.wholeDump())
		s.undo(activities.Restored)
		require.Equal(t, before, d.wholeDump())
	}
	triggers := func(table string) string {
		return d.value(
			"SELECT string_agg(tgname, ',' ORDER BY tgname) FROM pg_trigger WHERE NOT tgisinternal AND tgrelid = '" + table +
				"'::regclass")
	}
	const each, sets = "!unwind", "!unwind delete,!unwind insert,!unwind update"
	back("UPDATE t SET v = 0", "DELETE FROM part")
	require.Equal(t, []string{sets, sets}, []string{triggers("t"), triggers("part")})

	d.run("CREATE TABLE child (PRIMARY KEY (id)) INHERITS (t)", "INSERT INTO child VALUES (6, 6)")
	back("UPDATE t SET v = 0", "DELETE FROM t WHERE id > 4")
	require.Equal(t, []string{each, each}, []string{triggers("t"), triggers("child")})

	d.run("ALTER TABLE child NO INHERIT t")
	back("UPDATE t SET v = 1", "UPDATE child SET v = 1")
	require.Equal(t, []string{each, each}, []string{triggers("t"), triggers("child")},
		"they are as right as others, and slower")

	d.run("CREATE TABLE whole (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
		"ALTER TABLE whole ATTACH PARTITION part FOR VALUES FROM (10) TO (20)")
	back("UPDATE whole SET v = 0", "DELETE FROM part WHERE id = 12")
	require.Equal(t, each, triggers("part"))

	d.run("CREATE TABLE other (id int PRIMARY KEY, v int)", "INSERT INTO other VALUES (1, 1)")
	back("UPDATE other SET v = 2")
	require.Equal(t, sets, triggers("other"))
	back("CREATE TABLE late (PRIMARY KEY (id)) INHERITS (other)", "UPDATE other SET v = 3",
		"INSERT INTO late VALUES (7, 7)", "UPDATE other SET v = v + 1")
	require.Equal(t, each, triggers("other"), "it had a child while the step ran")
}
