package stack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/boxtest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
	"github.com/seed-62bf7108/unwind/internal/filetree"
)

func TestWhatEntersStandsInTheTop(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	require.NoError(t, Probe(b.layers))
	require.NoError(t, b.CheckFit(b.survey(t)))
	n, err := b.CheckIdle(b.survey(t))
	require.NoError(t, err)
	require.Zero(t, n)
	b.Do("echo base >/srv/a; mkdir -m 1750 /srv/d; chmod 711 /")
	before := b.Files()

	b.show(t, 1)
	assert.Equal(t, before, b.Files())
	b.Do("echo one >/srv/a; rm -r /srv/d; mkdir /srv/d; touch /srv/d/x; mv /srv/a /srv/z; echo y >/tmp/y; echo s " +
		">/dev/shm/s")
	one := b.Files()
	b.show(t, 2, 1)
	assert.Equal(t, one, b.Files())
	b.Do("echo two >/srv/z; rm -r /srv/d; chmod 700 /")
	require.NotEqual(t, one, b.Files())

	b.show(t, 3, 1)
	assert.Equal(t, one, b.Files(), "without layer 2")
	b.show(t, 4)
	assert.Equal(t, before, b.Files(), "without any layer")
	require.Len(t, b.survey(t).Tops, 1, "one top stands at a time")
	assert.Equal(t, "s\n", b.Do("cat /dev/shm/s"), "the engine's mounts are the same in each")
	require.NoError(t, b.RemoveTop())
	assert.Equal(t, before, b.Files())
	require.Error(t, b.RemoveTop(), "the container's own root stays")
	assert.Equal(t, before, b.Files())
}

func TestNoLayersOverMountsThatPropagate(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.Do("mkdir /srv/disk")
	b.Inside(func() error {
		return errors.Join(unix.Mount("none", "/srv/disk", "tmpfs", 0, ""),
			unix.Mount("", "/srv/disk", "", unix.MS_SHARED, ""))
	})
	err := b.CheckFit(b.survey(t))
	require.True(t, IsUnfit(err))
	require.ErrorContains(t, err, "mounts at /srv/disk in the container propagate to other namespaces")
}

func TestTheDoorIsShownAndCannotBeWritten(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.show(t, 1)
	door := b.view(1).Door
	require.NoError(t, os.Symlink("/srv", filepath.Join(door, "w")))
	assert.Equal(t, "/srv\n", b.Do("cd "+Doorway+"/w && pwd -P"))
	assert.Error(t, b.Command("touch "+Doorway+"/x").Run())
	require.NoError(t, b.RemoveTop())
	assert.Error(t, b.Command("cd "+Doorway+"/w").Run())
	b.show(t, 2)
	b.show(t, 3)
	mounts := b.Do("wc -l </proc/self/mountinfo")
	b.show(t, 4)
	assert.Equal(t, mounts, b.Do("wc -l </proc/self/mountinfo"), "a change leaves no mounts behind")
}

func TestAChangeThatWasCutShortIsFinished(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change topSwitch
		half   int
		tops   int
		shows  string
	}{
		"slipped beneath":             {(*Target).mountBeneath, 1, 2, "3"},
		"at the doorway":              {(*Target).pivotRoot, 1, 1, "2"},
		"pivoted":                     {(*Target).pivotRoot, 2, 1, "3"},
		"half taken off":              {(*Target).mountBeneath, 2, 2, "3"},
		"half taken off when pivoted": {(*Target).pivotRoot, 3, 1, "3"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			b.show(t, 1)
			b.Do("echo one >/srv/a")
			one := b.Files()
			b.show(t, 2, 1)
			b.Do("echo two >/srv/a")
			two := b.Files()
			require.NoError(t, layer.Make(b.layers, 3))
			s := b.survey(t)
			cut, halves := make(chan struct{}), 0
			half := func() {
				if halves++; halves == c.half {
					close(cut)
					select {} // the thread stops for ever, as when its process is killed
				}
			}
			go func() {
				_ = onThread(func() error {
					_, _, err := b.Target.show(s, b.view(3, 1), c.change, atOnce, half)
					return err
				})
			}()
			<-cut
			switch name {
			case "slipped beneath", "at the doorway":
				assert.Equal(t, "two\n", b.Do("cat /srv/a"), "the old top shows until it is taken off")
			case "pivoted", "half taken off when pivoted":
				assert.Equal(t, "one\n", b.Do("cat /srv/a /proc/self/comm | head -n 1"), "the new top shows")
			}
			_, _, err := b.Show(b.survey(t), b.view(3, 1), false, atOnce)
			require.Error(t, err)
			require.Len(t, b.survey(t).Tops, c.tops)
			require.NoError(t, b.FinishShow())
			assert.Equal(t, "box:"+c.shows, b.top(t).Name)
			assert.Equal(t, map[string]string{"2": two, "3": one}[c.shows], b.Files())
			b.show(t, 4, 1)
			assert.Equal(t, one, b.Files())
		})
	}
}

