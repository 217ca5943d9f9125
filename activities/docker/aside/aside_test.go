package aside_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// TestAForwardThatComesLateBringsNothing: another call has brought the container forward meanwhile,
// and an undo has left it aside. What only holds its former name goes on holding it.
func TestAForwardThatComesLateBringsNothing(t *testing.T) {
	b := containertest.Start(t)
	client, err := engine.Connect(containertest.Socket)
	require.NoError(t, err)
	b.Stop(t)
	image := b.Inspect(t).Image
	earlier, token := activities.NewToken(b.Name, "earlier", 1), activities.NewToken(b.Name, "step", 1)
	t.Cleanup(func() {
		containertest.Clear(t, earlier)
		containertest.Clear(t, token)
	})
	from, way := aside.NameFor(earlier), aside.NamePrefix(token)+"again-forward"
	require.NoError(t, b.ContainerRename(t.Context(), b.ID, from))
	forward := func(reach func(string)) error {
		c := aside.Container{Engine: client, Token: token, ID: b.ID, Name: b.Name, Images: []string{image},
			Reach: reach}
		return c.BringForward(t.Context(), from, way)
	}
	left := aside.LeftName(token, from)
	err = forward(func(what string) {
		if what != "before-way" {
			return
		}
		require.NoError(t, forward(func(string) {}))
		require.NoError(t, b.ContainerRename(t.Context(), b.Name, left))
	})
	require.ErrorIs(t, err, aside.ErrLate)
	for name, isOld := range map[string]bool{left: true, from: false} {
		holder, err := engine.FindHolder(t.Context(), client, name)
		require.NoError(t, err)
		require.NotEmpty(t, holder, name)
		require.Equal(t, isOld, holder == b.ID, name)
	}
	for _, name := range []string{b.Name, way} {
		holder, err := engine.FindHolder(t.Context(), client, name)
		require.NoError(t, err)
		require.Empty(t, holder, name)
	}
	require.ErrorIs(t, forward(func(string) {}), aside.ErrLate)
}
