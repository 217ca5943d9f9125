package container_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/go-connections/nat"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/boxtest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
	"github.com/seed-62bf7108/unwind/testrun"
)

// layersStage is a world that takes checkpoints as layers.
func layersStage(t testing.TB, state string) *stage {
	t.Helper()
	testrun.NeedRoot(t, "layers over containers")
	t.Cleanup(func() { containertest.RemoveLayers(t, state) })
	return newStageAt(t, container.Config{State: state})
}

// withSidecar is a layersStage whose sidecar runs: what can be asked of it is not asked of the
// engine.
func withSidecar(t testing.TB) *stage {
	t.Helper()
	s := layersStage(t, t.TempDir())
	require.NoError(t, s.world.Prepare(t.Context()))
	require.Eventually(t, func() bool { return container.HasSidecar(s.action) }, time.Minute, 10*time.Millisecond)
	return s
}

// did runs a command as a step, and returns its entry.
func (s *stage) did(t testing.TB, b *containertest.Box, command string) (activities.Entry, activities.Result) {
	t.Helper()
	e := s.layersEntry()
	r, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": command}), "")
	if failed, ok := errors.AsType[*activities.Error](err); ok {
		t.Log(failed.Output)
	}
	require.NoError(t, err)
	return e, r
}

// layersEntry is that of a new step: nothing of it stays in the engine.
func (s *stage) layersEntry() activities.Entry {
	return activities.Entry{
		Version: activities.EntryVersion, Seq: 1, Step: "it", Action: "container.exec", UndoType: "container.exec.undo",
		Token: activities.NewToken(containertest.Random(), "it", 1), Place: activities.Place{Journal: s.place},
	}
}

// undid undoes a step exactly.
func (s *stage) undid(t testing.TB, e activities.Entry) {
	t.Helper()
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome, "%+v", u)
}

// layersDir is where a sidecar on the engine at hand keeps the layers of a box.
func layersDir(t testing.TB, state string, b *containertest.Box) string {
	t.Helper()
	home, err := container.Home(state)
	require.NoError(t, err)
	volume, err := b.VolumeInspect(t.Context(), sidecar.Volume(home))
	require.NoError(t, err)
	return filepath.Join(volume.Mountpoint, b.ID)
}

func TestTheContainerStaysAndTheFilesAreExact(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	s, b := layersStage(t, state), containertest.Start(t)
	b.Run(t, "mkdir -p /srv; echo base >/srv/a; echo b >/srv/b")
	was, before := b.Inspect(t), containertest.Shows(t, b)
	first, did := s.did(t, b, "echo one >/srv/a; rm /srv/b; mkdir /srv/d")
	assert.NotContains(t, did.Outputs, "checkpoint", "a layer is no image")
	one := containertest.Shows(t, b)
	second, _ := s.did(t, b, "rm -r /srv")
	change, err := s.action.Plan(t.Context(), s.layersEntry(),
		step(t, map[string]any{"container": b.Name, "command": "touch /x"}))
	require.NoError(t, err)
	assert.Contains(t, strings.Join(change.Facts, "\n"), "layer over the container's root")
	assert.Contains(t, strings.Join(change.Facts, "\n"), "to rename a folder that lies below the layer fails with EXDEV")
	s.undid(t, second)
	assert.Equal(t, one, containertest.Shows(t, b))
	s.undid(t, first)
	assert.Equal(t, before, containertest.Shows(t, b))
	now := b.Inspect(t)
	assert.Equal(t, was.ID, now.ID)
	assert.Equal(t, was.State.Pid, now.State.Pid)
	assert.Equal(t, was.State.StartedAt, now.State.StartedAt)
	for _, e := range []activities.Entry{first, second} {
		require.NoError(t, s.action.Release(t.Context(), e))
	}
	assert.Equal(t, before, containertest.Shows(t, b))
}

// withNetwork gives a container an address, a published port and a variable.
func withNetwork(c *dockertypes.Config, host *dockertypes.HostConfig, _ *network.NetworkingConfig) {
	c.Env, c.ExposedPorts = []string{"COLOR=blue"}, nat.PortSet{"80/tcp": {}}
	host.NetworkMode, host.PortBindings = "bridge", nat.PortMap{"80/tcp": {{HostIP: "127.0.0.1"}}}
}

