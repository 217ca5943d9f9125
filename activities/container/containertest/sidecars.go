package containertest

import (
	"context"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	realcontainer "github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
)

// Sidecars are those that an engine has of a home.
func Sidecars(t testing.TB, c *client.Client, home string) []container.Summary {
	t.Helper()
	found, err := c.ContainerList(context.Background(),
		container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", sidecar.Label+"="+home))})
	require.NoError(t, err)
	return found
}

// RemoveHome removes what a home has on an engine.
func RemoveHome(t testing.TB, c *client.Client, home string) {
	t.Helper()
	require.NoError(t, sidecar.Remove(context.Background(), c, home))
}

// RemoveLayers removes what a worker with a state folder has on the engine at hand. It is for a
// Cleanup.
func RemoveLayers(t testing.TB, state string) {
	t.Helper()
	home, err := realcontainer.Home(state)
	require.NoError(t, err)
	RemoveHome(t, Docker(Outliving(t)), home)
}
