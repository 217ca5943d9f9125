package host_test

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
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
	for _, world := range host.WorldNames() {
		require.True(t,
			slices.ContainsFunc(specs, func(s activities.Spec) bool { return activities.WorldOf(s.Name) == world }), world)
	}
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
}

// Every worker can wait.
func TestSpecsOfAConfigAreThoseOfItsWorlds(t *testing.T) {
	specs, err := host.Specs(&host.Config{Worlds: []activities.Settings{&container.Settings{}}})
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"container.exec": true, "container.replace": true, "wait.for": true}, names(specs))

	specs, err = host.Specs(&host.Config{})
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"wait.for": true}, names(specs))
}