func TestWhatAgentsDoToAContainerIsTakenBackExactly(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t, withGNU(t), withNetwork)
	b.Run(t, `mkdir -p /srv/app/src /srv/out /var/lib/dpkg/info /var/lib/dpkg/updates /srv/p/DEBIAN /srv/p/usr/share/tool &&
touch /var/lib/dpkg/status /var/lib/dpkg/available && echo log >/srv/app/log && ln -s src /srv/app/current && ln /srv/app/log /srv/app/same &&
printf 'Package: tool\nVersion: 1\nArchitecture: all\nMaintainer: us\nDescription: a tool\n' >/srv/p/DEBIAN/control &&
echo data >/srv/p/usr/share/tool/data && dpkg-deb --build /srv/p /srv/tool.deb >/dev/null`)
	was := b.Inspect(t)
	for name, command := range map[string]string{
		"a package is installed": "dpkg --force-bad-path --install /srv/tool.deb && test -f /usr/share/tool/data && grep " +
			"-q tool /var/lib/dpkg/status",
		"whole trees go": "rm -r /srv/app /var/lib/dpkg",
		"folders are renamed": "mv /srv/app /srv/old && mkdir /srv/app && mv /srv/old/src /srv/app/source && mv " +
			"/var/lib /var/lob",
		"permissions change": "chmod -R 700 /srv && chmod 4755 /srv/app/log && chown -R 1234:4321 /srv/app && chown " +
			"-h 5:6 /srv/app/current",
		"a file stays open": "exec 3>>/srv/app/log; rm /srv/app/log; echo more >&3; setsid sh -c 'while :; do echo " +
			"more >&3; sleep 0.01; done' & sleep 0.2",
		"links lead elsewhere": "rm /srv/app/current; ln -s / /srv/app/current; rmdir /srv/app/src; ln -s " +
			"../../../../etc /srv/app/src; " +
			"echo x >/srv/app/src/new; echo x >/srv/app/current/srv/out/new; mv /srv/out /srv/in; ln -s /srv/in /srv/out; " +
			"echo y >/srv/out/newer",
		"twenty thousand files": "mkdir /srv/many && cd /srv/many && seq 20000 | split -l 1 -a 4 - f && test $(ls | wc " +
			"-l) = 20000",
	} {
		t.Run(name, func(t *testing.T) {
			testrun.Sampled(t)
			before := containertest.Shows(t, b)
			e, _ := s.did(t, b, command)
			require.NotEqual(t, before, containertest.Shows(t, b))
			u, err := s.action.Undo(t.Context(), e, activities.Decision{})
			require.NoError(t, err)
			require.Empty(t, u.Drift, "%+v", u)
			require.Equal(t, before, containertest.Shows(t, b))
		})
	}
	now := b.Inspect(t)
	assert.Equal(t, was.NetworkSettings, now.NetworkSettings)
	assert.Equal(t, was.Config, now.Config)
	assert.Equal(t, was.Name, now.Name)
	assert.Equal(t, was.State, now.State)
}

func TestAReadOnlyContainerAndAnotherUser(t *testing.T) {
	t.Parallel()
	s := layersStage(t, t.TempDir())
	b := containertest.Start(t, func(_ *dockertypes.Config, host *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		host.ReadonlyRootfs, host.Tmpfs = true, map[string]string{"/tmp": ""}
	})
	before := containertest.Shows(t, b)
	e := s.layersEntry()
	_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "echo x >/x"}), "")
	require.Equal(t, activities.Unsuccessful, activities.TypeOf(err))
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.True(t, u.Outcome.Clean(), "%+v", u)
	assert.Equal(t, before, containertest.Shows(t, b))

	b = containertest.Start(t, func(c *dockertypes.Config, _ *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		c.User = "1234:4321"
	})
	boxtest.At(t, b.Inspect(t).State.Pid).Inside(func() error {
		return errors.Join(os.Mkdir("/home", 0o755), os.Mkdir("/home/it", 0o755), os.Chown("/home/it", 1234, 4321))
	})
	before = containertest.Shows(t, b)
	first, _ := s.did(t, b, "echo x >/home/it/x")
	require.Contains(t, containertest.Shows(t, b), "/home/it/x")
	s.undid(t, first)
	assert.Equal(t, before, containertest.Shows(t, b))
}

