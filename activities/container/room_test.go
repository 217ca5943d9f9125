package container_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/boxtest"
)

// TestACheckpointByCommitNeedsRoomOnTheEnginesDisk has an engine that says it is on another disk than it is.
func TestACheckpointByCommitNeedsRoomOnTheEnginesDisk(t *testing.T) {
	t.Parallel()
	containertest.NeedsRoot(t, "full disks")
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
	require.ErrorContains(t, err, "what the container has written needs 102 MiB and 1000 inodes; docker system df tells what takes the room")
	require.Zero(t, commits)
	require.Equal(t, before, containertest.Files(t, b), "nothing is touched")

	require.NoError(t, os.RemoveAll(fill))
	_, err = s.action.Apply(t.Context(), e, with, "")
	require.NoError(t, err)
	require.Equal(t, 1, commits)
	mustUndo(t, s, e, activities.Decision{})
	require.Equal(t, before, containertest.Files(t, b))
}
