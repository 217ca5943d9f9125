package redis_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/redis"
)

func TestTwoNamesOfOneDatabaseAreOne(t *testing.T) {
	t.Parallel()
	d, other := newDatabase(t), newDatabase(t)
	at := func(url string) redis.Database {
		return redis.Database{URL: func() (string, error) { return url, nil }}
	}
	world, err := redis.New(redis.Config{Databases: map[string]redis.Database{"main": at(d.url), "alias": at(d.url),
		"other": at(other.url)}})
	require.NoError(t, err)
	registry := activities.NewRegistry(world)
	touches := func(database string) []activities.Touch {
		all, err := registry.Touches(t.Context(), "redis.exec",
			activities.Outlook{
				Step: activities.Step{With: []byte(`{"database": "` + database + `", "commands": [["SET", "a", "b"]]}`)}})
		require.NoError(t, err)
		require.Len(t, all, 1)
		return all
	}
	require.Equal(t, touches("main"), touches("alias"))
	require.NotEqual(t, touches("main"), touches("other"))
}