func TestWhatIsOnNoLayerIsTold(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t)
	plain, _ := s.did(t, b, "echo plain >/srv-plain")
	e, said := s.did(t, b, "echo 10.0.0.1 db >>/etc/hosts; echo x >/dev/x")
	require.Contains(t, said.Notes, "the command has changed what no rollback takes back: + /dev/x; ~ /etc/hosts")
	change, err := s.action.Plan(t.Context(), s.entry(t),
		step(t, map[string]any{"container": b.Name, "command": "touch /a"}))
	require.NoError(t, err)
	require.Contains(t, change.Losses,
		"what the command writes to /etc/hosts, /etc/hostname, /etc/resolv.conf or files in /dev is not rolled back: the "+
			"engine mounts them; "+
			"devices and links in /dev come back")
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Residue, u.Outcome)
	assert.Contains(t, u.Observed, "not as before the step: 2 paths of "+b.Name)
	assert.Equal(t, []string{"+ /dev/x", "~ /etc/hosts"}, u.Losses[:2])
	u, err = s.action.Undo(t.Context(), plain, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Restored, u.Outcome, "what others have left is not of its making: %+v", u)
}

func TestACommandThatTakesTheDevicesAlongIsTakenBack(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t, withGNU(t))
	const lists = "ls -l --time-style=+ /dev /dev/pts"
	before, shows := saidBy(t, b, lists), containertest.Shows(t, b)
	e, said := s.did(t, b, "rm -rf --no-preserve-root / 2>&1; echo x >/dev/null; echo x >/dev/zero; true")
	assert.NotContains(t, strings.Join(said.Notes, "\n"), "what no rollback takes back")
	s.undid(t, e)
	assert.Equal(t, before, saidBy(t, b, lists))
	assert.Equal(t, shows, containertest.Shows(t, b))
}

func TestAContainerThatUsesItsFilesTakesDockerCommit(t *testing.T) {
	t.Parallel()
	s := layersStage(t, t.TempDir())
	b := containertest.Start(t, func(c *dockertypes.Config, _ *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		c.Entrypoint, c.Cmd = nil, []string{"sh", "-c", "while sleep 0.05; do cat /srv/say >/srv/said; done"}
	})
	b.Run(t, "mkdir -p /srv; echo one >/srv/say")
	with := step(t, map[string]any{"container": b.Name, "command": "echo two >/srv/say", "ignore": []string{"/srv/said"}})
	e := s.entry(t)
	change, err := s.action.Plan(t.Context(), e, with)
	require.NoError(t, err)
	facts := strings.Join(change.Facts, "\n")
	assert.Contains(t, facts, "by docker commit, not by a layer: process ")
	assert.Contains(t, facts, "has the container's own root")
	_, err = s.action.Apply(t.Context(), e, with, "")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return saidBy(t, b, "cat /srv/said") == "two\n" }, time.Minute,
		20*time.Millisecond, "it sees the change, and writes")
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	assert.Contains(t, u.Observed, "by docker commit, not by a layer: process ")
	require.Eventually(t, func() bool { return saidBy(t, b, "cat /srv/said") == "one\n" }, time.Minute,
		20*time.Millisecond)
}

func TestAnEditThatHidesItsTimeIsSeen(t *testing.T) {
	t.Parallel()
	s := withSidecar(t)
	b := containertest.Start(t, func(c *dockertypes.Config, _ *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		c.Entrypoint, c.Cmd = nil, []string{"sh", "-c", "sleep 100000 & exec sleep 100000"}
	})
	const then = 1_000_000_000
	b.Run(t, "mkdir -p /srv; echo one >/srv/f")
	inside := boxtest.At(t, b.Inspect(t).State.Pid)
	inside.Inside(func() error { return unix.Utimes("/srv/f", []unix.Timeval{{Sec: then}, {Sec: then}}) })
	e := s.entry(t)
	_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "echo it >/srv/it"}),
		"")
	require.NoError(t, err)
	inside.Inside(func() error {
		return errors.Join(os.WriteFile("/srv/f", []byte("two\n"), 0o600),
			unix.Utimes("/srv/f", []unix.Timeval{{Sec: then}, {Sec: then}}))
	})
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome, "%+v", u)
	assert.Equal(t, "~ /srv/f (content, 4 -> 4 bytes)\n", u.Drift.Diff)
}

