package container_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/testrun"
)

// workerEnv makes a child of the test binary a worker that makes one call.
const workerEnv = "UNWIND_TEST_CONTAINER_WORKER"

type workerJob struct {
	State string
	Entry activities.Entry
	Step  activities.Step
	// Undo is the decision of an undo; nil: the step is applied.
	Undo *activities.Decision
	// Stop is the point at which the worker stops itself the first time that it comes by; empty: it
	// runs on.
	Stop string
}

func (j workerJob) text(t testing.TB) string {
	t.Helper()
	raw, err := json.Marshal(j)
	require.NoError(t, err)
	return string(raw)
}

func actAsWorker(job string) {
	var j workerJob
	if err := json.Unmarshal([]byte(job), &j); err != nil {
		panic(err)
	}
	point.Hook(func(label string) {
		fmt.Println(label)
		if label == j.Stop {
			j.Stop = ""
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			_, _ = io.ReadFull(os.Stdin, make([]byte, 1)) // the signal may take a moment to come
		}
	})
	w, err := container.New(container.Config{State: j.State, Layers: container.LayersNever})
	switch {
	case err != nil:
	case j.Undo != nil:
		_, err = w.Actions[0].Undo(context.Background(), j.Entry, *j.Undo)
	default:
		_, err = w.Actions[0].Apply(context.Background(), j.Entry, j.Step, "")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// worker is a process that makes one call.
type worker struct {
	*exec.Cmd
	stdin io.Closer
	// said are the points that it came by; to be read when it has ended.
	said *bytes.Buffer
}

func startWorker(t testing.TB, j workerJob) worker {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), workerEnv+"="+j.text(t))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := c.StdinPipe()
	require.NoError(t, err)
	said := &bytes.Buffer{}
	c.Stdout = said
	require.NoError(t, c.Start())
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	return worker{c, stdin, said}
}

// dyingInACommit is a step whose worker was killed while the engine took the checkpoint for it, or
// just after: the engine goes on.
func dyingInACommit(t *testing.T) (b *containertest.Box, s *stage, e activities.Entry, with activities.Step,
	label string) {
	t.Helper()
	state, mark := t.TempDir(), containertest.Random()
	b = containertest.Start(t, func(c *dockertypes.Config, _ *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		c.Labels = map[string]string{"unwind.test": mark}
	})
	var large bytes.Buffer // the engine needs a while for it
	tarred := tar.NewWriter(&large)
	require.NoError(t, tarred.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "large", Mode: 0o600, Size: 100 << 20}))
	_, err := tarred.Write(make([]byte, 100<<20))
	require.NoError(t, err)
	require.NoError(t, b.CopyToContainer(t.Context(), b.ID, "/srv", &large, dockertypes.CopyToContainerOptions{}))
	s = newStage(t, state)
	e, with = s.entry(t), step(t, map[string]any{"container": b.Name, "command": "touch /srv/new"})
	paused, failed := b.Events(t.Context(),
		events.ListOptions{Filters: filters.NewArgs(filters.Arg("container", b.ID), filters.Arg("event", "pause"))})
	w := startWorker(t, workerJob{State: state, Entry: e, Step: with, Stop: "container.exec:checkpoint-taken"})
	select {
	case <-paused: // by the engine, while it commits
	case err := <-failed:
		require.NoError(t, err)
	}
	require.NoError(t, syscall.Kill(-w.Process.Pid, syscall.SIGKILL))
	w.Wait()
	return b, s, e, with, "unwind.test=" + mark
}

func TestACheckpointOfADeadAttemptIsNoOrphan(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	b, s, e, with, label := dyingInACommit(t)
	_, err := s.action.Apply(t.Context(), e, with, "")
	require.NoError(t, err)
	assert.Len(t, containertest.Checkpoints(t, e.Token), 1)
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Compensated, u.Outcome)
	assert.Empty(t, containertest.Checkpoints(t, e.Token))
	// What the container stands on is one image; all that are made from it have its label.
	made, err := b.ImageList(t.Context(),
		image.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", label))})
	require.NoError(t, err)
	require.Len(t, made, 1)
	assert.Equal(t, b.Inspect(t).Image, made[0].ID)
}

func TestAnUndoLeavesNoCheckpointThatIsStillBeingTaken(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	b, s, e, _, label := dyingInACommit(t)
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Nothing, u.Outcome)
	require.False(t, b.Inspect(t).State.Paused)
	made, err := b.ImageList(t.Context(),
		image.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", label))})
	require.NoError(t, err)
	assert.Empty(t, made)
}

