package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/demoimage"
	"github.com/seed-62bf7108/unwind/activities/docker/enginetest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/boxtest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
	"github.com/seed-62bf7108/unwind/testrun"
)

const workerEnv = "UNWIND_TEST_SIDECAR_OF"

// lazyEnv makes a child of the test binary a program that does not call helper.Attend.
const lazyEnv = "UNWIND_TEST_SIDECAR_LAZY"

func TestMain(m *testing.M) {
	if os.Getenv(lazyEnv) != "" {
		_, err := sidecar.Ref()
		fmt.Println(err)
		os.Exit(0)
	}
	helper.Attend()
	if home := os.Getenv(workerEnv); home != "" {
		beWorker(home)
	}
	code := m.Run()
	if err := containertest.RemoveImages(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// beWorker has a sidecar at work until it is killed.
func beWorker(home string) {
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err == nil {
		_, err = helper.NewClient(sidecar.Starter(c, home)).Ask(context.Background(), helper.Request{Op: helper.Probe})
	}
	fmt.Println(err)
	select {}
}

// yard is an engine with a sidecar of the test's own, and a container.
type yard struct {
	*client.Client
	*testing.T
	helper   *helper.Client
	home, id string
}

func newYard(t *testing.T, c *client.Client) *yard {
	t.Helper()
	ref := "unwind/test-sidecar:" + containertest.Random()
	_, err := demoimage.Build(t.Context(), c, ref)
	require.NoError(t, err)
	y := &yard{Client: c, T: t, home: containertest.Random()}
	made, err := c.ContainerCreate(t.Context(), &container.Config{Image: ref}, &container.HostConfig{NetworkMode: "none"},
		nil, nil, "")
	require.NoError(t, err)
	y.id = made.ID
	y.helper = helper.NewClient(sidecar.Starter(c, y.home))
	t.Cleanup(func() {
		y.helper.Close()
		assert.NoError(t, c.ContainerRemove(context.Background(), y.id, container.RemoveOptions{Force: true}))
		_, err := c.ImageRemove(context.Background(), ref, dockerimage.RemoveOptions{Force: true})
		assert.NoError(t, err)
		containertest.RemoveHome(t, c, y.home)
	})
	require.NoError(t, c.ContainerStart(t.Context(), y.id, container.StartOptions{}))
	return y
}

func atHand(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	if _, err := c.Ping(t.Context()); err != nil {
		testrun.Skipf(t, "no Docker engine answers: %v", err)
	}
	return c
}

func (y *yard) ask(op helper.Op, name string) (helper.Answer, error) {
	y.Helper()
	return y.helper.Ask(y.Context(),
		helper.Request{Op: op, Container: y.id, PID: y.pid(), Name: name, Names: []string{name}, Turn: "undo"})
}

func (y *yard) pid() int {
	now, err := y.ContainerInspect(y.Context(), y.id)
	require.NoError(y, err)
	return now.State.Pid
}

func (y *yard) must(op helper.Op, name string) helper.Answer {
	y.Helper()
	a, err := y.ask(op, name)
	require.NoError(y, err, "%s", op)
	return a
}

var engines = regexp.MustCompile(`(?m)^(/|/etc|/etc/(hosts|hostname|resolv.conf)) .*\n`)

func (y *yard) files() string { return engines.ReplaceAllString(boxtest.At(y, y.pid()).Files(), "") }

func needsRoot(t *testing.T) {
	t.Helper()
	testrun.NeedRoot(t, "what a container holds")
}

func TestASidecarDoesWhatAHelperOnTheHostDoes(t *testing.T) {
	needsRoot(t)
	t.Run("at hand", func(t *testing.T) { theContainerStays(newYard(t, atHand(t))) })
	t.Run("overlay2", func(t *testing.T) { theContainerStays(newYard(t, enginetest.Start(t).Client(t))) })
}

func theContainerStays(y *yard) {
	y.must(helper.Probe, "")
	y.inside(func() error {
		return errors.Join(
			os.MkdirAll("/srv/a/b", 0o755), os.WriteFile("/srv/a/f", []byte("f"), 0o640),
			os.WriteFile("/srv/g", []byte("g"), 0o755),
			os.MkdirAll("/srv/old", 0o755), os.WriteFile("/srv/old/x", nil, 0o600), os.Lchown("/srv/g", 12, 34),
			unix.Setxattr("/srv/g", "security.capability", netRaw, 0),
		)
	})
	before := y.files()
	y.must(helper.Take, "one")
	y.everything()
	after := y.files()
	assert.Contains(y, after, "\n/srv/a 42755 12:34 ")
	y.must(helper.Take, "two")
	running := y.leave("nobody")
	y.inside(func() error { return os.RemoveAll("/srv") })
	y.must(helper.Restore, "two")
	assert.Equal(y, after, y.files())
	left, err := y.ContainerExecInspect(y.Context(), running)
	require.NoError(y, err)
	assert.False(y, left.Running, "whoever it runs as")
	require.NoError(y, y.ContainerRestart(y.Context(), y.id, container.StopOptions{Timeout: new(int)}))
	y.must(helper.Stacked, "")
	assert.Equal(y, after, y.files(), "also after a restart")
	y.must(helper.Restore, "one")
	assert.Equal(y, before, y.files())
	assert.True(y, y.must(helper.Kept, "").Yes)

	y.everything()
	y.must(helper.Drop, "one")
	y.must(helper.Drop, "two")
	y.must(helper.Commit, "")
	assert.False(y, y.must(helper.Kept, "").Yes)
	assert.Equal(y, after, y.files(), "and in the container's own filesystem")

	now, err := y.ContainerInspect(y.Context(), containertest.Sidecars(y, y.Client, y.home)[0].ID)
	require.NoError(y, err)
	assert.False(y, now.HostConfig.Privileged)
	assert.Equal(y, "none", string(now.HostConfig.NetworkMode))
	y.helper.Close()
	require.Eventually(y, func() bool { return len(containertest.Sidecars(y, y.Client, y.home)) == 0 }, time.Minute,
		20*time.Millisecond, "it ends with its input, and goes")
}

// leave leaves a process of a user's in the container.
func (y *yard) leave(user string) (id string) {
	y.Helper()
	made, err := y.ContainerExecCreate(y.Context(), y.id, container.ExecOptions{Cmd: []string{"sleep", "600"}, User: user})
	require.NoError(y, err)
	require.NoError(y, y.ContainerExecStart(y.Context(), made.ID, container.ExecStartOptions{Detach: true}))
	return made.ID
}

var netRaw = []byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

func (y *yard) inside(f func() error) { boxtest.At(y, y.pid()).Inside(f) }

// everything changes what theContainerStays has made into each kind of thing that a filesystem
// holds.
func (y *yard) everything() {
	when := []unix.Timespec{{Sec: 1e9, Nsec: 7}, {Sec: 1e9, Nsec: 987654321}}
	y.inside(func() error {
		return errors.Join(
			os.RemoveAll("/srv/old"), os.Mkdir("/srv/old", 0o700), os.WriteFile("/srv/old/y", []byte("y"), 0o600),
			os.Remove("/srv/a/f"), os.Link("/srv/old/y", "/srv/hard"), os.Symlink("nowhere", "/srv/dangling"),
			unix.Mkfifo("/srv/pipe", 0o600), unix.Mknod("/srv/dev", unix.S_IFBLK|0o600, int(unix.Mkdev(7, 9))),
			os.WriteFile("/srv/sparse", []byte("x"), 0o644), os.Truncate("/srv/sparse", 8<<20),
			os.Chown("/srv/a", 12, 34), unix.Chmod("/srv/a", 0o2755), unix.Setxattr("/srv/hard", "user.note", []byte("kept"), 0),
			unix.Setxattr("/srv/a", "trusted.note", []byte{0, 1}, 0), unix.Setxattr("/srv/old/y", "security.capability", netRaw,
				0),
			unix.Chmod("/srv/g", 0o4711), unix.UtimesNano("/srv/g", when), unix.UtimesNano("/srv/old", when),
			unix.UtimesNano("/srv/a", when), unix.UtimesNano("/srv", when), unix.UtimesNano("/srv/old/y", when),
			unix.UtimesNano("/srv/sparse", when),
			unix.UtimesNanoAt(unix.AT_FDCWD, "/srv/dangling", when, unix.AT_SYMLINK_NOFOLLOW), unix.UtimesNano("/srv/pipe",
				when), unix.UtimesNano("/srv/dev", when),
		)
	})
}

func TestAKilledWorkerTakesItsSidecarAlong(t *testing.T) {
	needsRoot(t)
	y := newYard(t, atHand(t))
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), workerEnv+"="+y.home)
	said, err := worker.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, worker.Start())
	t.Cleanup(func() { _ = worker.Process.Kill(); _ = worker.Wait() })
	word := make([]byte, 64)
	n, err := said.Read(word)
	require.NoError(t, err)
	require.Equal(t, "<nil>\n", string(word[:n]))
	require.Len(t, containertest.Sidecars(y, y.Client, y.home), 1)
	require.NoError(t, worker.Process.Kill())
	require.Eventually(t, func() bool { return len(containertest.Sidecars(y, y.Client, y.home)) == 0 }, time.Minute,
		20*time.Millisecond)
}

