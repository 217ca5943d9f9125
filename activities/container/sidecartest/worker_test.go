package sidecartest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

// workerEnv makes a child of the test binary a worker that plans a step, applies it and undoes it.
const workerEnv = "UNWIND_TEST_SIDECAR_WORKER"

type job struct {
	Config    container.Config
	Container string
}

// told is what a worker says of its step.
type told struct {
	UID    int
	Plan   activities.Change
	Result activities.Result
	Undone activities.Undone
}

func actAsWorker(text string) {
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		var said told
		if said, err = work(j); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(said)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func work(j job) (said told, err error) {
	ctx := context.Background()
	said.UID = os.Geteuid()
	w, err := container.New(j.Config)
	if err != nil {
		return said, err
	}
	e, err := newEntry(ctx, w)
	if err != nil {
		return said, err
	}
	with, err := json.Marshal(map[string]any{"container": j.Container, "command": "echo two >/srv/a; rm -r /srv/d; cat /srv/a"})
	if err != nil {
		return said, err
	}
	s := activities.Step{ID: "it", With: with}
	if said.Plan, err = w.Actions[0].Plan(ctx, e, s); err != nil {
		return said, err
	}
	if said.Result, err = w.Actions[0].Apply(ctx, e, s, said.Plan.Digest); err != nil {
		return said, err
	}
	said.Undone, err = w.Actions[0].Undo(ctx, e, activities.Decision{})
	return said, err
}

func newEntry(ctx context.Context, w activities.World) (activities.Entry, error) {
	place, err := w.Journal(ctx)
	return activities.Entry{
		Version: activities.EntryVersion, Seq: 1, Step: "it", Action: "container.exec", UndoType: "container.exec.undo",
		Token: activities.NewToken(containertest.Random(), "it", 1), Place: activities.Place{Journal: place},
	}, err
}

// TestAWorkerThatIsNotRootHasLayers has a worker that is nobody, but for the group that may use the engine.
func TestAWorkerThatIsNotRootHasLayers(t *testing.T) {
	containertest.NeedsRoot(t, "layers over containers")
	const nobody = 65534
	socket, err := os.Stat("/var/run/docker.sock")
	if err != nil || os.Getenv("DOCKER_HOST") != "" {
		t.Skipf("SKIPPED: the engine is not at the usual socket, whose group lets others in: %v", err)
	}
	b := containertest.Start(t)
	b.Put(t, "/srv", map[string]string{"a": "one\n", "d/x": "x\n"})
	was, before := b.Inspect(t), containertest.Shows(t, b)
	state, err := os.MkdirTemp("", "unwind-nobody-") //nolint:usetesting // what t.TempDir makes is root's all the way
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(state) })
	require.NoError(t, os.Chown(state, nobody, nobody))
	t.Cleanup(func() { RemoveOf(t, dial(t), state) })
	program := filepath.Join(state, "helper")
	content, err := os.ReadFile(Program(t))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, content, 0o755))

	text, err := json.Marshal(job{container.Config{State: state, Overlay: true, Sidecar: true, Helper: program}, b.Name})
	require.NoError(t, err)
	worker := exec.Command("/proc/self/exe") // the folder of the test binary is root's
	worker.Env = append(os.Environ(), workerEnv+"="+string(text))
	worker.Dir = "/"
	worker.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
		Uid: nobody, Gid: nobody, Groups: []uint32{socket.Sys().(*syscall.Stat_t).Gid},
	}}
	var out, failed bytes.Buffer
	worker.Stdout, worker.Stderr = &out, &failed
	require.NoError(t, worker.Run(), "%s", &failed)
	var said told
	require.NoError(t, json.Unmarshal(out.Bytes(), &said))

	assert.Equal(t, nobody, said.UID)
	assert.Contains(t, strings.Join(said.Plan.Facts, "\n"), "made by a sidecar container on the engine")
	assert.Equal(t, "two\n", said.Result.Outputs["stdout"])
	assert.Equal(t, activities.Restored, said.Undone.Outcome)
	assert.Contains(t, said.Undone.Observed, "by a sidecar on the engine")
	assert.Equal(t, before, containertest.Shows(t, b))
	now := b.Inspect(t)
	assert.Equal(t, was.ID, now.ID)
	assert.Equal(t, was.State.Pid, now.State.Pid)
}