// An engine that was stopped takes a checkpoint when the worker that asked for it is dead, and its
// step undone.
func TestACheckpointThatComesAfterTheUndoIsDroppedByALateSweep(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	b, s, e, _, _ := dyingInACommit(t)
	container.LookAfter(s.action, time.Hour)
	first, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Nothing, first.Outcome)
	assert.Equal(t, time.Hour, first.LookAgain)
	late := func() {
		_, err := b.ContainerCommit(t.Context(), b.ID, dockertypes.CommitOptions{
			Reference: "unwind/checkpoint:" + e.Token + "-late", Comment: "Unwind: checkpoint before a step", Pause: true,
		})
		require.NoError(t, err)
		require.Len(t, containertest.Checkpoints(t, e.Token), 1)
	}
	late()
	again, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, first, again, "an attempt of the same undo")
	assert.Empty(t, containertest.Checkpoints(t, e.Token))

	b, s, e, _, label := dyingInACommit(t)
	container.LookAfter(s.action, time.Nanosecond)
	first, err = s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, time.Nanosecond, first.LookAgain)
	late()
	again, err = s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Zero(t, again.LookAgain, "the late sweep's")
	made, err := b.ImageList(t.Context(),
		image.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", label))})
	require.NoError(t, err)
	assert.Empty(t, made)
}

// slow is a command that counts its runs, says so, and waits for a file outside of what is
// compared.
const slow = `echo run >>/srv/count; echo first; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo second; cat /srv/count`

// began waits until run n of a step stands in the container, and returns its supervisor's process
// id.
func began(t testing.TB, state, token string, n int) int {
	t.Helper()
	var doc struct {
		Body struct {
			PID int `json:"pid"`
		}
	}
	require.Eventually(t, func() bool {
		raw, err := os.ReadFile(filepath.Join(state, "container", "tokens", token, fmt.Sprintf("begun-%d", n)))
		return err == nil && json.Unmarshal(raw, &doc) == nil
	}, time.Minute, 10*time.Millisecond)
	require.NotZero(t, doc.Body.PID)
	return doc.Body.PID
}

func TestResultSurvivesAKilledWorker(t *testing.T) {
	t.Parallel()
	b, state := containertest.Start(t), t.TempDir()
	s := newStage(t, state)
	e, with := s.entry(t), step(t, map[string]any{"container": b.Name, "command": slow})
	w := startWorker(t, workerJob{State: state, Entry: e, Step: with})
	began(t, state, e.Token, 1)
	require.Eventually(t, func() bool { return b.Has(t, "/srv/count") }, time.Minute, 10*time.Millisecond)
	require.NoError(t, syscall.Kill(-w.Process.Pid, syscall.SIGKILL))
	w.Wait()
	b.Run(t, "touch /tmp/go")
	r, err := s.action.Apply(t.Context(), e, with, "")
	require.NoError(t, err)
	assert.Equal(t, "first\nsecond\nrun\n", r.Outputs["stdout"], "all of the output of one run")
	assert.NotContains(t, strings.Join(r.Notes, "\n"), "times: the result of a run was lost")
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Compensated, u.Outcome)
	assert.False(t, b.Has(t, "/srv/count"))
}

func TestLostResultRollsBackAndRunsAgain(t *testing.T) {
	t.Parallel()
	b, state := containertest.Start(t), t.TempDir()
	s := newStage(t, state)
	before := containertest.Files(t, b)
	e, with := s.entry(t), step(t, map[string]any{"container": b.Name, "command": slow})
	type answer struct {
		r   activities.Result
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		r, err := s.action.Apply(context.Background(), e, with, "")
		answered <- answer{r, err}
	}()
	supervisor := began(t, state, e.Token, 1)
	require.Eventually(t, func() bool { return b.Has(t, "/srv/count") }, time.Minute, 10*time.Millisecond)
	require.NoError(t, syscall.Kill(supervisor, syscall.SIGKILL))
	began(t, state, e.Token, 2)
	b.Run(t, "touch /tmp/go")
	a := <-answered
	require.NoError(t, a.err)
	assert.Equal(t, "first\nsecond\nrun\n", a.r.Outputs["stdout"], "the second run finds nothing of the first")
	assert.Contains(t, strings.Join(a.r.Notes, "\n"), "ran 2 times: the result of a run was lost")
	require.NotEqual(t, b.ID, b.Inspect(t).ID)
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	assert.Equal(t, before, containertest.Files(t, b))
}

func TestLostResultIsUnknownWhereNothingMayRunAgain(t *testing.T) {
	t.Parallel()
	b, state := containertest.Start(t), t.TempDir()
	s := newStage(t, state)
	before := containertest.Files(t, b)
	e, with := s.entry(t), step(t, map[string]any{"container": b.Name, "command": slow, "rerun": false})
	failed := make(chan error, 1)
	go func() {
		_, err := s.action.Apply(context.Background(), e, with, "")
		failed <- err
	}()
	require.NoError(t, syscall.Kill(began(t, state, e.Token, 1), syscall.SIGKILL))
	require.Equal(t, activities.UnknownOutcome, activities.TypeOf(<-failed))
	_, err := s.action.Apply(t.Context(), e, with, "")
	require.Equal(t, activities.UnknownOutcome, activities.TypeOf(err))
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Compensated, u.Outcome)
	assert.Equal(t, before, containertest.Files(t, b))
}