func TestWhoEntersWhileTheTopsChangeFindsAWholeContainer(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.show(t, 1)
	b.Do("echo one >/srv/a")
	require.NoError(t, layer.Make(b.layers, 2))
	s, enters := b.survey(t), 0
	half := func() { // the thread that changes the tops waits meanwhile
		enters++
		entered := make(chan struct{})
		go func() {
			defer close(entered)
			command := "cat /srv/a /proc/self/comm && ls -A /dev/shm && echo x >/srv/" + strconv.Itoa(enters)
			out, err := b.Command(command).CombinedOutput()
			assert.NoError(t, err)
			assert.Equal(t, "one\ncat\n", string(out))
		}()
		<-entered
	}
	require.NoError(t, onThread(func() error {
		_, _, err := b.Target.show(s, b.view(2, 1), (*Target).pivotRoot, atOnce, half)
		return err
	}))
	assert.Equal(t, 3, enters)
	assert.NoFileExists(t, filepath.Join(layer.Content(b.layers, 2), "srv/1"),
		"who enters before the change writes to the old one")
	assert.Equal(t, "1\n2\n3\na\n", b.Do("ls /srv"), "and nothing of it is lost")
}

func TestWhoStandsInATopThatIsSetAsideStaysThere(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	base := b.Files()
	b.show(t, 1)
	b.Do("echo one >/srv/a")
	said, ended := b.Start(
		"echo x; while [ ! -e /dev/shm/go ]; do sleep 0.01; done; cat /srv/a; echo two >/srv/b; cat /proc/self/comm")
	require.NoError(t, b.MoveTopAside())
	assert.Equal(t, base, b.Files(), "the container's own root shows")
	s := b.survey(t)
	require.Empty(t, s.Tops)
	require.NotNil(t, s.Aside)
	assert.False(t, s.InterruptedShow())
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	gone, err := b.WaitUnused(soon, *s.Aside)
	require.NoError(t, err)
	assert.False(t, gone)
	b.Do("touch /dev/shm/go")
	assert.Equal(t, "one", said())
	assert.Equal(t, "cat", said())
	require.NoError(t, ended())
	gone, err = b.WaitUnused(t.Context(), *s.Aside)
	require.NoError(t, err)
	assert.True(t, gone)
	assert.FileExists(t, filepath.Join(layer.Content(b.layers, 1), "srv/b"))
	require.NoError(t, b.RemoveAside())
	assert.Nil(t, b.survey(t).Aside)
	require.Error(t, b.MoveTopAside(), "there is no top")
	b.show(t, 2, 1)
	assert.Equal(t, "two\n", b.Do("cat /srv/b"))
}

func TestABaseThatBearsNoOverlayIsUnfit(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	require.NoError(t, b.TryOverlay(filepath.Join(b.layers, "try")))
	b = boxOf(t, boxtest.Deep(t))
	require.NoError(t, b.CheckFit(b.survey(t)), "nothing else tells")
	err := b.TryOverlay(filepath.Join(b.layers, "try"))
	assert.True(t, IsUnfit(err))
	require.ErrorContains(t, err, "no overlay can be mounted over the container's own root")
}