// saidBy is what a command says, run beside all that is under test.
func saidBy(t testing.TB, b *containertest.Box, command string) string {
	t.Helper()
	b.Run(t, "{ "+command+" ; } >/dev/shm/says")
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(b.Inspect(t).State.Pid) + "/root/dev/shm/says")
	require.NoError(t, err)
	return string(raw)
}

func TestARecordIsUndoneByItsBackendWhateverTheConfigSays(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	b := containertest.Start(t)
	with, without := layersStage(t, state), newStage(t, state)
	b.Run(t, "mkdir -p /srv; echo base >/srv/a")
	before := containertest.Shows(t, b)
	inLayers, _ := with.did(t, b, "echo one >/srv/a")
	one := containertest.Shows(t, b)
	stays, _ := without.did(t, b, "echo two >/srv/a")
	assert.Empty(t, containertest.Checkpoints(t, stays.Token),
		"the engine knows nothing of the layers: so there are more of them")
	without.undid(t, stays)
	assert.Equal(t, one, containertest.Shows(t, b))
	without.undid(t, inLayers)
	assert.Equal(t, before, containertest.Shows(t, b))

	// And the other way round: a step by docker commit, and then one in layers.
	b = containertest.Start(t)
	b.Run(t, "mkdir -p /srv; echo base >/srv/a")
	before = containertest.Shows(t, b)
	byCommit := without.entry(t)
	_, err := without.action.Apply(t.Context(), byCommit,
		step(t, map[string]any{"container": b.Name, "command": "echo one >/srv/a"}), "")
	require.NoError(t, err)
	over, _ := with.did(t, b, "echo two >/srv/a")
	seen, err := with.action.Observe(t.Context(), byCommit)
	require.NoError(t, err)
	assert.Equal(t, activities.Elsewise, seen.State, "what is in layers is seen by those who know nothing of them")
	with.undid(t, over)
	u, err := with.action.Undo(t.Context(), byCommit, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	assert.Equal(t, "base\n", saidBy(t, b, "cat /srv/a"))
	require.NoError(t, with.action.Release(t.Context(), over))
	assert.NoDirExists(t, layersDir(t, state, b), "of a container that is no more")
	_ = before
}

func TestReleasedLayersAreWrittenIntoTheContainer(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	s, b := layersStage(t, state), containertest.Start(t)
	var entries []activities.Entry
	for _, command := range []string{"mkdir -p /srv; echo 1 >/srv/1", "cat /proc/1/stat >/dev/null; true",
		"echo 2 >/srv/2"} {
		e, _ := s.did(t, b, command)
		entries = append(entries, e)
	}
	left := containertest.Shows(t, b)
	for i, e := range entries {
		stat, err := os.Stat(layersDir(t, state, b))
		require.NoError(t, err, "%d", i)
		require.True(t, stat.IsDir())
		require.NoError(t, s.action.Release(t.Context(), e))
	}
	// The last exec may still have been on its way out: any release does it.
	require.Eventually(t, func() bool {
		require.NoError(t, s.action.Release(t.Context(), s.layersEntry()))
		mounts, err := os.ReadFile("/proc/" + strconv.Itoa(b.Inspect(t).State.Pid) + "/mountinfo")
		return err == nil && !strings.Contains(string(mounts), "unwind:")
	}, time.Minute, 20*time.Millisecond)
	assert.Equal(t, left, containertest.Shows(t, b))
	b.Restart(t)
	assert.Equal(t, "1\n2\n", saidBy(t, b, "cat /srv/1 /srv/2"))
}

func TestAContainerThatIsGoneTakesItsLayersAlong(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t)
	e, _ := s.did(t, b, "touch /x")
	require.NoError(t, b.ContainerRemove(t.Context(), b.ID, dockertypes.RemoveOptions{Force: true}))
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	_, err = s.action.Undo(t.Context(), e, activities.Decision{Force: u.Drift.Digest})
	assert.Equal(t, activities.DamagedRecord, activities.TypeOf(err))
	require.ErrorContains(t, err, "a reset makes it anew")
}

