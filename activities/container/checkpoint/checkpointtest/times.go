package checkpointtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/boxtest"
)

// testLateTimes looks that a time which a driver tells late is no drift. It writes two folders deep
// into an image: fuse-overlayfs gives the outer folder a new time by that; and files in which
// something is written a moment after they were opened.
func (s Subject) testLateTimes(t *testing.T, on setting) {
	model := start(t, on, &dockertypes.Config{Image: on.image}, folders(t, "opt/", "opt/outer/", "opt/outer/inner/"))
	made, err := on.ContainerCommit(t.Context(), model.ID, dockertypes.CommitOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { removeImage(t, on.Client, made.ID) })
	b := start(t, on, &dockertypes.Config{Image: made.ID})
	const write = "cd /opt/outer/inner; for n in 1 2 3 4 5 6 7 8; do { sleep 0.005; echo x; } >$NAME-$n; done; "
	const touch = "for n in *; do chmod 600 $n; chmod 644 $n; done"
	doing := func(name string) map[string]any {
		return map[string]any{"container": b.Name, "command": write + touch, "env": map[string]string{"NAME": name}}
	}
	first := s.newTask(t, on, doing("first"))
	second := first.next(doing("second"))
	plan, err := first.action.Plan(t.Context(), first.entry, first.with)
	require.NoError(t, err)
	late := !s.Layers && b.Inspect(t).Driver == "fuse-overlayfs"
	assert.Equal(t, late, strings.Contains(strings.Join(plan.Losses, "\n"), "times of files and folders"))

	if s.Layers { // then what lies below them is reported late
		boxtest.At(t, b.Inspect(t).State.Pid).Inside(func() error {
			_, err := os.ReadDir("/opt/outer/inner")
			return errors.Join(err, os.WriteFile("/opt/outer/inner/below", nil, 0o644))
		})
	}
	for _, k := range []task{first, second} {
		_, err = k.action.Apply(t.Context(), k.entry, k.with, "")
		require.NoError(t, err)
		forget(t, b)
		seen, err := k.action.Observe(t.Context(), k.entry)
		require.NoError(t, err)
		assert.Equal(t, activities.AsLeft, seen.State, "%+v", seen.Drift)
	}
	for _, k := range []task{second, first} {
		undone, err := k.action.Undo(t.Context(), k.entry, activities.Decision{})
		require.NoError(t, err)
		assert.True(t, undone.Outcome == activities.Restored || undone.Outcome == activities.Compensated, "%+v", undone)
		forget(t, b)
	}
	assert.False(t, b.Has(t, "/opt/outer/inner/first-1"))
}

// forget has a kernel forget what it remembers of a container's filesystem, below layers too.
func forget(t *testing.T, b *containertest.Box) {
	t.Helper()
	boxtest.At(t, b.Inspect(t).State.Pid).Inside(func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT, "") })
	require.NoError(t, b.Forget(t))
}

// folders is a tar stream of folders that are old.
func folders(t *testing.T, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		require.NoError(t,
			w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: time.Unix(1e9, 0)}))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}