func TestWhoEntersMeanwhileIsCarriedOver(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.show(t, 1)
	b.Do("echo one >/srv/a")
	said, _ := b.Start("echo x; while [ ! -e /srv/go ]; do sleep 0.01; done; echo new >/srv/b; cat /srv/a; sleep 100")
	old := b.top(t)
	require.NoError(t, layer.Make(b.layers, 2))
	_, vacant, err := b.Show(b.survey(t), b.view(2, 1), true, atOnce)
	require.NoError(t, err)
	assert.True(t, vacant || b.users(t, old) == 0) // another box's top may have the old one's number by now
	b.Do("touch /srv/go")
	assert.Equal(t, "one", said())
	changes, err := layer.Changes(b.layers, []int{2}, func(string) bool { return false })
	require.NoError(t, err)
	assert.Len(t, changes, 3, "%v", changes)
	assert.NoFileExists(t, filepath.Join(layer.Content(b.layers, 1), "srv/b"))
}

func TestEndKillsWhoStandsInTheTopAndNobodyElse(t *testing.T) {
	t.Parallel()
	for _, end := range []func(*Target, context.Context, Top) error{
		(*Target).EndUsers,
		(*Target).EndHiddenUsers, // also where the kernel was wrong, for what has mounts of its own
	} {
		b := newBox(t)
		_, base := b.Start("echo base; read x")
		b.show(t, 1)
		_, stays := b.Start("cd /dev/shm; echo stands; sleep 1000")
		_, holds := b.Start("exec 9>/srv/held; mkdir -p /dev/shm/usr; echo x; exec sleep 1000")
		top := b.top(t)
		assert.GreaterOrEqual(t, b.users(t, top), 2)
		b.show(t, 2)
		_, newer := b.Start("echo newer; sleep 1000")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, end(b.Target, ctx, top))
		require.Error(t, stays())
		require.Error(t, holds())
		assert.NotZero(t, b.users(t, b.top(t)), "what stands in the new top lives")
		_, _ = base, newer
		assert.Equal(t, "x\n", b.Do("echo x"), "the container runs on")
	}
}

func TestTheKernelTellsWhetherATopIsVacant(t *testing.T) {
	t.Parallel()
	const inside, beside = "-p", "-m" // a process of the container, or of the host
	for what, c := range map[string]struct {
		as, command    string
		slips, carried bool
	}{
		"nobody":                   {"", "", true, true},
		"who stands there":         {inside, "echo x; read x", false, true},
		"who stands in a mount":    {inside, "cd /dev/shm; echo x; read x", false, true},
		"a working directory":      {inside, "cd /srv/d; echo x; read x", false, false},
		"an open file":             {inside, "exec 9</srv/d/f; echo x; read x", false, false},
		"the host has a directory": {beside, "cd /srv/d; echo x; read x", false, false},
		"an open file of the host": {beside, "exec 9</srv/d/f; echo x; read x", false, false},
		"the host stands there":    {beside, "echo x; read x", false, true},
	} {
		for carry, is := range map[bool]bool{false: c.slips, true: c.carried} {
			t.Run(fmt.Sprintf("%s carried %v", what, carry), func(t *testing.T) {
				b := newBox(t)
				b.show(t, 1)
				b.Do("mkdir /srv/d; echo x >/srv/d/f")
				b.show(t, 2, 1)
				if c.command != "" {
					enters := exec.Command("nsenter", "-t", strconv.Itoa(b.PID), "-m", c.as, "/usr/bin/sh", "-c", c.command)
					_, err := enters.StdinPipe() // nobody writes there
					require.NoError(t, err)
					out, err := enters.StdoutPipe()
					require.NoError(t, err)
					require.NoError(t, enters.Start())
					t.Cleanup(func() { _ = enters.Process.Kill() })
					_, err = bufio.NewReader(out).ReadString('\n')
					require.NoError(t, err)
				}
				n, vacant, old := 2, false, Top{}
				for n < 12 && !vacant { // others look at the processes too, and are in the top while they do
					n++
					old = b.top(t)
					require.NoError(t, layer.Make(b.layers, n))
					var err error
					_, vacant, err = b.Show(b.survey(t), b.view(n, 1, 2), carry, atOnce)
					require.NoError(t, err)
					if !is {
						break
					}
				}
				assert.Equal(t, is, vacant)
				if !vacant && what != "an open file of the host" { // it is not looked for
					assert.NotZero(t, b.users(t, old), "a look at every process says the same")
				}
			})
		}
	}
}

