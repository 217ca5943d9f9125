package checkpointtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	cerrdefs "github.com/containerd/errdefs"
	dockertypes "github.com/docker/docker/api/types/container"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/boxtest"
)

// testLosses looks for exactly what the table says is lost: it makes a container that has one of
// each, undoes a step in it, and looks at each again.
func (s Subject) testLosses(t *testing.T, on setting) {
	b := start(t, on, &dockertypes.Config{Image: on.image, Volumes: map[string]struct{}{"/unnamed": {}}})
	first := s.newTask(t, on, map[string]any{"container": b.Name, "command": "touch /tmp/begun"})
	_, err := first.action.Apply(t.Context(), first.entry, first.with, "")
	require.NoError(t, err)
	makeOneOfEach(t, b)
	before := lookAtEach(t, b)
	k := first.next(map[string]any{"container": b.Name, "command": "rm -r /srv; mkdir /srv"})
	plan, err := k.action.Plan(t.Context(), k.entry, k.with)
	require.NoError(t, err)
	_, err = k.action.Apply(t.Context(), k.entry, k.with, "")
	require.NoError(t, err)
	undone, err := k.action.Undo(t.Context(), k.entry, activities.Decision{})
	require.NoError(t, err)
	require.NotEqual(t, activities.Drifted, undone.Outcome)
	after := lookAtEach(t, b)
	assert.Contains(t, plan.Undo, "No process is brought back to what it was: "+map[bool]string{
		false: "its program starts again, and whatever else runs in it is ended.",
		true:  "every one that a command has left in it is ended, and the container's own go on.",
	}[s.Layers])
	for _, l := range checkpoint.LossTable {
		was, looked := before[l.What]
		require.True(t, looked, "%s: nothing looks at it", l.What)
		is := after[l.What]
		delete(before, l.What)
		lost := l.Commit && !s.Layers || l.Layers && s.Layers
		assert.Equal(t, lost, was != is, "%s: it was %q and is %q", l.What, was, is)
		told := strings.Contains(strings.Join(plan.Losses, "\n"), l.What)
		assert.Equal(t, lost, told, "%s: the plan says it", l.What)
		assert.Equal(t, lost, strings.Contains(strings.Join(undone.Losses, "\n"), l.What), "%s: the report says it", l.What)
	}
	for what, was := range before {
		assert.Equal(t, was, after[what], "%s: the table does not say that it is lost", what)
	}
}

// start starts a container with these files, as tar streams; it is gone after the test, with what
// it stands on.
func start(t *testing.T, on setting, config *dockertypes.Config, files ...[]byte) *containertest.Box {
	t.Helper()
	b := &containertest.Box{Client: on.Client, Name: "unwind-test-" + containertest.Random()}
	made, err := on.ContainerCreate(t.Context(), config, &dockertypes.HostConfig{NetworkMode: "none"}, nil, nil, b.Name)
	require.NoError(t, err)
	b.ID = made.ID
	t.Cleanup(func() {
		now, err := on.ContainerInspect(context.Background(), b.Name)
		require.NoError(t, err)
		require.NoError(t,
			on.ContainerRemove(context.Background(), now.ID, dockertypes.RemoveOptions{Force: true, RemoveVolumes: true}))
		for _, m := range now.Mounts { // its volume may have got a name
			require.NoError(t, on.VolumeRemove(context.Background(), m.Name, true))
		}
		if now.Image != made.ID && now.ID != made.ID {
			removeImage(t, on.Client, now.Image)
		}
	})
	for _, f := range files {
		require.NoError(t,
			on.CopyToContainer(t.Context(), b.ID, "/", bytes.NewReader(f), dockertypes.CopyToContainerOptions{}))
	}
	require.NoError(t, on.ContainerStart(t.Context(), b.ID, dockertypes.StartOptions{}))
	return b
}

func removeImage(t *testing.T, c *client.Client, ref string) {
	_, err := c.ImageRemove(context.Background(), ref, dockerimage.RemoveOptions{Force: true, PruneChildren: true})
	if !cerrdefs.IsNotFound(err) {
		require.NoError(t, err)
	}
}

var (
	capability = []byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	// accessList lets user 57 read: an ACL as the kernel keeps it.
	accessList = []uint16{2, 0, 1, 6, 0xffff, 0xffff, 2, 4, 57, 0, 4, 4, 0xffff, 0xffff, 16, 4, 0xffff, 0xffff, 32, 0,
		0xffff, 0xffff}
)

