package container_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/enginetest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// tells is a container whose program says with its first instruction what is at /srv/a, and then
// waits.
func tells(image string) func(*dockertypes.Config, *dockertypes.HostConfig, *network.NetworkingConfig) {
	return func(c *dockertypes.Config, _ *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		c.Image, c.Cmd = image, []string{"sh", "-c", "cat /srv/a 2>/dev/null || echo nothing; exec /bin/sleep 100000"}
	}
}

// told is what the program has said at the given start of its container, from 1.
func told(t *testing.T, b *containertest.Box, start int) string {
	t.Helper()
	var lines []string
	require.Eventually(t, func() bool {
		stream, err := b.ContainerLogs(t.Context(), b.ID, dockertypes.LogsOptions{ShowStdout: true})
		require.NoError(t, err)
		defer stream.Close()
		var out bytes.Buffer
		_, err = stdcopy.StdCopy(&out, io.Discard, stream)
		require.NoError(t, err)
		lines = strings.Split(out.String(), "\n")
		return len(lines) > start
	}, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool { // layers stand over a program that only waits
		name, err := os.ReadFile(filepath.Join("/proc", pidOf(t, b), "comm"))
		return err == nil && string(name) == "sleep\n"
	}, time.Minute, 10*time.Millisecond)
	return lines[start-1]
}

// commit is what a task does with its steps when they are done, or unwound.
func (s *stage) commit(t *testing.T, entries ...activities.Entry) []string {
	t.Helper()
	c := activities.Commitment{Place: entries[0].Place}
	for _, e := range entries {
		c.Tokens = append(c.Tokens, e.Token)
	}
	done, err := s.action.(activities.Committer).Commit(t.Context(), c)
	require.NoError(t, err)
	return done.Notes
}

func TestWhatIsCommittedIsThereFromTheFirstInstructionOn(t *testing.T) {
	t.Parallel()
	testrun.NeedRoot(t, "layers over containers")
	restarted := func(t *testing.T, b *containertest.Box) {
		t.Helper()
		b.Restart(t)
	}
	t.Run("a restart of the container", func(t *testing.T) {
		t.Parallel()
		b := containertest.Start(t, tells(containertest.UserlandImage(t)))
		s := layersStage(t, t.TempDir())
		staysCommitted(t, s, b, func() { restarted(t, b) })
	})
	t.Run("on overlay2", func(t *testing.T) {
		testrun.Extra(t)
		e := enginetest.Start(t)
		containertest.Prepare(t, e)
		b := containertest.StartOn(t, e, tells(containertest.ImportUserland(t, e)))
		s := newStageAt(t, container.Config{State: t.TempDir(), Host: e.Host})
		staysCommitted(t, s, b, func() { restarted(t, b) })
	})
	t.Run("a restart of the engine", func(t *testing.T) {
		testrun.Extra(t)
		e := enginetest.Start(t, enginetest.EndsAll)
		containertest.Prepare(t, e)
		b := containertest.StartOn(t, e, tells(containertest.ImportUserland(t, e)))
		s := newStageAt(t, container.Config{State: t.TempDir(), Host: e.Host})
		staysCommitted(t, s, b, func() {
			e.Stop()
			require.NoError(t, e.Run())
			require.NoError(t, b.ContainerStart(t.Context(), b.ID, dockertypes.StartOptions{}))
		})
	})
}

func staysCommitted(t *testing.T, s *stage, b *containertest.Box, again func()) {
	t.Helper()
	starts := 1
	restart := func() { again(); starts++ }
	require.Equal(t, "nothing", told(t, b, starts))
	b.Put(t, "/srv", map[string]string{"b": "base\n", "d/x": "x\n"})
	var entries []activities.Entry
	shown := []string{containertest.Shows(t, b)}
	for _, command := range []string{"echo one >/srv/a; rm /srv/b",
		"echo two >/srv/a; rm -r /srv/d; mkdir /srv/d; echo y >/srv/d/y",
		"echo three >/srv/a; mkdir -p /opt/new/er; ln -s /srv/a /opt/new/a"} {
		e, _ := s.did(t, b, command)
		entries, shown = append(entries, e), append(shown, containertest.Shows(t, b))
	}
	assert.Empty(t, s.commit(t, entries...))
	assert.Equal(t, shown[3], containertest.Shows(t, b))
	assert.Empty(t, s.commit(t, entries...), "again")
	restart()
	assert.Equal(t, "three", told(t, b, starts))
	assert.Equal(t, shown[3], containertest.Shows(t, b))

	later, _ := s.did(t, b, "echo four >/srv/a")
	four := containertest.Shows(t, b)
	restart()
	assert.Equal(t, "three", told(t, b, starts), "what is not committed is not there yet")
	require.Empty(t, s.commit(t, later))
	restart()
	assert.Equal(t, "four", told(t, b, starts))
	assert.Equal(t, four, containertest.Shows(t, b))

	s.undid(t, later)
	assert.Equal(t, shown[3], containertest.Shows(t, b))
	s.undid(t, entries[2])
	assert.Equal(t, shown[2], containertest.Shows(t, b))
	restart()
	s.undid(t, entries[1])
	assert.Equal(t, shown[1], containertest.Shows(t, b))
	s.commit(t, later, entries[2], entries[1])
	restart()
	assert.Equal(t, "one", told(t, b, starts), "and what a rollback has brought back")
	assert.Equal(t, shown[1], containertest.Shows(t, b))
	s.undid(t, entries[0])
	assert.Equal(t, shown[0], containertest.Shows(t, b))
	s.commit(t, entries[0])
	restart()
	assert.Equal(t, "nothing", told(t, b, starts))
	for _, e := range append(entries, later) {
		require.NoError(t, s.action.Release(t.Context(), e))
	}
	assert.Equal(t, shown[0], containertest.Shows(t, b))
}