func TestABusyBaseIsUnfit(t *testing.T) {
	t.Parallel()
	b := boxOf(t, boxtest.New(t, "/usr/bin/timeout 600 sleep 600"))
	_, err := b.CheckIdle(b.survey(t))
	require.ErrorContains(t, err, "has the container's own root")
	assert.True(t, IsUnfit(err))
	b = newBox(t)
	b.Start("exec 3>/srv/log; echo x; exec sleep 500")
	_, err = b.CheckIdle(b.survey(t))
	require.ErrorContains(t, err, "/srv/log")
}

func TestSomethingElseOverTheRootIsUnfit(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.Do("mount -t tmpfs none /")
	_, err := b.Survey()
	assert.True(t, IsUnfit(err))
}

func TestMergedLayersShowTheSame(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.ForEverything()
	b.Do("mkdir -p /srv/o /srv/k/l; touch /srv/o/1 /srv/k/l/m /srv/gone")
	b.show(t, 1)
	b.ChangeEverything()
	b.show(t, 2, 1)
	b.Do("cd /srv; rm -r o gone k; touch gone; echo x >>sparse; chmod 700 d; rm e/y")
	b.show(t, 3, 1, 2)
	b.Do("cd /srv; rm gone; mkdir o k; touch k/n; chown 5:6 d; mv hard moved; rm -r e; touch e; touch -d @5 /")
	b.show(t, 4, 1, 2, 3)
	want := b.Files()
	links := regexp.MustCompile(` \d+ links, as \S+`)
	for share, shown := range map[bool]func(string) string{
		true:  func(files string) string { return links.ReplaceAllString(files, "") },
		false: func(files string) string { return files },
	} {
		for range 2 {
			require.NoError(t, layer.Merge(b.layers, []int{1, 2}, 5, share))
			require.NoError(t, layer.Merge(b.layers, []int{5, 3}, 6, share))
		}
		b.show(t, 9, 5, 3)
		assert.Equal(t, shown(want), shown(b.Files()))
		b.show(t, 8, 6)
		assert.Equal(t, links.ReplaceAllString(want, ""), links.ReplaceAllString(b.Files(), ""),
			"what has lost a name tells of it now")
	}
}

func TestFlattenIsExactAndCanBeDoneAgain(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.ForEverything()
	b.show(t, 1)
	b.ChangeEverything()
	b.show(t, 2, 1)
	b.Do("cd /srv; rm -r c; echo again >c; rm out; mkdir out; echo in >out/sh; chmod 4755 out/sh; touch -d @1.123456789 .")
	want := b.Files()
	b.show(t, 3, 1, 2)
	assert.Equal(t, want, b.Files())
	for range 2 {
		require.NoError(t, b.Base().Flatten(b.layers, []int{1, 2}, func(string) bool { return false }))
	}
	require.NoError(t, b.RemoveTop())
	assert.Equal(t, want, b.Files())
}

func TestCopyIsExact(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.ForEverything()
	b.show(t, 1)
	b.ChangeEverything()
	b.show(t, 4, 1) // an overlay forgets that a file which it has copied up has two names, until it is made anew
	want := b.Files()
	require.NoError(t, layer.Make(b.layers, 2))
	for range 2 {
		require.NoError(t, filetree.CopyTo(layer.Content(b.layers, 1), layer.Content(b.layers, 2), nil))
	}
	b.show(t, 3, 2)
	assert.Equal(t, want, b.Files())
}

func TestChangesAreThoseOfAllLayers(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.Do("cd /srv; mkdir a b; echo x >a/x; echo y >b/y; echo z >z")
	paths := func(layers ...int) (all []string) {
		changes, err := layer.Changes(b.layers, layers, func(at string) bool { return at == "/tmp" })
		require.NoError(t, err)
		for _, c := range changes {
			all = append(all, string(c.Kind)+c.Path)
		}
		return all
	}
	untouched := func(v View) bool {
		clean, err := b.Untouched(v)
		require.NoError(t, err)
		return clean
	}
	b.show(t, 1)
	assert.True(t, untouched(b.view(1)))
	assert.Empty(t, paths(1))
	b.Do("cd /srv; cat z; rm z; rm -r b; mkdir b; echo 2 >b/2; echo t >/tmp/t; ln -s z l")
	assert.False(t, untouched(b.view(1)))
	assert.Equal(t, []string{"d/srv", "o/srv/b", "f/srv/b/2", "l/srv/l", "x/srv/z"}, paths(1))
	b.show(t, 2, 1)
	b.Do("cd /srv; rm -r b; mkdir z; touch z/1; echo new >>a/x")
	assert.Equal(t, []string{"d/srv", "d/srv/a", "f/srv/a/x", "x/srv/b", "l/srv/l", "o/srv/z", "f/srv/z/1"}, paths(1, 2))
	b.show(t, 3, 1, 2)
	assert.True(t, untouched(b.view(3, 1, 2)))
	b.Do("chmod 700 /")
	assert.False(t, untouched(b.view(3, 1, 2)), "a change of the root alone counts")
}

