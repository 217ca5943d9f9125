package container_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// The suite breaks every call at every point; here is what it has no case for: two rollbacks of
// other tokens in between, and a reset beside an undo.

// points runs a call in a process of its own, and returns the points that it reaches.
func points(t testing.TB, j workerJob) []string {
	t.Helper()
	w := exec.Command(os.Args[0])
	w.Env = append(os.Environ(), workerEnv+"="+j.text(t))
	var failed bytes.Buffer
	w.Stderr = &failed
	said, err := w.Output()
	require.NoError(t, err, "%s", &failed)
	require.NotEmpty(t, said)
	return strings.Fields(string(said))
}

// asleep is a worker that has stopped itself at a point.
func asleep(t testing.TB, j workerJob, at string) worker {
	t.Helper()
	j.Stop = at
	w := startWorker(t, j)
	require.Eventually(t, func() bool {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.Process.Pid))
		return err == nil && bytes.HasPrefix(raw[bytes.LastIndexByte(raw, ')')+1:], []byte(" T"))
	}, time.Minute, 10*time.Millisecond)
	return w
}

// wake lets a sleeper come to its end, whatever that is.
func (w worker) wake(t testing.TB) {
	t.Helper()
	require.NoError(t, w.Process.Signal(syscall.SIGCONT))
	require.NoError(t, w.stdin.Close())
	_ = w.Wait()
}

// broken is a container that a step has changed.
type broken struct {
	*containertest.Box
	*stage
	e      activities.Entry
	with   activities.Step
	before string
}

func breakable(t testing.TB) broken {
	t.Helper()
	k := broken{Box: containertest.Start(t), stage: newStage(t, t.TempDir())}
	k.Run(t, "echo one >/srv/a")
	k.e, k.before = k.entry(t), containertest.Files(t, k.Box)
	k.e.Params = []byte(`{"container":"` + k.Name + `"}`)
	k.with = step(t,
		map[string]any{"container": k.Name, "command": "cat /proc/sys/kernel/random/uuid >/srv/a; mkdir /srv/d"})
	_, err := k.action.Apply(t.Context(), k.e, k.with, "")
	require.NoError(t, err)
	return k
}

func (k broken) undo() workerJob { return workerJob{State: k.state, Entry: k.e, Undo: &redoable} }

// next takes a step of another token in the container and takes it back, so that the container has
// been made anew once more. It returns what is there then.
func (k broken) next(t testing.TB) string {
	t.Helper()
	next := k.entry(t)
	with := step(t, map[string]any{"container": k.Name, "command": "echo next >/srv/next"})
	_, err := k.action.Apply(t.Context(), next, with, "")
	require.NoError(t, err)
	mustUndo(t, k.stage, next, activities.Decision{})
	return containertest.Files(t, k.Box)
}

// TestStoppedRedoWakesAfterTheNextGeneration, and finds in its place a container that was made anew
// more than once.
func TestStoppedRedoWakesAfterTheNextGeneration(t *testing.T) {
	t.Parallel()
	for _, label := range []string{"container.exec:ticket-taken", "container.exec:candidate-built"} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			k := breakable(t)
			mustUndo(t, k.stage, k.e, redoable)
			first := k.again(t, k.e)
			_, err := k.action.Apply(t.Context(), first, k.with, "")
			require.NoError(t, err)
			mustUndo(t, k.stage, first, redoable)

			j := workerJob{State: k.state, Entry: k.again(t, first), Step: k.with}
			sleeper := asleep(t, j, label)
			mustUndo(t, k.stage, j.Entry, activities.Decision{})
			require.Equal(t, k.before, containertest.Files(t, k.Box))
			left := k.next(t)
			sleeper.wake(t)
			assert.Equal(t, left, containertest.Files(t, k.Box), "a late forward changes nothing")
			assert.Empty(t, containertest.Left(t, j.Entry.Token))
			_, err = k.action.Apply(t.Context(), j.Entry, j.Step, "")
			assert.Equal(t, activities.Fenced, activities.TypeOf(err))
		})
	}
}

// TestAnUndoThatWakesUpTooLateBuildsNothing: were it killed in the middle, nobody would clear that
// away.
func TestAnUndoThatWakesUpTooLateBuildsNothing(t *testing.T) {
	t.Parallel()
	k := breakable(t)
	sleeper := asleep(t, k.undo(), "container.exec:kept")
	mustUndo(t, k.stage, k.e, redoable)
	sleeper.wake(t)
	require.Contains(t, sleeper.said.String(), "container.exec:kept")
	require.NotContains(t, sleeper.said.String(), "container.exec:candidate-built")
	require.Equal(t, k.before, containertest.Files(t, k.Box))
}

func TestReleaseClearsAwayWhatCallsThatDiedHaveLeft(t *testing.T) {
	t.Parallel()
	k := breakable(t)
	mustUndo(t, k.stage, k.e, redoable)
	made, err := k.ContainerCreate(t.Context(), &dockertypes.Config{Image: k.Inspect(t).Image}, nil, nil, nil,
		"unwind-"+k.e.Token+"-undo-left")
	require.NoError(t, err)
	t.Cleanup(func() { k.ContainerRemove(context.Background(), made.ID, dockertypes.RemoveOptions{Force: true}) })
	require.NotEmpty(t, containertest.Left(t, k.e.Token))
	require.NoError(t, k.action.Release(t.Context(), k.e))
	require.Empty(t, containertest.Left(t, k.e.Token))
	require.True(t, k.Inspect(t).State.Running)
}

func TestStoppedUndoThatAResetOutruns(t *testing.T) {
	t.Parallel()
	labels := points(t, breakable(t).undo())
	require.Contains(t, labels, "container.exec:kept")
	drawn := testrun.Rand(t).Perm(len(labels))
	if testrun.Plain() { // the suite stops an undo at each of them; this is the reset that comes to it
		drawn = drawn[:4]
	}
	for _, at := range drawn {
		label := labels[at]
		t.Run(fmt.Sprintf("%02d_%s", at, label), func(t *testing.T) {
			t.Parallel()
			testrun.Sampled(t)
			k := breakable(t)
			sleeper := asleep(t, k.undo(), label)
			u := k.reset(t, k.e, activities.Decision{})
			left := k.next(t)
			sleeper.wake(t)
			assert.Equal(t, left, containertest.Files(t, k.Box), "a late undo changes nothing")
			assert.Equal(t, u, k.reset(t, k.e, activities.Decision{}))
			assert.Empty(t, containertest.Left(t, k.e.Token))
			require.NoError(t, k.action.Release(t.Context(), k.e))
			assert.Empty(t, containertest.Kept(t, k.e.Token))
		})
	}
}
