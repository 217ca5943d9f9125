package folder_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/enginetest"
	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/testrun"
)

func openDocker(dir string) (activities.World, error) {
	return folder.New(folder.Config{State: filepath.Join(dir, "state"), Engine: containertest.Socket})
}

func TestRestoreOfAContainerConforms(t *testing.T) {
	containertest.NeedFiles(t)
	actiontest.Run(t, containerCase)
}

func TestRestoreOfAVolumeConforms(t *testing.T) {
	containertest.NeedFiles(t)
	actiontest.Run(t, volumeCase)
}

// change is what becomes of a container between two checkpoints: of files of its image, and of its
// own.
const change = "rm /bin/gzip /srv/gone/a; rm -r /var /srv/gone; mkdir -p /var/new /srv/gone; echo two >/srv/a; mv /srv/d /srv/e"

// containerCase and volumeCase are brief: what may break a restore, that of a folder tests.
var containerCase = actiontest.Case{
	Name: "restore of a container", Action: "folder.restore", Open: openDocker, Anew: true, Brief: true,
	Start: func(t testing.TB, dir string) {
		b := boxIn(t, dir)
		b.Run(t, "mkdir -p /srv/d /srv/gone; echo one >/srv/a; echo x >/srv/d/x; echo a >/srv/gone/a")
		b.Stop(t)
		keepIn(t, dir, "one", ofContainer(dir))
		require.NoError(t, b.ContainerStart(t.Context(), b.ID, dockertypes.StartOptions{}))
		b.Run(t, change)
		b.Stop(t)
		keepIn(t, dir, "two", ofContainer(dir))
		t.Cleanup(func() { clearWorld(t, dir) })
		b.Put(t, "/srv", map[string]string{"a": "three\n", "more/in": "x\n"})
	},
	With:      func(dir string) any { return with(ofContainer(dir), "checkpoint", nameOf("one")) },
	Next:      func(dir string) any { return with(ofContainer(dir), "checkpoint", nameOf("two")) },
	Manifest:  func(t testing.TB, dir string) string { return containertest.Files(t, containertest.In(t, dir)) },
	Drift:     func(t testing.TB, dir string) { put(t, dir, "a", containertest.Random()) },
	Meanwhile: func(t testing.TB, dir string) { put(t, dir, "a", "meanwhile\n") },
	Sample:    1,
}

var volumeCase = actiontest.Case{
	Name: "restore of a volume", Action: "folder.restore", Open: openDocker, Anew: true, Brief: true,
	Start: func(t testing.TB, dir string) {
		b := boxIn(t, dir)
		b.Run(t, "mkdir /data/d /data/gone; echo one >/data/a; echo x >/data/d/x; echo a >/data/gone/a")
		keepIn(t, dir, "one", ofVolume(dir))
		b.Run(t, "echo two >/data/a; rm -r /data/gone; mkdir /data/made")
		keepIn(t, dir, "two", ofVolume(dir))
		b.Run(t, "echo three >/data/a")
		b.Stop(t)
	},
	With:     func(dir string) any { return with(ofVolume(dir), "checkpoint", nameOf("one")) },
	Next:     func(dir string) any { return with(ofVolume(dir), "checkpoint", nameOf("two")) },
	Manifest: func(t testing.TB, dir string) string { return containertest.Files(t, containertest.In(t, dir)) },
	Drift: func(t testing.TB, dir string) {
		containertest.In(t, dir).Put(t, "/data", map[string]string{"a": containertest.Random()})
	},
	Meanwhile: func(t testing.TB, dir string) {
		containertest.In(t, dir).Put(t, "/data", map[string]string{"a": "meanwhile\n"})
	},
	Sample: 1,
}

func put(t testing.TB, dir, name, content string) {
	containertest.In(t, dir).Put(t, "/srv", map[string]string{name: content})
}

func with(p params, name string, value any) params { p[name] = value; return p }

func ofContainer(dir string) params { return params{"container": containertest.NameIn(dir)} }

func ofVolume(dir string) params { return params{"volume": containertest.NameIn(dir)} }

// boxIn starts a container for a folder, which has a volume of the same name at /data.
func boxIn(t testing.TB, dir string) *containertest.Box {
	var name string
	b := containertest.Start(t, func(_ *dockertypes.Config, h *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		name = "unwind-test-" + containertest.Random()
		h.Mounts = []mount.Mount{{Type: mount.TypeVolume, Source: name, Target: "/data"}}
	})
	require.NoError(t, b.ContainerRename(t.Context(), b.ID, name))
	b.Name = name
	t.Cleanup(func() {
		c := containertest.Docker(containertest.Outliving(t))
		require.NoError(t, c.ContainerRemove(context.Background(), b.Name, dockertypes.RemoveOptions{Force: true}))
		require.NoError(t, c.VolumeRemove(context.Background(), name, true))
	})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "name"), []byte(name), 0o600))
	return b
}

