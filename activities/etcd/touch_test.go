package etcd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/etcd"
)

func TestTwoNamesOfOneClusterAreOne(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	world, err := etcd.New(etcd.Config{Databases: map[string]etcd.Database{"main": d.config, "alias": d.config}})
	require.NoError(t, err)
	registry := activities.NewRegistry(world)
	touches := func(database string) []activities.Touch {
		all, err := registry.Touches(t.Context(), "etcd.txn",
			activities.Outlook{
				Step: activities.Step{With: []byte(`{"database": "` + database + `", "put": [{"key": "a", "value": "b"}]}`)}})
		require.NoError(t, err)
		require.Len(t, all, 1)
		return all
	}
	require.Equal(t, touches("main"), touches("alias"))
}
