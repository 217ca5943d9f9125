package helper

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/docker/demoimage"
	"github.com/seed-62bf7108/unwind/activities/docker/enginetest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/boxtest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// crate is a container of an engine, with a helper in a process of its own.
type crate struct {
	*client.Client
	*testing.T
	helper *Client
	id     string
}

// onEngines runs a test on the engine at hand and on one with overlay2.
func onEngines(t *testing.T, test func(t *testing.T, c *client.Client, restart func())) {
	t.Helper()
	testrun.NeedRoot(t, "overlays")
	t.Run("at hand", func(t *testing.T) {
		c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		if _, err := c.Ping(t.Context()); err != nil {
			testrun.Skipf(t, "no Docker engine answers: %v", err)
		}
		test(t, c, nil)
	})
	t.Run("overlay2", func(t *testing.T) {
		e := enginetest.Start(t)
		test(t, e.Client(t), func() { e.Stop(); require.NoError(t, e.Run()) })
	})
}

func newCrate(t *testing.T, c *client.Client, ref string, h *Client, host *container.HostConfig) *crate {
	t.Helper()
	host.NetworkMode = "none"
	made, err := c.ContainerCreate(t.Context(), &container.Config{Image: ref, Cmd: []string{"sleep", "600"}}, host, nil,
		nil, "")
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t,
			c.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	})
	require.NoError(t, c.ContainerStart(t.Context(), made.ID, container.StartOptions{}))
	return &crate{c, t, h, made.ID}
}

func (c *crate) ask(op Op, edit ...func(*Request)) (Answer, error) {
	c.Helper()
	now, err := c.ContainerInspect(c.Context(), c.id)
	require.NoError(c, err)
	r := Request{Op: op, Container: c.id, PID: now.State.Pid}
	for _, e := range edit {
		e(&r)
	}
	return c.helper.Ask(c.Context(), r)
}

func (c *crate) must(op Op, edit ...func(*Request)) Answer {
	c.Helper()
	a, err := c.ask(op, edit...)
	require.NoError(c, err, "%s", op)
	return a
}

// exec makes an exec; start runs it, and returns what it says and its status.
func (c *crate) exec(dir, user, command string) string {
	c.Helper()
	made, err := c.ContainerExecCreate(c.Context(), c.id, container.ExecOptions{
		Cmd: []string{"sh", "-c", command}, WorkingDir: dir, User: user, AttachStdout: true, AttachStderr: true,
	})
	require.NoError(c, err)
	return made.ID
}

func (c *crate) start(exec string) (said string, status int) {
	c.Helper()
	stream, err := c.ContainerExecAttach(c.Context(), exec, container.ExecAttachOptions{})
	if err != nil {
		return err.Error(), -1
	}
	defer stream.Close()
	var out strings.Builder
	_, err = stdcopy.StdCopy(&out, &out, stream.Reader)
	require.NoError(c, err)
	for {
		seen, err := c.ContainerExecInspect(c.Context(), exec)
		require.NoError(c, err)
		if !seen.Running {
			return out.String(), seen.ExitCode
		}
	}
}

func (c *crate) do(command string) string {
	c.Helper()
	said, status := c.start(c.exec("", "", command))
	require.Zero(c, status, "%s: %s", command, said)
	return said
}

// files is all that the container shows, but for the engine's own files, and the root's time: it
// makes some at each start.
func (c *crate) files() string {
	c.Helper()
	now, err := c.ContainerInspect(c.Context(), c.id)
	require.NoError(c, err)
	engines := regexp.MustCompile(`(?m)^(/|/etc|/etc/(hosts|hostname|resolv.conf)) .*\n`)
	return engines.ReplaceAllString(boxtest.At(c, now.State.Pid).Files(), "")
}