func TestLayersAreBackSoonAfterARestart(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	s, b := layersStage(t, state), containertest.Start(t)
	e, _ := s.did(t, b, "mkdir -p /srv; echo one >/srv/a")
	stands := func() bool {
		mounts, err := os.ReadFile(filepath.Join("/proc", pidOf(t, b), "mountinfo"))
		return err == nil && strings.Contains(string(mounts), "unwind:")
	}
	restart := func() {
		b.Restart(t)
	}
	restart()
	watching, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.world.Watch(watching); close(ended) }()
	require.Eventually(t, stands, time.Minute, 10*time.Millisecond, "a worker that starts looks at all")
	for range 3 {
		restart()
		require.Eventually(t, stands, time.Minute, 10*time.Millisecond)
		assert.Equal(t, "one\n", saidBy(t, b, "cat /srv/a"))
	}
	stop()
	<-ended
	s.undid(t, e)
}

func TestOthersChangesAfterACommitAreDrift(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t)
	b.Put(t, "/srv", map[string]string{"a": "base\n", "d/x": "x\n"})
	before := containertest.Shows(t, b)
	e, _ := s.did(t, b, "echo one >/srv/a; mkdir /srv/new; echo n >/srv/new/n")
	s.commit(t, e)
	b.Run(t, "echo theirs >/srv/d/y")
	seen, err := s.action.Observe(t.Context(), e)
	require.NoError(t, err)
	assert.Equal(t, activities.AsLeft, seen.State, "%+v", seen.Drift)
	b.Run(t, "echo theirs >/srv/new/theirs")
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome, "%+v", u)
	assert.Contains(t, u.Drift.Diff, "/srv/new/theirs")
	u, err = s.action.Undo(t.Context(), e, activities.Decision{Force: u.Drift.Digest})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome, "%+v", u)
	assert.Equal(t, "theirs\n", saidBy(t, b, "cat /srv/d/y; rm /srv/d/y"))
	assert.Equal(t, names(before), names(containertest.Shows(t, b)))
}

func pidOf(t *testing.T, b *containertest.Box) string {
	t.Helper()
	return strconv.Itoa(b.Inspect(t).State.Pid)
}

// names are the paths in what a container shows.
func names(shown string) (paths []string) {
	for line := range strings.Lines(shown) {
		paths = append(paths, strings.Fields(line)[0])
	}
	return paths
}

func TestACommitOfAStoppedContainerSaysThatItWaits(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t)
	e, _ := s.did(t, b, "mkdir -p /srv; echo one >/srv/a")
	b.Stop(t)
	notes := s.commit(t, e)
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], "does not run")
	require.NoError(t, b.ContainerStart(t.Context(), b.ID, dockertypes.StartOptions{}))
	ctx, stop := context.WithCancel(t.Context())
	go s.world.Watch(ctx)
	defer stop()
	require.Eventually(t, func() bool {
		raw, err := os.ReadFile(filepath.Join("/proc", pidOf(t, b), "root/srv/a"))
		return err == nil && string(raw) == "one\n"
	}, time.Minute, 20*time.Millisecond)
	require.NoError(t, b.ContainerRemove(t.Context(), b.ID, dockertypes.RemoveOptions{Force: true}))
	assert.Empty(t, s.commit(t, e), "of a container that is gone nothing is left to commit")
}

func TestACommitInAnotherPlaceIsRefused(t *testing.T) {
	t.Parallel()
	s := layersStage(t, t.TempDir())
	_, err := s.action.(activities.Committer).Commit(t.Context(),
		activities.Commitment{Place: activities.Place{Journal: "another@engine"}, Tokens: []string{"t"}})
	require.Equal(t, activities.WrongPlace, activities.TypeOf(err))
	require.False(t, errors.Is(err, context.Canceled))
}
