package postgres_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres"
)

// preflight looks at a step before the task's first step acts.
func (s *step) preflight(later ...string) error {
	s.t.Helper()
	p, ok := s.action.(activities.Preflighter)
	require.True(s.t, ok)
	return p.Preflight(s.t.Context(), activities.Outlook{Step: s.with, Later: later})
}

// TestPreflightFindsWhatIsCertainToBeRefused: without running a statement, and without leaving
// anything.
func TestPreflightFindsWhatIsCertainToBeRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	d.asAdmin("CREATE TABLE theirs (id int PRIMARY KEY)")
	d.limit(postgres.Database{Deny: []string{"public.team"}})
	before := d.dump()
	const current = "postgres:main"
	for sql, want := range map[string]struct{ text, current string }{
		"DELETE FROM person WHERE": {"syntax error at end of input", ""},
		"DELETE FROM nowhere":      {`relation "nowhere" does not exist`, current},
		"UPDATE person SET nothing = 1": {`column "nothing" of relation "person" does not exist`,
			current},
		"UPDATE person SET id = no_such_function(1)": {"function no_such_function(integer) does not exist",
			current},
		"DELETE FROM theirs":                                      {"permission denied for table theirs", current},
		"DELETE FROM team":                                        {"public.team: this worker's config denies it", ""},
		"ALTER SYSTEM SET work_mem = 1":                           {"ALTER SYSTEM is not allowed", ""},
		"DELETE FROM person; DELETE FROM person WHERE id = $1":    {"it has 1 parameter, params has 0", ""},
		"DO $$ BEGIN x":                                           {"unterminated dollar-quoted string", ""},
		"WITH gone AS (DELETE FROM nowhere RETURNING 1) SELECT 1": {`relation "nowhere" does not exist`, current},
	} {
		err := d.exec(sql).preflight()
		refused, ok := errors.AsType[*activities.Error](err)
		require.True(t, ok, "%s: %v", sql, err)
		require.Equal(t, activities.Refused, refused.Type, "%s: %v", sql, err)
		require.Contains(t, refused.Message, want.text, sql)
		require.Equal(t, want.current, refused.Current, sql)
	}
	for _, fine := range []string{"DELETE FROM person", "INSERT INTO person VALUES (1, 'p1') ON CONFLICT DO NOTHING",
		"DO $$ BEGIN DELETE FROM person; END $$", "SELECT 1 / 0 FROM person",
		"CREATE TABLE made (id int PRIMARY KEY); INSERT INTO made VALUES (1)"} {
		require.NoError(t, d.exec(fine).preflight(), fine)
	}
	query := func(sql string, params ...any) *step {
		return d.step("postgres.query", map[string]any{"database": "main", "sql": sql, "params": params})
	}
	require.ErrorContains(t, query("TABLE nowhere").preflight(), `relation "nowhere" does not exist`)
	require.ErrorContains(t, query("SELECT 1; SELECT 2").preflight(), "give one statement; it has 2")
	require.NoError(t, query("SELECT id FROM person WHERE id = $1", json.Number("1")).preflight())
	require.NoError(t, query("SHOW server_version").preflight())
	require.Equal(t, before, d.dump())
	require.Equal(t, "true", d.value("SELECT to_regnamespace('unwind') IS NULL"), "looking leaves nothing")
}

func TestPreflightJudgesOnlyWhatIsKnown(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	s := d.step("postgres.exec", map[string]any{"database": "main", "sql": "DELETE FROM nowhere WHERE id = $1"})
	require.NoError(t, s.preflight("params"))
	require.NoError(t, s.preflight("database"))
	require.ErrorContains(t,
		d.step("postgres.exec", map[string]any{"database": "other", "sql": "SELECT 1"}).preflight("sql"),
		`"other" is not one of`)
}

func TestPreflightFindsServersThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	d.asAdmin("DROP ROLE IF EXISTS nothing_granted", "CREATE ROLE nothing_granted LOGIN")
	t.Cleanup(func() { d.asAdmin("DROP ROLE nothing_granted") })
	s := d.exec("SELECT 1")
	for dsn, want := range map[string]string{
		d.server.DSN("nothing"):                        "there is no such database",
		d.server.DSN(d.name) + " user=nobody_known":    "the server refuses the worker's role or password",
		d.server.DSN(d.name) + " user=nothing_granted": "GRANT SET ON PARAMETER session_replication_role",
	} {
		d.dsn = dsn
		err := s.preflight()
		require.ErrorContains(t, err, want)
		require.Equal(t, activities.Refused, activities.TypeOf(err), err)
	}
	d.dsn = "host=/nowhere"
	require.ErrorContains(t, s.preflight(), "cannot be reached")
	require.Equal(t, activities.ActionFailed, activities.TypeOf(s.preflight()), "it may be back when the step runs")
}
