package host_test

import (
	"encoding/json"
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/folder"
)

// TestWhatIsInLayersIsNotMissed has a step of an open task in a layer over a container: the
// container's own files do not show it, so no checkpoint is taken of them.
func TestWhatIsInLayersIsNotMissed(t *testing.T) {
	containertest.NeedFiles(t)
	box := containertest.Start(t)
	state := t.TempDir()
	t.Cleanup(func() { containertest.RemoveLayers(t, state) })
	layered, err := container.New(container.Config{State: state, Layers: container.LayersRequire})
	require.NoError(t, err)
	plain, err := folder.New(folder.Config{State: t.TempDir(), Engine: containertest.Socket})
	require.NoError(t, err)
	exec, keep := layered.Actions[0], plain.Actions[0]
	step := func(w activities.World, name string, with map[string]string) (activities.Entry, activities.Step) {
		mark, err := w.Journal(t.Context())
		require.NoError(t, err)
		raw, err := json.Marshal(with)
		require.NoError(t, err)
		return activities.Entry{Token: activities.NewToken(t.Name(), name, 1), Params: raw,
			Place: activities.Place{Journal: mark}}, activities.Step{ID: name, With: raw}
	}
	start := func() {
		require.NoError(t, box.ContainerStart(t.Context(), box.ID, dockertypes.StartOptions{}))
	}
	e, s := step(layered, "exec", map[string]string{"container": box.Name, "command": "echo two >/srv/a"})
	_, err = exec.Apply(t.Context(), e, s, "")
	require.NoError(t, err)
	box.Stop(t)
	first, again := step(plain, "early", map[string]string{"container": box.Name})
	_, err = keep.Apply(t.Context(), first, again, "")
	require.ErrorContains(t, err, "what they did is in layers; end the task first")
	start()
	_, err = exec.Undo(t.Context(), e, activities.Decision{Done: true})
	require.NoError(t, err)
	box.Stop(t)
	last, keeps := step(plain, "late", map[string]string{"container": box.Name})
	_, err = keep.Apply(t.Context(), last, keeps, "")
	require.NoError(t, err, "an empty layer holds nothing")
}
