package folder_test

import (
	"path/filepath"
	"testing"

	cerrdefs "github.com/containerd/errdefs"
	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// replaced is a worker with both worlds. Step replace of one has put another container in the place of
// a box, and step forward of the other has brought the box back, and was undone at once or not.
type replaced struct {
	*containertest.Box

	folders, containers activities.World
}

func startReplaced(t *testing.T) *replaced {
	containertest.NeedFiles(t)
	green, state := containertest.Greens(t)[0], t.TempDir()
	r := &replaced{Box: containertest.Start(t)}
	var err error
	r.containers, err = containertest.Open(state)
	require.NoError(t, err)
	r.folders, err = (&folder.Settings{Engine: containertest.Socket}).Open(activities.Opening{State: state})
	require.NoError(t, err)
	t.Cleanup(func() {
		containertest.ClearJournal(t, filepath.Join(state, "folder", "journal"))
		containertest.ClearJournal(t, filepath.Join(state, "container"))
	})
	r.stop(t)
	r.do(t, r.folders, "folder.checkpoint", "one", params{"container": r.Name})
	require.NoError(t, r.ContainerStart(t.Context(), r.Name, dockertypes.StartOptions{}))
	r.do(t, r.containers, "container.replace", "replace", params{"container": r.Name, "image": green})
	r.stop(t)
	r.do(t, r.folders, "folder.restore", "forward", r.back())
	require.Equal(t, r.ID, r.idOf(t, r.Name), "with its own id")
	return r
}

func (r *replaced) back() params {
	return with(params{"container": r.Name}, "checkpoint", nameOf("one"))
}

func (r *replaced) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, r.ContainerStop(t.Context(), r.Name, dockertypes.StopOptions{Timeout: new(int)}))
}

func (r *replaced) do(t *testing.T, w activities.World, action, name string, p params) {
	t.Helper()
	_, err := call(t, w, action, name, p)
	require.NoError(t, err)
}

// entryOf is that of step replace or step forward.
func (r *replaced) entryOf(t *testing.T, name string) (activities.Action, activities.Entry) {
	if name == "forward" {
		return find(r.folders, "folder.restore"), entry(t, r.folders, "folder.restore", name, r.back())
	}
	return find(r.containers, "container.replace"),
		entry(t, r.containers, "container.replace", name, params{"container": r.Name, "image": containertest.Greens(t)[0]})
}

func (r *replaced) undo(t *testing.T, name string) {
	t.Helper()
	a, e := r.entryOf(t, name)
	undone, err := a.Undo(t.Context(), e, activities.Decision{Done: true})
	require.NoError(t, err)
	require.True(t, undone.Outcome.Settles(), undone)
}

func (r *replaced) release(t *testing.T, name string) {
	t.Helper()
	a, e := r.entryOf(t, name)
	require.NoError(t, a.Release(t.Context(), e))
}

// idOf is the container that has a name; empty: none.
func (r *replaced) idOf(t *testing.T, name string) string {
	t.Helper()
	c, err := r.ContainerInspect(t.Context(), name)
	if cerrdefs.IsNotFound(err) {
		return ""
	}
	require.NoError(t, err)
	return c.ID
}

func (r *replaced) requireNothingLeft(t *testing.T) {
	t.Helper()
	require.Empty(t, containertest.Left(t, token("replace")))
	require.Empty(t, containertest.Left(t, token("forward")))
}

func (r *replaced) left() string { return "unwind-" + token("forward") + "-left-" + token("replace") }

// A container that one world has set aside, and another has brought forward, goes with the undo of that
// once the record of the first is released: nobody else would remove it.
func TestABroughtForwardContainerOfAReleasedStepOfAnotherWorldGoes(t *testing.T) {
	r := startReplaced(t)
	r.release(t, "replace")
	require.Equal(t, r.ID, r.idOf(t, r.Name), "it is in its place")
	r.undo(t, "forward")
	require.Empty(t, r.idOf(t, r.ID))
	require.NotEmpty(t, r.idOf(t, r.Name), "the one that had replaced it")
	r.release(t, "forward")
	r.requireNothingLeft(t)
}

// The release of the first step leaves the name held that fences the undo of the second.
func TestAReleaseLeavesTheNameHeldThatAStepOfAnotherWorldHasGiven(t *testing.T) {
	r := startReplaced(t)
	a, e := r.entryOf(t, "forward")
	going, goOn, late := make(chan struct{}), make(chan struct{}), make(chan error)
	point.Hook(func(label string) {
		if label == "folder.restore:before-left" {
			point.Hook(nil)
			close(going)
			<-goOn
		}
	})
	defer point.Hook(nil)
	go func() {
		_, err := a.Undo(t.Context(), e, activities.Decision{Done: true})
		late <- err
	}()
	<-going
	r.undo(t, "forward")
	require.Equal(t, r.ID, r.idOf(t, r.left()))
	r.undo(t, "replace")
	require.Equal(t, r.ID, r.idOf(t, r.Name))
	r.release(t, "replace")
	close(goOn)
	<-late // however it ends
	require.Equal(t, r.ID, r.idOf(t, r.Name), "a late undo has not moved it")
	require.NotEmpty(t, r.idOf(t, r.left()))
	r.release(t, "forward")
	r.requireNothingLeft(t)
	require.Equal(t, r.ID, r.idOf(t, r.Name))
}
