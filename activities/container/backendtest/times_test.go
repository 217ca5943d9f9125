package backendtest

import (
	"archive/tar"
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// TestATimeThatADriverTellsLateIsNoDrift writes two folders deep into an image: fuse-overlayfs gives the outer folder a new
// time by that, and a kernel goes on telling the old one until it forgets it.
func TestATimeThatADriverTellsLateIsNoDrift(t *testing.T) {
	forget := func() { require.NoError(t, os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0)) }
	onEachBackend(t, func(t *testing.T, on setting, layers bool) {
		model := start(t, on, &dockertypes.Config{Image: on.image}, folders(t, "opt/", "opt/outer/", "opt/outer/inner/"))
		made, err := on.ContainerCommit(t.Context(), model.ID, dockertypes.CommitOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { removeImage(t, on.Client, made.ID) })
		b := start(t, on, &dockertypes.Config{Image: made.ID})

		first := newTask(t, on, layers, map[string]any{"container": b.Name, "command": "echo 1 >/opt/outer/inner/first"})
		second := first.next(map[string]any{"container": b.Name, "command": "echo 2 >/opt/outer/inner/second"})
		for _, k := range []task{first, second} {
			plan, err := k.action.Plan(t.Context(), k.entry, k.with)
			require.NoError(t, err)
			forget()
			_, err = k.action.Apply(t.Context(), k.entry, k.with, plan.Digest)
			require.NoError(t, err, "what was approved is what is there")
			forget()
			seen, err := k.action.Observe(t.Context(), k.entry)
			require.NoError(t, err)
			assert.Equal(t, activities.AsLeft, seen.State, "%+v", seen)
		}
		for _, k := range []task{second, first} {
			undone, err := k.action.Undo(t.Context(), k.entry, activities.Decision{})
			require.NoError(t, err)
			assert.Contains(t, []activities.Outcome{activities.Restored, activities.Compensated}, undone.Outcome, "%+v", undone)
			assert.Equal(t, !layers && b.Inspect(t).Driver == "fuse-overlayfs", strings.Contains(strings.Join(undone.Losses, "\n"), "times of folders"))
			forget()
		}
		assert.False(t, b.Has(t, "/opt/outer/inner/first"))
	})
}

// folders is a tar stream of folders that are old.
func folders(t *testing.T, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: time.Unix(1e9, 0)}))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}