// keepIn makes a checkpoint of a container or a volume.
func keepIn(t testing.TB, dir, name string, p params) {
	_, err := call(t, openWorld(t, dir), "folder.checkpoint", name, p)
	require.NoError(t, err)
}

func openWorld(t testing.TB, dir string) activities.World {
	w, err := openDocker(dir)
	require.NoError(t, err)
	return w
}

// entry is that of a step of these tests.
func entry(t testing.TB, w activities.World, action, name string, p params) activities.Entry {
	mark, err := w.Journal(context.Background())
	require.NoError(t, err)
	raw, err := json.Marshal(p)
	require.NoError(t, err)
	return activities.Entry{Token: token(name), Action: action, Params: raw, Place: activities.Place{Journal: mark}}
}

func call(t testing.TB, w activities.World, action, name string, p params) (activities.Result, error) {
	e := entry(t, w, action, name, p)
	return find(w, action).Apply(context.Background(), e, activities.Step{ID: name, With: e.Params}, "")
}

func find(w activities.World, action string) activities.Action {
	return activities.NewRegistry(w).Action(action)
}

// TestAContainerGoesBackAndKeepsItsIdentity is on an engine with overlay2: what the image has that
// was removed or replaced is there again, and is gone again after the undo.
func TestAContainerGoesBackAndKeepsItsIdentity(t *testing.T) {
	testrun.NeedRoot(t, "the files of containers")
	e := enginetest.Start(t)
	containertest.Prepare(t, e)
	b := containertest.StartOn(t, e)
	dir := t.TempDir()
	w, err := folder.New(folder.Config{State: dir, Engine: e.Host})
	require.NoError(t, err)
	p := params{"container": b.Name}
	b.Put(t, "/srv", map[string]string{"a": "one\n", "d/x": "x\n", "gone/a": "a\n"})
	shows := func() string {
		require.NoError(t, b.ContainerStart(t.Context(), b.ID, dockertypes.StartOptions{}))
		return containertest.Files(t, b)
	}
	before := shows()
	require.Contains(t, before, "bin/gzip")
	r, err := call(t, w, "folder.checkpoint", "one", p)
	require.NoError(t, err, "it may run while it is read")
	b.Run(t, change)
	after := shows()
	require.NotContains(t, after, "bin/gzip")

	back := with(params{"container": b.Name}, "checkpoint", r.Outputs["checkpoint"])
	_, err = call(t, w, "folder.restore", "early", back)
	require.Equal(t, activities.Refused, activities.TypeOf(err))
	require.ErrorContains(t, err, "container: "+b.Name+" is running, and its files are in use; stop it first")
	require.Equal(t, after, shows())
	b.Stop(t)
	_, err = call(t, w, "folder.restore", "back", back)
	require.NoError(t, err)
	require.Equal(t, before, shows())

	undo := func() (activities.Undone, error) {
		return find(w, "folder.restore").Undo(t.Context(), entry(t, w, "folder.restore", "back", back),
			activities.Decision{Done: true})
	}
	_, err = undo()
	require.ErrorContains(t, err, "its files are in use")
	require.Equal(t, before, shows())
	b.Stop(t)
	undone, err := undo()
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome, undone.Observed)
	require.Equal(t, after, shows())
	require.Equal(t, b.ID, b.Inspect(t).ID)
}

// TestVolumesAndContainersInUseAreRefused tries what is in use, or is not there.
func TestVolumesAndContainersInUseAreRefused(t *testing.T) {
	containertest.NeedFiles(t)
	dir := t.TempDir()
	b := boxIn(t, dir)
	w := openWorld(t, dir)
	refused := func(name string, p params, why string) {
		_, err := call(t, w, "folder.restore", name, with(p, "checkpoint", nameOf("one")))
		require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
		require.ErrorContains(t, err, why)
	}
	keepIn(t, dir, "one", ofVolume(dir))
	refused("used", ofVolume(dir), "container "+b.Name+" runs and may write to "+b.Name+"; stop it first")
	refused("none", params{"volume": "unwind-test-none"}, `the engine has no volume "unwind-test-none"`)
	refused("gone", params{"container": "unwind-test-none"}, `the engine has no container "unwind-test-none"`)
	refused("both", params{"container": b.Name, "volume": b.Name}, "give one of path, volume and container, not 2 of them")
	refused("other", params{"container": b.Name}, "is of what was at")
	_, err := call(t, w, "folder.checkpoint", "git", params{"volume": b.Name, "git": true})
	require.ErrorContains(t, err, "git: a repository is named by path")
	plain, err := open(dir)
	if err == nil {
		_, err = call(t, plain, "folder.checkpoint", "plain", ofVolume(dir))
	}
	require.Error(t, err)
}
