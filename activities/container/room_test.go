package container_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/boxtest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// TestACheckpointByCommitNeedsRoomOnTheEnginesDisk has an engine that says it is on another disk
// than it is.
func TestACheckpointByCommitNeedsRoomOnTheEnginesDisk(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	testrun.NeedRoot(t, "full disks")
	f, b, disk := newFront(t), containertest.Start(t), t.TempDir()
	boxtest.Disk(t, disk, 200, 4000)
	fill := filepath.Join(disk, "fill")
	boxtest.Fill(t, fill, 90<<20/4096)
	is, err := b.Info(t.Context())
	require.NoError(t, err)
	is.DockerRootDir = disk
	commits := 0
	hook := func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasSuffix(r.URL.Path, "/info"):
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(is)
			return true
		case strings.HasSuffix(r.URL.Path, "/commit"):
			commits++
		}
		return false
	}
	f.hook.Store(&hook)
	s := frontStage(t, f)
	b.Put(t, "/srv", map[string]string{"a": "one\n", "big": strings.Repeat("y", 40_000_000)})
	before := containertest.Files(t, b)
	e, with := s.entry(t), step(t, map[string]any{"container": b.Name, "command": "echo two >/srv/a"})
	_, err = s.action.Apply(t.Context(), e, with, "")
	require.Equal(t, activities.ActionFailed, activities.TypeOf(err), "it is tried again: %v", err)
	require.ErrorContains(t, err, "checkpoint of container "+b.Name+": the container engine's disk, at "+disk+", has ")
	require.ErrorContains(t, err,
		"what the container has written needs 102 MiB and 1000 inodes; docker system df shows what takes the space")
	require.Zero(t, commits)
	require.Equal(t, before, containertest.Files(t, b), "nothing is touched")

	require.NoError(t, os.RemoveAll(fill))
	_, err = s.action.Apply(t.Context(), e, with, "")
	require.NoError(t, err)
	require.Equal(t, 1, commits)
	mustUndo(t, s, e, activities.Decision{})
	require.Equal(t, before, containertest.Files(t, b))
}

// TestAFullDiskUnderTheJournalIsSaidAndNothingIsHalfDone has the worker's state on a disk of its
// own.
func TestAFullDiskUnderTheJournalIsSaidAndNothingIsHalfDone(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	testrun.NeedRoot(t, "full disks")
	state := t.TempDir()
	boxtest.Disk(t, state, 16, 1000)
	s, b := newStage(t, state), containertest.Start(t)
	b.Put(t, "/srv", map[string]string{"a": "one\n"})
	before := containertest.Files(t, b)
	with := step(t, map[string]any{"container": b.Name, "command": "echo two >/srv/a"})
	fill, ended := filepath.Join(state, "fill"), false
	for leaves := 0; !ended; leaves++ { // so it comes to its end at each of the documents
		e := s.entry(t)
		boxtest.Fill(t, fill, leaves)
		_, err := s.action.Apply(t.Context(), e, with, "")
		if ended = err == nil; !ended {
			require.ErrorIs(t, err, unix.ENOSPC, "%d blocks are left", leaves)
		}
		require.NoError(t, os.RemoveAll(fill))
		if leaves%2 == 1 {
			_, err := s.action.Apply(t.Context(), e, with, "")
			require.NoError(t, err, "%d blocks were left", leaves)
			require.NotEqual(t, before, containertest.Files(t, b))
		}
		if ended {
			boxtest.Fill(t, fill, 0)
			was := containertest.Files(t, b)
			_, err := s.action.Undo(t.Context(), e, activities.Decision{})
			require.ErrorIs(t, err, unix.ENOSPC)
			require.Equal(t, was, containertest.Files(t, b))
			require.NoError(t, os.RemoveAll(fill))
		}
		_, err = s.action.Undo(t.Context(), e, activities.Decision{})
		require.NoError(t, err)
		require.Equal(t, before, containertest.Files(t, b), "%d blocks were left", leaves)
	}
}