func TestACommandThatAlwaysLosesItsResultIsNotRunForEver(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	b, state := containertest.Start(t), t.TempDir()
	s := newStage(t, state)
	before := containertest.Files(t, b)
	e, with := s.entry(t), step(t, map[string]any{"container": b.Name, "command": slow})
	failed := make(chan error, 1)
	go func() {
		_, err := s.action.Apply(context.Background(), e, with, "")
		failed <- err
	}()
	for n := range container.MaxRuns {
		require.NoError(t, syscall.Kill(began(t, state, e.Token, n+1), syscall.SIGKILL))
	}
	err := <-failed
	require.Equal(t, activities.Unsuccessful, activities.TypeOf(err))
	require.ErrorContains(t, err, "has been lost 5 times")
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	assert.Equal(t, before, containertest.Files(t, b))
}

func TestUndoEndsARunningCommand(t *testing.T) {
	t.Parallel()
	b, state := containertest.Start(t), t.TempDir()
	s := newStage(t, state)
	before := containertest.Files(t, b)
	e, with := s.entry(t), step(t, map[string]any{"container": b.Name, "command": slow})
	failed := make(chan error, 1)
	go func() {
		_, err := s.action.Apply(context.Background(), e, with, "")
		failed <- err
	}()
	began(t, state, e.Token, 1)
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Compensated, u.Outcome)
	assert.Contains(t, strings.Join(u.Losses, "\n"), "had not come to its end")
	assert.Equal(t, activities.Fenced, activities.TypeOf(<-failed))
	assert.Equal(t, before, containertest.Files(t, b))
	assert.Len(t, processes(t, b), 1)
}

// TestStoppedSupervisorWakesTooLate stops the one process that could still act for a step, undoes
// the step, and wakes it.
func TestStoppedSupervisorWakesTooLate(t *testing.T) {
	t.Parallel()
	b, state := containertest.Start(t), t.TempDir()
	s := newStage(t, state)
	e := s.entry(t)
	with := step(t, map[string]any{"container": b.Name, "command": slow})
	failed := make(chan error, 1)
	go func() {
		_, err := s.action.Apply(context.Background(), e, with, "")
		failed <- err
	}()
	supervisor := began(t, state, e.Token, 1)
	require.NoError(t, syscall.Kill(supervisor, syscall.SIGSTOP))
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome)
	next := s.entry(t)
	_, err = s.action.Apply(t.Context(), next,
		step(t, map[string]any{"container": b.Name, "command": "echo next >/srv/a"}), "")
	require.NoError(t, err)
	left := containertest.Files(t, b)
	require.NoError(t, syscall.Kill(supervisor, syscall.SIGCONT))
	assert.Equal(t, activities.Fenced, activities.TypeOf(<-failed), "it has waited for the supervisor's lock")
	assert.Equal(t, left, containertest.Files(t, b))
	seen, err := s.action.Observe(t.Context(), next)
	require.NoError(t, err)
	assert.Equal(t, activities.AsLeft, seen.State)
}

// A command that was cut off has begun, whatever it has left: nobody may be told that it had not
// happened.
func TestACommandThatWasCutOffHasBegun(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	b, s := containertest.Start(t), newStage(t, state)
	observe := func(e activities.Entry) activities.Observation {
		seen, err := s.action.Observe(t.Context(), e)
		require.NoError(t, err)
		return seen
	}
	cut := func(rerun bool) (e activities.Entry, supervisor int) {
		e = s.entry(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		with := step(t, map[string]any{"container": b.Name, "command": "sleep 1000", "rerun": rerun})
		go func() {
			_, err := s.action.Apply(ctx, e, with, "")
			ended <- err
		}()
		supervisor = began(t, state, e.Token, 1)
		cancel()
		require.Error(t, <-ended)
		return e, supervisor
	}
	undo := func(e activities.Entry) {
		u, err := s.action.Undo(t.Context(), e, activities.Decision{})
		require.NoError(t, err)
		require.True(t, u.Outcome.Clean(), "%+v", u)
		require.Equal(t, activities.AsBefore, observe(e).State)
	}

	e, _ := cut(true)
	seen := observe(e)
	require.Equal(t, activities.Unseen, seen.State)
	require.Contains(t, seen.Detail,
		"the command has begun, and still runs; the filesystem of "+b.Name+" equals that before the step")
	undo(e)

	e, supervisor := cut(false)
	require.NoError(t, syscall.Kill(supervisor, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		seen = observe(e)
		return !strings.Contains(seen.Detail, "still runs")
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, activities.Unseen, seen.State)
	require.Contains(t, seen.Detail, "the command has begun, and how it ended is lost; ")
	undo(e)
}
