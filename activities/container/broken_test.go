package container_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// The suite breaks every call at every point; here is what it has no case for: two rollbacks of other tokens in between, and
// a reset beside an undo.

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
func asleep(t testing.TB, j workerJob, at int) worker {
	t.Helper()
	j.Stop, j.At = true, at
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
	*box
	*stage
	state         string
	e             activities.Entry
	with          activities.Step
	before, after string
}

func breakable(t testing.TB) broken {
	t.Helper()
	k := broken{box: startBox(t), state: t.TempDir()}
	k.stage = newStage(t, k.state)
	k.run(t, "echo one >/srv/a")
	k.e, k.before = k.entry(t), files(t, k.box)
	k.e.Params = []byte(`{"container":"` + k.name + `"}`)
	k.with = step(t, map[string]any{"container": k.name, "command": "cat /proc/sys/kernel/random/uuid >/srv/a; mkdir /srv/d"})
	_, err := k.action.Apply(t.Context(), k.e, k.with, "")
	require.NoError(t, err)
	k.after = files(t, k.box)
	return k
}

func (k broken) redo(t testing.TB) workerJob {
	t.Helper()
	mustUndo(t, k.stage, k.e, redoable)
	return workerJob{State: k.state, Entry: k.again(t, k.e), Step: k.with}
}

// next takes a step of another token in the container, and returns what it left.
func (k broken) next(t testing.TB) string {
	t.Helper()
	next := k.entry(t)
	with := step(t, map[string]any{"container": k.name, "command": "echo next >/srv/next"})
	_, err := k.action.Apply(t.Context(), next, with, "")
	require.NoError(t, err)
	mustUndo(t, k.stage, next, redoable) // so that the container has been made anew once more
	_, err = k.action.Apply(t.Context(), k.again(t, next), with, "")
	require.NoError(t, err)
	return files(t, k.box)
}

// TestStoppedRedoWakesAfterTheNextGeneration, and finds in its place a container that was made anew more than once.
func TestStoppedRedoWakesAfterTheNextGeneration(t *testing.T) {
	t.Parallel()
	for _, label := range []string{"container.exec:ticket-taken", "container.exec:candidate-built"} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			k := breakable(t)
			j := k.redo(t)
			at := slices.Index(points(t, j), label)
			require.Equal(t, k.after, files(t, k.box))
			mustUndo(t, k.stage, j.Entry, redoable)

			j.Entry = k.again(t, j.Entry)
			sleeper := asleep(t, j, at)
			mustUndo(t, k.stage, j.Entry, activities.Decision{})
			require.Equal(t, k.before, files(t, k.box))
			left := k.next(t)
			sleeper.wake(t)
			assert.Equal(t, left, files(t, k.box), "a forward that wakes up too late changes nothing")
			assert.Empty(t, leftOver(t, k.box, j.Entry.Token))
			_, err := k.action.Apply(t.Context(), j.Entry, j.Step, "")
			assert.Equal(t, activities.Fenced, activities.TypeOf(err))
		})
	}
}

// TestAnUndoThatWakesUpTooLateBuildsNothing: were it killed in the middle, nobody would clear that away.
func TestAnUndoThatWakesUpTooLateBuildsNothing(t *testing.T) {
	t.Parallel()
	undo := func(k broken) workerJob { return workerJob{State: k.state, Entry: k.e, Undo: &redoable} }
	at := slices.Index(points(t, undo(breakable(t))), "container.exec:kept")
	k := breakable(t)
	sleeper := asleep(t, undo(k), at)
	mustUndo(t, k.stage, k.e, redoable)
	sleeper.wake(t)
	require.Contains(t, sleeper.said.String(), "container.exec:kept")
	require.NotContains(t, sleeper.said.String(), "container.exec:candidate-built")
	require.Equal(t, k.before, files(t, k.box))
}

func TestReleaseClearsAwayWhatCallsThatDiedHaveLeft(t *testing.T) {
	t.Parallel()
	k := breakable(t)
	mustUndo(t, k.stage, k.e, redoable)
	made, err := k.ContainerCreate(t.Context(), &dockertypes.Config{Image: k.inspect(t).Image}, nil, nil, nil, "unwind-"+k.e.Token+"-undo-left")
	require.NoError(t, err)
	t.Cleanup(func() { k.ContainerRemove(context.Background(), made.ID, dockertypes.RemoveOptions{Force: true}) })
	require.NotEmpty(t, leftOver(t, k.box, k.e.Token))
	require.NoError(t, k.action.Release(t.Context(), k.e))
	require.Empty(t, leftOver(t, k.box, k.e.Token))
	require.True(t, k.inspect(t).State.Running)
}

func TestStoppedUndoThatAResetOutruns(t *testing.T) {
	t.Parallel()
	undo := func(k broken) workerJob { return workerJob{State: k.state, Entry: k.e, Undo: &redoable} }
	labels := points(t, undo(breakable(t)))
	require.Contains(t, labels, "container.exec:kept")
	for at, label := range labels {
		t.Run(fmt.Sprintf("%02d_%s", at, label), func(t *testing.T) {
			t.Parallel()
			k := breakable(t)
			sleeper := asleep(t, undo(k), at)
			u := k.reset(t, k.e, activities.Decision{})
			left := k.next(t)
			sleeper.wake(t)
			assert.Equal(t, left, files(t, k.box), "an undo that wakes up too late changes nothing")
			assert.Equal(t, u, k.reset(t, k.e, activities.Decision{}))
			assert.Empty(t, leftOver(t, k.box, k.e.Token))
			require.NoError(t, k.action.Release(t.Context(), k.e))
			assert.Empty(t, keptImages(t, k.e.Token))
		})
	}
}