// An orphan has no task in which a person could take the world as it is.
func TestAnOrphanOfALostContainerIsSettled(t *testing.T) {
	t.Parallel()
	orphan := activities.Decision{Orphan: true}
	remove := func(t *testing.T, b *containertest.Box) {
		require.NoError(t, b.ContainerRemove(t.Context(), b.ID, dockertypes.RemoveOptions{Force: true}))
	}
	t.Run("removed", func(t *testing.T) {
		t.Parallel()
		s, b := layersStage(t, t.TempDir()), containertest.Start(t)
		one, _ := s.did(t, b, "touch /x")
		two, _ := s.did(t, b, "touch /y")
		remove(t, b)
		for _, e := range []activities.Entry{one, two} { // in whatever order
			u, err := s.action.Undo(t.Context(), e, orphan)
			require.NoError(t, err)
			assert.Equal(t, activities.Compensated, u.Outcome)
			assert.Contains(t, u.Observed,
				"has been removed, and with it the layers of the step: there is nothing to undo in it")
			assert.Equal(t, []string{"container " + b.Name + " is not made anew"}, u.Losses)
			require.NoError(t, s.action.Release(t.Context(), e))
		}
	})
	t.Run("another one has its name", func(t *testing.T) {
		t.Parallel()
		s, b := layersStage(t, t.TempDir()), containertest.Start(t)
		e, _ := s.did(t, b, "touch /x")
		remove(t, b)
		other := containertest.Start(t)
		require.NoError(t, other.ContainerRename(t.Context(), other.ID, b.Name))
		u, err := s.action.Undo(t.Context(), e, orphan)
		require.NoError(t, err)
		require.Equal(t, activities.Drifted, u.Outcome, "it may be the same by somebody's hand: a person decides")
		assert.Contains(t, u.Drift.Diff, other.ID[:12])
		u, err = s.action.Undo(t.Context(), e, activities.Decision{Orphan: true, Force: u.Drift.Digest})
		require.NoError(t, err)
		assert.Equal(t, activities.Compensated, u.Outcome)
		assert.Equal(t, other.ID, b.Inspect(t).ID)
		assert.True(t, b.Inspect(t).State.Running, "it is nothing of the step's")
	})
	t.Run("it has another name", func(t *testing.T) {
		t.Parallel()
		s, b := layersStage(t, t.TempDir()), containertest.Start(t)
		before := containertest.Shows(t, b)
		e, _ := s.did(t, b, "touch /x")
		require.NoError(t, b.ContainerRename(t.Context(), b.ID, b.Name+"-renamed"))
		u, err := s.action.Undo(t.Context(), e, orphan)
		require.NoError(t, err)
		assert.Equal(t, activities.Restored, u.Outcome)
		require.NoError(t, b.ContainerRename(t.Context(), b.ID, b.Name))
		assert.Equal(t, before, containertest.Shows(t, b))
	})
}

// A storage driver may refuse such a name, and the commit would be tried for ever.
func TestANameThatMarksADeletedFileIsRefusedAtTheStep(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t)
	before := containertest.Shows(t, b)
	e := s.layersEntry()
	_, err := s.action.Apply(t.Context(), e,
		step(t, map[string]any{"container": b.Name, "command": "mkdir /srv/d; touch /srv/d/.wh.x"}), "")
	require.Equal(t, activities.Unsuccessful, activities.TypeOf(err), "%v", err)
	require.ErrorContains(t, err, "/srv/d/.wh.x")
	require.ErrorContains(t, err, "give it another name")
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Restored, u.Outcome)
	assert.Equal(t, before, containertest.Shows(t, b))

	// what is ignored may have any name, and is not kept
	e, _ = s.did(t, b, "mkdir -p /tmp; touch /tmp/.wh.x; touch /srv/y")
	s.commit(t, e)
	assert.Contains(t, containertest.Shows(t, b), "/srv/y ")
	assert.NotContains(t, containertest.Shows(t, b), "/tmp/.wh.x")
}

func TestANameThatTheContainersFilesystemDoesNotTakeIsRefusedAtTheStep(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t)
	var fs unix.Statfs_t
	require.NoError(t, unix.Statfs(b.Inspect(t).GraphDriver.Data["MergedDir"], &fs))
	const long = 255
	name := strings.Repeat("n", long)
	ignored, _ := s.did(t, b, "mkdir -p /tmp /srv; touch /tmp/"+name)
	command := step(t, map[string]any{"container": b.Name, "command": "touch /srv/" + name})
	e := s.layersEntry()
	if _, err := s.action.Apply(t.Context(), e, command, ""); fs.Namelen < long {
		require.Equal(t, activities.Unsuccessful, activities.TypeOf(err), "%v", err)
		require.ErrorContains(t, err, "give it a shorter name")
		s.undid(t, e)
	} else {
		require.NoError(t, err)
	}
	s.commit(t, ignored, e)
	assert.Equal(t, fs.Namelen == long, strings.Contains(containertest.Shows(t, b), "/srv/"+name))
}

