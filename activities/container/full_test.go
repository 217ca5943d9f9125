package container_test

import (
	"testing"
	"time"

	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/boxtest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
)

// layersOnDisk is a world whose layers are on a disk of their own, of so many MiB.
func layersOnDisk(t *testing.T, size int) (s *stage) {
	t.Helper()
	state := t.TempDir()
	s = layersStage(t, state)
	home, err := container.Home(state)
	require.NoError(t, err)
	made, err := containertest.Docker(t).VolumeCreate(t.Context(), volume.CreateOptions{Name: sidecar.Volume(home)})
	require.NoError(t, err)
	boxtest.Disk(t, made.Mountpoint, size, 2000)
	return s
}

func TestAStepWithoutRoomForItsLayersDoesNotBegin(t *testing.T) {
	t.Parallel()
	s := layersOnDisk(t, 32)
	b := containertest.Start(t)
	b.Run(t, "mkdir -p /srv")
	before := containertest.Shows(t, b)
	e := s.layersEntry()
	for range 2 {
		_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "touch /srv/x"}), "")
		require.Equal(t, activities.ActionFailed, activities.TypeOf(err), "it is tried again: %v", err)
		require.ErrorContains(t, err, "the layers over container "+b.Name+": the filesystem of /layers")
		require.ErrorContains(t, err, " MiB and ")
		require.ErrorContains(t, err,
			"a checkpoint needs 64 MiB and 1000 inodes; layers go when the records of their steps are released")
		assert.Equal(t, before, containertest.Shows(t, b))
	}
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Nothing, u.Outcome)
	assert.Equal(t, before, containertest.Shows(t, b))
}

func TestACommandThatFillsTheDiskIsTakenBack(t *testing.T) {
	t.Parallel()
	s := layersOnDisk(t, 128)
	b := containertest.Start(t)
	b.Run(t, "mkdir -p /srv")
	before := containertest.Shows(t, b)
	e := s.layersEntry()
	_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "yes >/srv/x"}), "")
	require.Equal(t, activities.Unsuccessful, activities.TypeOf(err), "%v", err)
	s.undid(t, e)
	assert.Equal(t, before, containertest.Shows(t, b))
	next, with := s.layersEntry(), step(t, map[string]any{"container": b.Name, "command": "echo x >/srv/x"})
	require.Eventually(t, func() bool { // the disk gives room back in the background
		_, err = s.action.Apply(t.Context(), next, with, "")
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}