// makeOneOfEach makes what lookAtEach looks at.
func makeOneOfEach(t *testing.T, b *containertest.Box) {
	b.Run(t, "echo a word >/proc/1/fd/1")
	left, err := b.ContainerExecCreate(t.Context(), b.ID, dockertypes.ExecOptions{Cmd: []string{"sleep", "600"}})
	require.NoError(t, err)
	require.NoError(t, b.ContainerExecStart(t.Context(), left.ID, dockertypes.ExecStartOptions{Detach: true}))
	list := make([]byte, 0, 2*len(accessList))
	for _, half := range accessList {
		list = binary.LittleEndian.AppendUint16(list, half)
	}
	file := func(name string) error { return os.WriteFile("/srv/"+name, []byte(name), 0o640) }
	boxtest.At(t, b.Inspect(t).State.Pid).Inside(func() error {
		s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		return errors.Join(
			unix.Bind(s, &unix.SockaddrUnix{Name: "/srv/socket"}),
			file("time"), file("list"), file("user"), file("trusted"), file("linked"), file("capable"), file("owned"),
			file("mode"), file("sparse"),
			unix.UtimesNano("/srv/time", []unix.Timespec{{Sec: 1e9, Nsec: 5}, {Sec: 1e9, Nsec: 987654321}}),
			unix.Setxattr("/srv/list", "system.posix_acl_access", list, 0),
			unix.Setxattr("/srv/user", "user.note", []byte("kept"), 0),
			unix.Setxattr("/srv/trusted", "trusted.note", []byte("kept"), 0),
			unix.Setxattr("/srv/capable", "security.capability", capability, 0),
			os.Truncate("/srv/sparse", 8<<20), os.Link("/srv/linked", "/srv/other"), os.Lchown("/srv/owned", 12, 34),
			unix.Chmod("/srv/mode", 0o6755),
			os.Symlink("nowhere", "/srv/symlink"), unix.Mkfifo("/srv/pipe", 0o600), unix.Mknod("/srv/device", unix.S_IFBLK|0o600, int(unix.Mkdev(7, 9))), //nolint:gosec // a small number
		)
	})
}

// lookAtEach tells what there is of each row of the table, and of what no backend loses.
func lookAtEach(t *testing.T, b *containertest.Box) map[string]string {
	t.Helper()
	now := b.Inspect(t)
	log, err := b.ContainerLogs(t.Context(), now.ID, dockertypes.LogsOptions{ShowStdout: true})
	require.NoError(t, err)
	defer log.Close()
	first := make([]byte, 64)
	n, _ := log.Read(first)
	running, err := b.ContainerTop(t.Context(), now.ID, nil)
	require.NoError(t, err)
	is := map[string]string{
		"it has another id":                                           now.ID,
		"its image is named by id":                                    now.Config.Image,
		"anonymous volumes become named ones":                         fmt.Sprint(now.HostConfig.Binds),
		"its log begins anew":                                         string(first[:n]),
		"its processes start again: what they held in memory is gone": fmt.Sprint(now.State.Pid),
		"processes that commands have left in the container, this step's or others', " +
			"are ended": fmt.Sprint(len(running.Processes)),
		"name": now.Name, "volume": now.Mounts[0].Name, "command": fmt.Sprint(now.Config.Cmd),
	}
	boxtest.At(t, now.State.Pid).Inside(func() error {
		stat := func(name string) (st unix.Stat_t) {
			if err := unix.Lstat("/srv/"+name, &st); err != nil {
				st.Size = -1
			}
			return st
		}
		attribute := func(name, which string) string {
			value := make([]byte, 256)
			n, err := unix.Lgetxattr("/srv/"+name, which, value)
			if err != nil {
				return err.Error()
			}
			return fmt.Sprintf("%x", value[:n])
		}
		link, _ := os.Readlink("/srv/symlink")
		sparse := stat("sparse")
		for what, found := range map[string]any{
			"times below a second":            stat("time").Mtim.Nsec,
			"ACLs":                            attribute("list", "system.posix_acl_access"),
			"user.* attributes":               attribute("user", "user.note"),
			"trusted.* attributes":            attribute("trusted", "trusted.note"),
			"sockets":                         stat("socket").Mode,
			"holes (sparse files are filled)": sparse.Blocks*512 < sparse.Size,
			"seconds":                         stat("time").Mtim.Sec,
			"files' capabilities":             attribute("capable", "security.capability"),
			"names of one file":               stat("linked").Nlink == 2 && stat("linked").Ino == stat("other").Ino,
			"owners":                          [2]uint32{stat("owned").Uid, stat("owned").Gid},
			"set-user and set-group bits":     stat("mode").Mode,
			"symbolic links":                  link,
			"pipes":                           stat("pipe").Mode,
			"devices":                         [2]uint64{uint64(stat("device").Mode), stat("device").Rdev},
		} {
			is[what] = fmt.Sprint(found)
		}
		return nil
	})
	return is
}
