package containertest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/testrun"
)

// Random is a part of a name that nothing else has.
func Random() string { return strings.ToLower(rand.Text()[:10]) }

// Outliving is a test whose context has not ended yet: for what is done in its Cleanup.
func Outliving(t testing.TB) testing.TB { return outliving{t} }

type outliving struct{ testing.TB }

func (outliving) Context() context.Context { return context.Background() }

// Docker is a client of the test's own. Without an engine the test is skipped, and where CI=true it
// fails.
func Docker(t testing.TB) *client.Client {
	t.Helper()
	c, err := connect()
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	if _, err := c.Ping(t.Context()); err != nil {
		testrun.Skipf(t, "no Docker engine answers: %v", err)
	}
	return c
}

func connect() (*client.Client, error) {
	return client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
}

// Box is a container under test.
type Box struct {
	*client.Client

	// ID is what it had when it was started: what is made anew has another.
	Name, ID string
}

// Start starts a container; each of edit changes how it is made. It is gone, whatever became of it,
// after the test.
func Start(t testing.TB, edit ...func(*container.Config, *container.HostConfig, *network.NetworkingConfig)) *Box {
	t.Helper()
	b := Create(t, edit...)
	require.NoError(t, b.ContainerStart(t.Context(), b.ID, container.StartOptions{}))
	return b
}

// Create makes the container that Start starts.
func Create(t testing.TB, edit ...func(*container.Config, *container.HostConfig, *network.NetworkingConfig)) *Box {
	t.Helper()
	c := Docker(t)
	b := &Box{Client: c, Name: "unwind-test-" + Random()}
	config := &container.Config{Image: ShellImage(t, c)}
	host, net := &container.HostConfig{NetworkMode: "none"}, &network.NetworkingConfig{}
	for _, e := range edit {
		e(config, host, net)
	}
	made, err := c.ContainerCreate(t.Context(), config, host, net, nil, b.Name)
	require.NoError(t, err)
	b.ID = made.ID
	t.Cleanup(func() { b.removeAll(t) })
	return b
}

// removeAll removes whatever has the box's name, and the checkpoints that it stands on.
func (b *Box) removeAll(t testing.TB) {
	t = Outliving(t)
	c := Docker(t)
	for _, id := range []string{b.ID, b.Name} {
		gone, err := c.ContainerInspect(t.Context(), id)
		if cerrdefs.IsNotFound(err) {
			continue
		}
		require.NoError(t, err)
		require.NoError(t, c.ContainerRemove(t.Context(), gone.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
		removeMade(t, gone.Image)
	}
}

// Stop kills what runs in the box: its programs may heed no other signal.
func (b *Box) Stop(t testing.TB) {
	t.Helper()
	require.NoError(t, b.ContainerStop(t.Context(), b.ID, container.StopOptions{Timeout: new(int)}))
}

// Restart kills what runs in the box, and starts it again.
func (b *Box) Restart(t testing.TB) {
	t.Helper()
	require.NoError(t, b.ContainerRestart(t.Context(), b.ID, container.StopOptions{Timeout: new(int)}))
}

// Inspect looks at whatever has the box's name.
func (b *Box) Inspect(t testing.TB) container.InspectResponse {
	t.Helper()
	c, err := b.ContainerInspect(t.Context(), b.Name)
	require.NoError(t, err)
	return c
}

// Has says whether there is something at a path.
func (b *Box) Has(t testing.TB, name string) bool {
	t.Helper()
	_, err := b.ContainerStatPath(t.Context(), b.Name, name)
	return err == nil
}

// Run runs a command beside all that is under test.
func (b *Box) Run(t testing.TB, command string) {
	t.Helper()
	made, err := b.ContainerExecCreate(t.Context(), b.Name,
		container.ExecOptions{Cmd: []string{"sh", "-c", command}, AttachStdout: true})
	require.NoError(t, err)
	stream, err := b.ContainerExecAttach(t.Context(), made.ID, container.ExecAttachOptions{})
	require.NoError(t, err)
	defer stream.Close()
	var sink strings.Builder
	_, err = stream.Reader.WriteTo(&sink)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		seen, err := b.ContainerExecInspect(t.Context(), made.ID)
		return err == nil && !seen.Running && seen.ExitCode == 0
	}, time.Minute, 10*time.Millisecond, "%s: %s", command, sink.String())
	if os.Geteuid() == 0 {
		_ = b.Forget(t) // it may have ended the box, or what lies over it holds on to it
	}
}

// Forget has the kernel of a box on this host forget what it remembers of the box's own filesystem,
// as when it needs the room: of fuse-overlayfs it tells old times until then.
func (b *Box) Forget(t testing.TB) error {
	t.Helper()
	at := b.Inspect(t).GraphDriver.Data["MergedDir"]
	var fs unix.Statfs_t
	if err := unix.Statfs(at, &fs); err != nil || fs.Type != unix.FUSE_SUPER_MAGIC {
		return err
	}
	const same = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC | unix.ST_NOATIME
	return unix.Mount("", at, "", uintptr(unix.MS_REMOUNT|fs.Flags&same), "") //nolint:gosec // these flags are a mount's
}

// Put puts files into a folder of the box, with times that are whole seconds: an engine whose
// filesystem keeps times in memory may tell others after a restart.
func (b *Box) Put(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	var stream bytes.Buffer
	w, when, had := tar.NewWriter(&stream), time.Unix(1_700_000_000, 0), map[string]bool{}
	var folder func(at string)
	folder = func(at string) {
		if at == "." || had[at] {
			return
		}
		had[at] = true
		folder(path.Dir(at))
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: at + "/", Mode: 0o755, ModTime: when}))
	}
	for name, content := range files {
		name = path.Join(strings.TrimPrefix(dir, "/"), name)
		folder(path.Dir(name))
		require.NoError(t,
			w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content)), ModTime: when}))
		_, err := w.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, b.CopyToContainer(t.Context(), b.Name, "/", &stream, container.CopyToContainerOptions{}))
}