// TestASidecarThatIsKilledLosesNothing kills it while it is asked to go there and back.
func TestASidecarThatIsKilledLosesNothing(t *testing.T) {
	needsRoot(t)
	y := newYard(t, atHand(t))
	before := y.files()
	y.must(helper.Take, "one")
	for i := range 8 {
		y.inside(func() error { return os.WriteFile(fmt.Sprintf("/file-%d", i), []byte("x"), 0o600) })
		left, step := y.files(), fmt.Sprintf("step-%d", i)
		killed := make(chan error, 1)
		go func() { // while the checkpoint is taken: sooner, or later
			for range i * 4 {
				_, _ = os.ReadFile("/proc/self/mountinfo")
			}
			killed <- y.ContainerKill(context.Background(), containertest.Sidecars(y, y.Client, y.home)[0].ID, "KILL")
		}()
		_, _ = y.ask(helper.Take, step)
		require.NoError(t, <-killed)
		require.Eventually(t, func() bool { _, err := y.ask(helper.Take, step); return err == nil }, time.Minute,
			20*time.Millisecond)
		require.Equal(t, left, y.files())
	}
	y.must(helper.Restore, "one")
	assert.Equal(t, before, y.files())
}

// TestAProgramThatDoesNotAttendIsNoSidecar: it would do there whatever it does, with all rights.
func TestAProgramThatDoesNotAttendIsNoSidecar(t *testing.T) {
	t.Parallel()
	lazy := exec.Command("/proc/self/exe")
	lazy.Env = append(os.Environ(), lazyEnv+"=1")
	said, err := lazy.Output()
	require.NoError(t, err)
	assert.Contains(t, string(said), "have its main function call container.Attend first")
}