func TestWhatAnEarlierCommandLeftRunningEndsAndIsNamed(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t, withGNU(t))
	s.did(t, b, "(setsid sleep 500 >/dev/null 2>&1 &); echo x >/y")
	e, _ := s.did(t, b, "echo one >/x")
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Compensated, u.Outcome)
	assert.Equal(t, []string{"processes that commands have left in the container, this step's or others', are ended"},
		u.Losses)
	assert.Len(t, processes(t, b), 1)
}

// TestNothingLateChangesARestoredContainer stops the one process that can still act for a step at
// each moment of a command's life, undoes the step, and wakes it.
func TestNothingLateChangesARestoredContainer(t *testing.T) {
	t.Parallel()
	for moment, command := range map[string]string{
		"before it begins": "",
		"while it runs":    slow,
		"when a child goes on": "(setsid sh -c 'while true; do date >>/srv/count; sleep 0.02; done' >/dev/null 2>&1 &) ; " +
			slow,
	} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			state := t.TempDir()
			s, b := layersStage(t, state), containertest.Start(t, withGNU(t))
			before := containertest.Shows(t, b)
			e := s.layersEntry()
			failed := make(chan error, 1)
			go func() {
				with := step(t, map[string]any{"container": b.Name, "command": orSlow(command)})
				_, err := s.action.Apply(context.Background(), e, with, "")
				failed <- err
			}()
			supervisor := began(t, state, e.Token, 1)
			if command != "" {
				require.Eventually(t, func() bool { return strings.Contains(containertest.Shows(t, b), "/srv/count") }, time.Minute,
					10*time.Millisecond)
			}
			require.NoError(t, syscall.Kill(supervisor, syscall.SIGSTOP))
			s.undid(t, e)
			assert.Equal(t, before, containertest.Shows(t, b))
			assert.Len(t, processes(t, b), 1)
			next, _ := s.did(t, b, "echo next >/srv/a")
			left := containertest.Shows(t, b)
			require.NoError(t, syscall.Kill(supervisor, syscall.SIGCONT))
			assert.Equal(t, activities.Fenced, activities.TypeOf(<-failed), "it has waited for the supervisor's lock")
			assert.Equal(t, left, containertest.Shows(t, b))
			assert.Len(t, processes(t, b), 1)
			seen, err := s.action.Observe(t.Context(), next)
			require.NoError(t, err)
			assert.Equal(t, activities.AsLeft, seen.State)
		})
	}
}

// withGNU makes a container of this machine's own programs.
func withGNU(t testing.TB) func(*dockertypes.Config, *dockertypes.HostConfig, *network.NetworkingConfig) {
	return func(c *dockertypes.Config, _ *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		c.Image, c.Cmd = containertest.UserlandImage(t), []string{"sleep", "600"}
	}
}

func orSlow(command string) string {
	if command == "" {
		return slow
	}
	return command
}

func TestAManifestIsTheSameWhoeverReadsIt(t *testing.T) {
	t.Parallel()
	s, b := withSidecar(t), containertest.Start(t)
	export := newStageAt(t, container.Config{State: t.TempDir(), Layers: container.LayersNever})
	b.Run(t, "mkdir -p /srv/d; echo base >/srv/a")
	boxtest.At(t, b.Inspect(t).State.Pid).Inside(func() error {
		return errors.Join(
			unix.Link("/srv/a", "/srv/b"), unix.Symlink("a", "/srv/l"), unix.Mkfifo("/srv/p", 0o640),
			unix.Chmod("/srv/b", 0o4755),
			unix.Mknod("/srv/dev", unix.S_IFBLK|0o600, int(unix.Mkdev(7, 9))), unix.Lchown("/srv/l", 12, 34),
			unix.Setxattr("/srv/a", "security.capability", []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
				0),
			unix.UtimesNano("/srv/d", []unix.Timespec{{Sec: 1e9, Nsec: 5}, {Sec: 1e9, Nsec: 987654321}}),
		)
	})
	plain, err := container.ManifestOf(t.Context(), export.action, b.ID)
	require.NoError(t, err)
	by, err := container.ManifestOf(t.Context(), s.action, b.ID)
	require.NoError(t, err)
	assert.Equal(t, plain, by, "by a helper, without layers")
	s.did(t, b, "touch /tmp/x")
	over, err := container.ManifestOf(t.Context(), s.action, b.ID)
	require.NoError(t, err)
	assert.Equal(t, plain, over, "by a helper, with layers")
	assert.Contains(t, plain, `"path":"/srv/p"`)
}

