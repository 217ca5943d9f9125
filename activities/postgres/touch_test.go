package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres"
)

func TestTwoNamesOfOneDatabaseAreOne(t *testing.T) {
	t.Parallel()
	d, other := newDatabase(t), newDatabase(t)
	at := func(dsn string) postgres.Database {
		return postgres.Database{DSN: func() (string, error) { return dsn, nil }}
	}
	world, err := postgres.New(postgres.Config{State: t.TempDir(),
		Databases: map[string]postgres.Database{"main": at(d.dsn), "alias": at(d.dsn), "other": at(other.dsn)}})
	require.NoError(t, err)
	registry := activities.NewRegistry(world)
	touches := func(action, database, more string) activities.Touch {
		all, err := registry.Touches(t.Context(), action,
			activities.Outlook{Step: activities.Step{With: []byte(`{"database": "` + database + `"` + more + `}`)}})
		require.NoError(t, err)
		require.Len(t, all, 1)
		return all[0]
	}
	exec := touches("postgres.exec", "main", `, "sql": "DELETE FROM a"`)
	require.Equal(t, exec, touches("postgres.exec", "alias", `, "sql": "DELETE FROM a"`))
	require.Equal(t, activities.Touch{Name: exec.Name, Reads: true},
		touches("postgres.query", "alias", `, "sql": "SELECT 1"`))
	require.Equal(t, exec, touches("postgres.checkpoint", "alias", ""))
	require.NotEqual(t, exec, touches("postgres.exec", "other", `, "sql": "DELETE FROM a"`))
}