func TestAContainerThatHasEndedIsSaid(t *testing.T) {
	t.Parallel()
	_, err := Open(1 << 30)
	require.ErrorIs(t, err, unix.ENOENT)
	b := newBox(t)
	before := b.survey(t)
	require.NoError(t, unix.Kill(b.PID, unix.SIGKILL))
	require.Eventually(t, func() bool {
		_, err := b.Survey()
		return err != nil
	}, 60e9, 5e6)
	_, _, err = b.Show(before, b.view(1), false, atOnce)
	require.Error(t, err)
}

func TestNoTopIsReadOnlyForWantOfRoom(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	disk := filepath.Join(b.Dir, "disk")
	require.NoError(t, os.Mkdir(disk, 0o755))
	boxtest.Disk(t, disk, 16, 500)
	b.layers = filepath.Join(disk, "layers")
	require.NoError(t, layer.Make(b.layers, 1))
	boxtest.Fill(t, filepath.Join(disk, "fill"), 0)
	_, _, err := b.Show(b.survey(t), b.view(1), false, atOnce)
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, "the overlay would be read-only")
	for leaves := range 20 {
		require.NoError(t, os.RemoveAll(filepath.Join(disk, "fill")))
		boxtest.Fill(t, filepath.Join(disk, "fill"), leaves)
		require.False(t, IsUnfit(Probe(b.layers)), "that the disk is full says nothing of the host")
	}
	require.NoError(t, os.RemoveAll(filepath.Join(disk, "fill")))
	syncDisk(t, disk) // until then ext4 counts what was removed as taken
	b.show(t, 1)
	b.Do("touch /srv/x")
}

func syncDisk(t *testing.T, dir string) {
	t.Helper()
	d, err := os.Open(dir)
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, unix.Syncfs(int(d.Fd())))
}

// TestFormerTopsAreLetGoTogether is alone: all tops of this process linger in one place.
func TestFormerTopsAreLetGoTogether(t *testing.T) {
	count := func() int {
		openFormerTops.mu.Lock()
		defer openFormerTops.mu.Unlock()
		return len(openFormerTops.fds)
	}
	b := newBox(t)
	CloseFormerTops()
	for n := range 3 {
		b.show(t, n+1)
	}
	require.NoError(t, layer.Make(b.layers, 4))
	_, _, err := b.Show(b.survey(t), b.view(4, 1, 2, 3), true, atOnce)
	require.NoError(t, err)
	assert.Equal(t, 3, count(), "that of a checkpoint too, where the thread is in the container")
	CloseFormerTops()
	assert.Zero(t, count())

	// Where layers are removed, those that are added in the same moment go with the others.
	roomy := openAgain(t)
	for range 2 {
		openFormerTops.add(openAgain(t), roomy)
		CloseFormerTopsSoon(b.layers)
	}
	require.Eventually(t, func() bool { return count() == 0 }, lingerTime/2, time.Millisecond)

	disk := filepath.Join(b.Dir, "disk")
	require.NoError(t, os.Mkdir(disk, 0o755))
	boxtest.Disk(t, disk, 64, 1000)
	b.layers = filepath.Join(disk, "layers")
	for n := range 3 {
		b.show(t, n+5)
	}
	assert.Zero(t, count(), "a small disk needs its room")
	openFormerTops.add(openAgain(t), roomy)
	CloseFormerTopsSoon(b.layers)
	assert.Zero(t, count(), "and does not wait for it")
	for range mostLingering {
		openFormerTops.add(openAgain(t), roomy)
	}
	require.NoError(t, unix.Close(roomy))
	require.Eventually(t, func() bool { return count() == 0 }, time.Minute, time.Millisecond,
		"nor are there more than so many")
}

func openAgain(t *testing.T) int {
	t.Helper()
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	return fd
}
