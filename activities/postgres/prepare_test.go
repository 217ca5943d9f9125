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
	p, err := postgres.Config{Databases: map[string]postgres.Database{"main": limits}}.OpenPreparation(d.t.Context(), "main")
	require.NoError(d.t, err)
	d.t.Cleanup(p.Close)
	return p
}

func TestADatabaseIsPreparedAndEverythingIsTakenAwayAgain(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people, "CREATE TABLE nokey (a int)")
	before := d.wholeDump()
	p := d.preparation(postgres.Database{Deny: []string{"public.team"}})
	sql, err := p.SQL(nil)
	require.NoError(t, err)
	prepared, err := p.Apply(nil)
	require.NoError(t, err)
	require.Equal(t, []string{"public.person"}, prepared, "nobody may change team, and nokey cannot be undone")
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
	require.Equal(t, "0", d.value("SELECT count(*) FROM pg_trigger WHERE tgname = '!unwind'"))
	require.Equal(t, "true", d.value("SELECT to_regnamespace('unwind') IS NULL"))

	d.run(sql) // an operator can run it as well
	require.Len(t, d.exec("DELETE FROM person WHERE id = 1").plan().Facts, 1)
}
