package host_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/worker/host"
)

func names(specs []activities.Spec) map[string]bool {
	all := map[string]bool{}
	for _, s := range specs {
		all[s.Name] = true
	}
	return all
}

func TestSpecsOfAllWorldsWithNothingOpenedAndNothingLeft(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	t.Setenv("DOCKER_HOST", "unix:///nowhere.sock")
	t.Setenv("PATH", "")
	specs, err := host.Specs(nil)
	require.NoError(t, err)
	for _, action := range []string{"file.write", "file.delete", "container.exec", "container.replace", "terraform.apply", "sqlite.exec", "sqlite.query", "postgres.exec", "redis.exec", "etcd.txn", "mcp.call", "stripe.customer.create"} {
		require.True(t, names(specs)[action], action)
	}
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestSpecsOfAConfigAreThoseOfItsWorlds(t *testing.T) {
	specs, err := host.Specs(&host.Config{Container: &host.ContainerConfig{}})
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"container.exec": true, "container.replace": true}, names(specs))

	specs, err = host.Specs(&host.Config{})
	require.NoError(t, err)
	require.Empty(t, specs)
}