func TestWhatWasPutAsideComesBackWithItsLayers(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t)
	first, _ := s.did(t, b, "mkdir -p /srv; echo one >/srv/a")
	e := s.layersEntry()
	e.Action, e.UndoType = "container.replace", "container.replace.undo"
	image := b.Inspect(t).Config.Image
	_, err := s.replace.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "image": image}), "")
	require.NoError(t, err)
	require.NotEqual(t, b.ID, b.Inspect(t).ID)
	u, err := s.replace.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.NotEqual(t, activities.Drifted, u.Outcome)
	require.Equal(t, b.ID, b.Inspect(t).ID)
	assert.Equal(t, "one\n", saidBy(t, b, "cat /srv/a"))
	require.NoError(t, s.replace.Release(t.Context(), e))
	s.undid(t, first)
}

func TestWhatIsMountedInAContainerIsNamedInPlanAndReport(t *testing.T) {
	t.Parallel()
	s, folder := layersStage(t, t.TempDir()), t.TempDir()
	volume := "unwind-test-" + containertest.Random()
	outlives := containertest.Docker(containertest.Outliving(t))
	t.Cleanup(func() { require.NoError(t, outlives.VolumeRemove(context.Background(), volume, true)) })
	b := containertest.Start(t, func(_ *dockertypes.Config, h *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		h.Binds = []string{volume + ":/data", folder + ":/bound"}
		h.Tmpfs = map[string]string{"/scratch": ""}
	})
	with := step(t, map[string]any{"container": b.Name, "command": "touch /data/x /bound/x /scratch/x /x"})
	e := s.layersEntry()
	plan, err := s.action.Plan(t.Context(), e, with)
	require.NoError(t, err)
	_, err = s.action.Apply(t.Context(), e, with, plan.Digest)
	require.NoError(t, err)
	undone, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	for _, said := range [][]string{plan.Losses, undone.Losses} {
		for _, at := range []string{"/data", "/bound", "/scratch"} {
			assert.Contains(t, strings.Join(said, "\n"), at)
		}
	}
	assert.Equal(t, "no\n", saidBy(t, b, "[ -e /x ] && echo yes || echo no"))
	assert.FileExists(t, filepath.Join(folder, "x"), "it says so, and it is so")
}

// git refuses a link that shows another inode number than its original.
func TestARepositoryThatAStepHasMadeIsClonedByTheNext(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t, withGNU(t))
	s.did(t, b, "ln -s git /usr/bin/git-upload-pack; git init -q /srv/a && cd /srv/a && git -c user.name=a -c "+
		"user.email=a@b commit -q --allow-empty -m one")
	_, r := s.did(t, b, "git clone -q /srv/a /srv/b && git -C /srv/b log --format=%s")
	assert.Equal(t, "one\n", r.Outputs["stdout"])
}

// TestWhatOnlyReadsHasACheckpointToo: a layer costs less than a proof may overlook.
func TestWhatOnlyReadsHasACheckpointToo(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t)
	b.Run(t, "echo one >/a")
	before := containertest.Shows(t, b)
	with := step(t, map[string]any{"container": b.Name, "command": "cat /a"})
	plan, err := s.action.Plan(t.Context(), s.layersEntry(), with)
	require.NoError(t, err)
	assert.Equal(t, activities.Snapshot, plan.Strategy)
	var entries []activities.Entry
	for range 3 {
		e, r := s.did(t, b, "cat /a")
		assert.Equal(t, "one\n", r.Outputs["stdout"])
		assert.Equal(t, "layers", r.Outputs["kept_by"])
		assert.Equal(t, false, r.Outputs["changed"])
		entries = append(entries, e)
	}
	for _, e := range slices.Backward(entries) {
		s.undid(t, e)
		assert.Equal(t, before, containertest.Shows(t, b))
	}
}