func TestOnEngines(t *testing.T) {
	onEngines(t, func(t *testing.T, c *client.Client, restart func()) {
		ref := "unwind/test-stack:" + strings.ToLower(filepath.Base(t.TempDir())+boxID)
		_, err := demoimage.Build(t.Context(), c, ref)
		require.NoError(t, err)
		t.Cleanup(func() {
			_, err := c.ImageRemove(context.Background(), ref, image.RemoveOptions{Force: true, PruneChildren: true})
			assert.NoError(t, err)
		})
		h := newClient(filepath.Join(t.TempDir(), "stacks"), func(int) {})
		t.Cleanup(h.Close)
		_, err = h.Ask(t.Context(), Request{Op: Probe})
		require.NoError(t, err)
		t.Run("a container",
			func(t *testing.T) { theContainerStays(newCrate(t, c, ref, h, &container.HostConfig{}), restart) })
		t.Run("a late exec", func(t *testing.T) { aLateExecDoesNotRun(newCrate(t, c, ref, h, &container.HostConfig{})) })
		t.Run("read-only", func(t *testing.T) {
			crate := newCrate(t, c, ref, h, &container.HostConfig{ReadonlyRootfs: true, Tmpfs: map[string]string{"/tmp": ""}})
			crate.must(Take, name("one"))
			_, status := crate.start(crate.exec("", "", "echo x >/srv-file"))
			assert.NotZero(t, status, "it stays read-only")
			crate.do("echo x >/tmp/x")
			crate.must(Restore, name("one"), turn("undo"))
			assert.Equal(t, "x\n", crate.do("cat /tmp/x"), "a tmpfs is not rolled back")
		})
		t.Run("shares the host's processes", func(t *testing.T) {
			crate := newCrate(t, c, ref, h, &container.HostConfig{PidMode: "host"})
			_, err := crate.ask(Take, name("one"))
			assert.Equal(t, Unfit, KindOf(err))
		})
	})
}

func theContainerStays(c *crate, restart func()) {
	was, err := c.ContainerInspect(c.Context(), c.id)
	require.NoError(c, err)
	c.do("mkdir /srv; echo base >/srv/a; chmod 777 /srv")
	before := c.files()
	c.must(Take, name("one"))
	said, status := c.start(c.exec(c.must(Enter, name("one"), workdir("/srv")).Path, "nobody",
		"pwd; echo one >/srv/b; rm /bin/xargs; id -u || true"))
	assert.NotContains(c, said, ".unwind", "%d", status)
	assert.Equal(c, "one\n", c.do("cat /srv/b"))
	c.must(Take, name("two"))
	c.do("rm -r /srv")

	require.NoError(c, c.ContainerRestart(c.Context(), c.id, container.StopOptions{Timeout: new(int)}))
	c.must(Stacked)
	c.must(Restore, name("two"), turn("undo"))
	assert.Equal(c, "one\n", c.do("cat /srv/b"), "layers stand again after a restart of the container")
	if restart != nil {
		restart()
		c.must(Stacked)
		assert.Equal(c, "one\n", c.do("cat /srv/b"), "and of the engine")
	}
	c.must(Restore, name("one"), turn("undo"))
	assert.Equal(c, before, c.files())
	now, err := c.ContainerInspect(c.Context(), c.id)
	require.NoError(c, err)
	assert.Equal(c, was.Name, now.Name)
	assert.True(c, now.State.Running)

	c.do("echo two >/srv/c")
	c.must(Drop, name("one"), func(r *Request) { r.Names = append(r.Names, "two") })
	require.Eventually(c, func() bool { // the last exec may still be on its way out
		_, err := c.ask(Commit)
		return err == nil
	}, 60e9, 20e6)
	require.NoError(c, c.ContainerRestart(c.Context(), c.id, container.StopOptions{Timeout: new(int)}))
	assert.Equal(c, "base\ntwo\n", c.do("cat /srv/a /srv/c"))
}

func aLateExecDoesNotRun(c *crate) {
	c.must(Take, name("one"))
	door := c.must(Enter, name("one"), workdir("/")).Path
	inTime, late := c.exec(door, "", "echo x >/in-time; sleep 300"), c.exec(door, "", "echo x >/late")
	ended := make(chan int)
	go func() {
		_, status := c.start(inTime)
		ended <- status
	}()
	require.Eventually(c, func() bool {
		changes, err := c.ask(Changes, name("one"))
		return err == nil && len(changes.Changes) > 0
	}, 60e9, 20e6)
	c.must(Restore, name("one"), turn("undo"))
	assert.NotZero(c, <-ended, "what runs is ended")
	said, status := c.start(late)
	assert.NotZero(c, status, "what comes late does not begin: %s", said)
	left, err := c.ask(Changes, name("one"))
	require.NoError(c, err)
	assert.Empty(c, left.Changes)
}