// world opens a world with a state folder, as its config says now.
func world(t *testing.T, state string, edit func(*container.Config)) activities.World {
	t.Helper()
	c := container.Config{State: state}
	edit(&c)
	w, err := container.New(c)
	require.NoError(t, err)
	return w
}

func do(t *testing.T, w activities.World, b *containertest.Box, command string) activities.Entry {
	t.Helper()
	e, err := newEntry(t.Context(), w)
	require.NoError(t, err)
	with, err := json.Marshal(map[string]any{"container": b.Name, "command": command})
	require.NoError(t, err)
	_, err = w.Actions[0].Apply(t.Context(), e, activities.Step{ID: "it", With: with}, "")
	require.NoError(t, err)
	return e
}

func undo(t *testing.T, w activities.World, e activities.Entry) {
	t.Helper()
	u, err := w.Actions[0].Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome, "%+v", u)
}

// TestARecordIsUndoneByTheHelperThatMadeIt changes the config between steps in one container.
func TestARecordIsUndoneByTheHelperThatMadeIt(t *testing.T) {
	containertest.NeedsRoot(t, "layers over containers")
	state, program := t.TempDir(), Program(t)
	nearby := world(t, state, func(c *container.Config) { c.Overlay = true })
	beside := world(t, state, func(c *container.Config) { c.Overlay, c.Sidecar, c.Helper = true, true, program })
	t.Cleanup(func() { RemoveOf(t, dial(t), state) })
	b := containertest.Start(t)
	sidecars := func() int { return len(Left(t, b.Client, homeOf(t, nearby))) }

	before := containertest.Shows(t, b)
	first := do(t, nearby, b, "echo one >/srv/a")
	one := containertest.Shows(t, b)
	second := do(t, beside, b, "echo two >/srv/a")
	assert.Zero(t, sidecars(), "it goes on with the layers that stand")
	undo(t, beside, second)
	assert.Equal(t, one, containertest.Shows(t, b))
	undo(t, beside, first)
	assert.Equal(t, before, containertest.Shows(t, b))
	assert.Zero(t, sidecars())

	b = containertest.Start(t)
	before = containertest.Shows(t, b)
	first = do(t, beside, b, "echo one >/srv/a")
	assert.Equal(t, 1, sidecars())
	one = containertest.Shows(t, b)
	second = do(t, beside, b, "echo two >/srv/a")
	undo(t, beside, second)
	assert.Equal(t, one, containertest.Shows(t, b))

	plain := world(t, state, func(c *container.Config) { c.Helper = "" })
	_, err := plain.Actions[0].Undo(t.Context(), first, activities.Decision{})
	if err == nil { // this test is linked statically: its own program will do
		assert.Equal(t, before, containertest.Shows(t, b))
		return
	}
	require.ErrorContains(t, err, "container.helper")
	require.ErrorContains(t, err, "go build ./activities/container/overlay/standalone")
	undo(t, beside, first)
	assert.Equal(t, before, containertest.Shows(t, b))
}

func homeOf(t *testing.T, w activities.World) string {
	t.Helper()
	place, err := w.Journal(t.Context())
	require.NoError(t, err)
	home, _, _ := strings.Cut(place, "@")
	return home
}

func TestAConfigThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	for said, c := range map[string]container.Config{
		"container.sidecar: true is for checkpoints as layers; set container.overlay: true too":                     {Sidecar: true},
		`container.helper: "/no/such" is the program of sidecars; set container.sidecar: true too, or leave it out`: {Overlay: true, Helper: "/no/such"},
		`container.helper: "/no/such" cannot be read`:                                                               {Overlay: true, Sidecar: true, Helper: "/no/such"},
	} {
		c.State = t.TempDir()
		_, err := container.New(c)
		require.ErrorContains(t, err, said)
	}
}
