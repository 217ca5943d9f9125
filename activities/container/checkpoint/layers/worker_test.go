package layers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/enginetest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// workerEnv makes a child of the test binary a worker that plans a step, applies it and undoes it.
const workerEnv = "UNWIND_TEST_LAYERS_WORKER"

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
	with, err := json.Marshal(map[string]any{"container": j.Container,
		"command": "echo two >/srv/a; rm -r /srv/d; cat /srv/a"})
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

const nobody = 65534

// TestAWorkerThatIsNotRootHasLayers has a worker that is nobody, but for the group that may use the
// engine.
func TestAWorkerThatIsNotRootHasLayers(t *testing.T) {
	testrun.NeedRoot(t, "layers over containers")
	socket, err := os.Stat("/var/run/docker.sock")
	if err != nil || os.Getenv("DOCKER_HOST") != "" {
		testrun.Skipf(t, "the engine is not at the usual socket, whose group lets others in: %v", err)
	}
	b := containertest.Start(t)
	b.Put(t, "/srv", map[string]string{"a": "one\n", "d/x": "x\n"})
	state := folderOfNobody(t)
	t.Cleanup(func() { containertest.RemoveLayers(t, state) })
	worksAsNobody(t, b, container.Config{State: state}, socket.Sys().(*syscall.Stat_t).Gid,
		func(start func() error) error { return start() })
}

// TestAWorkerOfARemoteEngineHasLayers has an engine in a network namespace of its own, and a worker
// there that reaches it over TCP and can read none of its files.
func TestAWorkerOfARemoteEngineHasLayers(t *testing.T) {
	testrun.NeedRoot(t, "layers over containers")
	e := enginetest.Start(t, enginetest.OnTCP)
	containertest.Prepare(t, e)
	b := containertest.StartOn(t, e)
	b.Put(t, "/srv", map[string]string{"a": "one\n", "d/x": "x\n"})
	worksAsNobody(t, b, container.Config{State: folderOfNobody(t), Host: enginetest.Address}, nobody, e.Inside)
}

// folderOfNobody is a state folder for a worker that is not root.
func folderOfNobody(t *testing.T) string {
	t.Helper()
	state, err := os.MkdirTemp("", "unwind-nobody-") //nolint:usetesting // what t.TempDir makes is root's all the way
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(state) })
	require.NoError(t, os.Chown(state, nobody, nobody))
	return state
}

// worksAsNobody has a worker take a step and undo it, in a process of its own that starts within.
func worksAsNobody(t *testing.T, b *containertest.Box, c container.Config, group uint32,
	within func(start func() error) error) {
	t.Helper()
	was, before := b.Inspect(t), containertest.Shows(t, b)
	text, err := json.Marshal(job{c, b.Name})
	require.NoError(t, err)
	worker := exec.Command("/proc/self/exe") // the folder of the test binary is root's
	worker.Env = append(os.Environ(), workerEnv+"="+string(text))
	worker.Dir = "/"
	worker.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody,
		Groups: []uint32{group}}}
	var out, failed bytes.Buffer
	worker.Stdout, worker.Stderr = &out, &failed
	require.NoError(t, within(worker.Start))
	require.NoError(t, worker.Wait(), "%s", &failed)
	var said told
	require.NoError(t, json.Unmarshal(out.Bytes(), &said))

	assert.Equal(t, nobody, said.UID)
	assert.Contains(t, strings.Join(said.Plan.Facts, "\n"), "a layer over the container's root")
	assert.Equal(t, "two\n", said.Result.Outputs["stdout"])
	assert.Equal(t, "layers", said.Result.Outputs["kept_by"])
	assert.Equal(t, activities.Restored, said.Undone.Outcome)
	assert.Contains(t, said.Undone.Observed, "the layers of "+b.Name)
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

func homeOf(t *testing.T, state string) string {
	t.Helper()
	home, err := container.Home(state)
	require.NoError(t, err)
	return home
}

func TestAConfigThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	_, err := container.New(container.Config{State: t.TempDir(), Layers: "always"})
	require.EqualError(t, err, `container.layers: "always" must be auto, never or require`)
}
