package postgres_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres"
)

// TestAStepThatCouldNeverBeginIsNothingToUndo: no person is needed for what a typo, a missing right
// or a limit has kept from beginning.
func TestAStepThatCouldNeverBeginIsNothingToUndo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare  []string // by an administrator; %s is the database
		database string
		observed string
	}{
		"a database that nobody knows": {database: "typo", observed: "names no journal of database typo"},
		"no right to make the journal": {
			prepare:  []string{"REVOKE CREATE ON DATABASE %s FROM PUBLIC, worker", "ALTER DATABASE %s OWNER TO postgres"},
			observed: "it cannot be made",
		},
		"an event trigger's veto": {
			prepare: []string{
				"CREATE FUNCTION veto() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no schemas " +
					"here'; END $$",
				"CREATE EVENT TRIGGER veto ON ddl_command_start WHEN TAG IN ('CREATE SCHEMA') EXECUTE FUNCTION veto()",
			},
			observed: "no schemas here",
		},
		"a database that is read only": {
			prepare:  []string{"ALTER ROLE worker IN DATABASE %s SET default_transaction_read_only = on"},
			observed: "was never committed"},
		"a limit of a millisecond": {prepare: []string{"ALTER ROLE worker IN DATABASE %s SET statement_timeout = '1ms'"},
			observed: "was never committed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, people)
			for _, sql := range c.prepare {
				d.asAdmin(strings.ReplaceAll(sql, "%s", d.name))
			}
			before := d.dump()
			s := d.exec("DELETE FROM person", "SELECT pg_sleep(0.1)")
			if c.database != "" {
				s = d.step("postgres.exec", map[string]any{"database": c.database, "sql": "DELETE FROM person"})
			}
			_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
			require.Error(t, err)
			u := s.undoAny(activities.Nothing)
			require.Contains(t, u.Observed, c.observed)
			require.Equal(t, u, s.undoAny(activities.Nothing), "again")
			require.Equal(t, before, d.dump())
			if c.database == "" && u.LookAgain > 0 {
				_, err = s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
				require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "a step that has acted had a journal: %v", err)
			}
		})
	}
}

// TestADatabaseThatWasAwayIsNothingToUndo: it did not answer when the task was compiled, so that no
// journal of it is named, and does when the step comes.
func TestADatabaseThatWasAwayIsNothingToUndo(t *testing.T) {
	t.Parallel()
	d := newWhole(t, people)
	before := d.dump()
	for action, with := range map[string]map[string]any{
		"postgres.exec":       {"database": "main", "sql": "DELETE FROM person"},
		"postgres.checkpoint": {"database": "main"},
		"postgres.restore":    {"database": "main", "checkpoint": "cp-1"},
	} {
		s := d.step(action, with)
		s.entry.Place.Journal = strings.ReplaceAll(s.entry.Place.Journal, "main=", "other=")
		_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
		require.Error(t, err, action)
		u := s.undoAny(activities.Nothing)
		require.Contains(t, u.Observed, "names no journal of database main", action)
		_, err = s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
		require.Equal(t, activities.WrongPlace, activities.TypeOf(err), "%s: one that has acted was named: %v", action, err)
	}
	require.Equal(t, before, d.dump())
}

// TestAJournalThatAnotherFirstStepMakesMeanwhile: a session that has looked for the journal before
// another one has made it takes that one's.
func TestAJournalThatAnotherFirstStepMakesMeanwhile(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	other, err := pgx.Connect(t.Context(), d.dsn)
	require.NoError(t, err)
	defer func() { _ = other.Close(context.Background()) }()
	_, err = other.Exec(t.Context(), "BEGIN; SELECT pg_advisory_xact_lock(hashtext('unwind')); "+postgres.Schema)
	require.NoError(t, err)
	s := d.exec("UPDATE person SET secret = 'x' WHERE id < 3")
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
}
