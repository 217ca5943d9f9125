package postgres_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
)

// TestADatabaseThatWasRestoredFromABackup has forgotten a step that the history knows as done:
// nobody is told that there is nothing to undo, and nothing is touched. The journal is in the
// database, so it goes back with it.
func TestADatabaseThatWasRestoredFromABackup(t *testing.T) {
	t.Parallel()
	postgrestest.Need(t)
	server, err := postgrestest.Start()
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	databases := map[string]*database{}
	for _, name := range []string{"of before the first step", "of after another step", "and a step was done since"} {
		d := &database{t: t, server: server, name: server.Database(t, people)}
		d.dsn = server.DSN(d.name)
		d.limit(postgres.Database{})
		databases[name] = d
	}
	databases["of after another step"].exec("UPDATE person SET secret = 'early' WHERE id = 1").apply()

	data, backup := filepath.Join(server.Dir, "data"), filepath.Join(server.Dir, "backup")
	copyFiles := func(from, to string) {
		server.Halt()
		require.NoError(t, os.RemoveAll(to))
		out, err := exec.Command("cp", "-a", from, to).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NoError(t, server.Restart())
	}
	copyFiles(data, backup)
	steps := map[string]*step{}
	for name, d := range databases {
		steps[name] = d.exec("UPDATE person SET secret = 'x' WHERE id < 3")
		steps[name].apply()
	}
	copyFiles(backup, data)
	databases["and a step was done since"].exec("UPDATE person SET secret = 'late' WHERE id = 1").apply()
	for name, s := range steps {
		left := s.wholeDump()
		for range 2 {
			_, err := s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
			require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%s: %v", name, err)
			require.ErrorContains(t, err, "was the database restored from a backup?", name)
			require.Equal(t, left, s.wholeDump(), name)
		}
	}
}

// TestADatabaseThatWasMadeAnew is another one, whatever it is called: its server knows it by a
// number.
func TestADatabaseThatWasMadeAnew(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	admin := func(sql string) { postgrestest.Exec(t, d.server.Admin("postgres"), sql) }
	admin("CREATE DATABASE " + d.name + "_backup TEMPLATE " + d.name)
	s := d.exec("UPDATE person SET secret = 'x' WHERE id < 3")
	s.apply()
	admin("DROP DATABASE " + d.name + " WITH (FORCE)")
	admin("ALTER DATABASE " + d.name + "_backup RENAME TO " + d.name)
	left := d.wholeDump()
	_, err := s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
	require.Equal(t, activities.WrongPlace, activities.TypeOf(err), "%v", err)
	require.Equal(t, left, d.wholeDump())
}
