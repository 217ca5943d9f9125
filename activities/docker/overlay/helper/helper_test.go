package helper

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/boxtest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/stack"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestMain(m *testing.M) {
	boxtest.Main()
	Attend()
	os.Exit(m.Run())
}

const boxID = "b0c5b0c5b0c5"

// kept is a box with a helper in this process.
type kept struct {
	*boxtest.Box
	*stacks
	t *testing.T
}

func newKept(t *testing.T) *kept {
	t.Helper()
	return keepIn(t, boxtest.New(t, boxtest.Sleeps))
}

func keepIn(t *testing.T, b *boxtest.Box) *kept {
	t.Helper()
	s := &stacks{dir: filepath.Join(b.Dir, "stacks"), patience: 20 * time.Second, starting: time.Minute,
		leaving: 50 * time.Millisecond, owns: func(int, string) bool { return true }}
	require.NoError(t, os.Mkdir(s.dir, 0o700))
	return &kept{b, s, t}
}

func (k *kept) ask(op Op, edit ...func(*Request)) (Answer, error) {
	r := Request{Op: op, Container: boxID, PID: k.PID}
	for _, e := range edit {
		e(&r)
	}
	a, err := k.answer(k.t.Context(), r)
	if f := asFailure(err); f != nil {
		return a, f
	}
	return a, nil
}

func (k *kept) book() *book {
	k.t.Helper()
	b, err := readBook(filepath.Join(k.dir, boxID), boxID)
	require.NoError(k.t, err)
	return b
}

// rewrite makes a book, which may be of before, the newest.
func (k *kept) rewrite(b *book) {
	k.t.Helper()
	b.on = k.book().on
	require.NoError(k.t, b.write(filepath.Join(k.dir, boxID), false))
}

// lift takes the top off, as a restart of the container does.
func (k *kept) lift() {
	k.t.Helper()
	require.NoError(k.t, k.at().RemoveTop())
}

// at is the box as a helper opens it.
func (k *kept) at() *stack.Target {
	k.t.Helper()
	at, err := stack.Open(k.PID)
	require.NoError(k.t, err)
	k.t.Cleanup(at.Close)
	return at
}

func (k *kept) must(op Op, edit ...func(*Request)) Answer {
	k.t.Helper()
	a, err := k.ask(op, edit...)
	require.NoError(k.t, err, "%s", op)
	return a
}

func name(n string) func(*Request)    { return func(r *Request) { r.Name, r.Names = n, []string{n} } }
func turn(n string) func(*Request)    { return func(r *Request) { r.Turn = n } }
func keep(n string) func(*Request)    { return func(r *Request) { r.Keep = n } }
func stopped(r *Request)              { r.PID = 0 }
func again(r *Request)                { r.Door = r.Name }
func workdir(w string) func(*Request) { return func(r *Request) { r.Workdir = w } }

func (k *kept) layersOnDisk() int {
	k.t.Helper()
	names, err := os.ReadDir(filepath.Join(k.dir, boxID))
	require.NoError(k.t, err)
	n := 0
	for _, name := range names {
		if _, err := strconv.Atoi(name.Name()); err == nil {
			n++
		}
	}
	return n
}

func TestCheckpointsAndRollbacksAreExact(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.must(Probe)
	k.ForEverything()
	was := []string{k.Files()}
	for i, command := range []string{"echo 1 >/srv/1", "", "mv /srv/a /srv/b", "rm -r /srv/*"} {
		k.must(Take, name(strconv.Itoa(i)))
		require.Equal(t, was[i], k.Files())
		k.must(Take, name(strconv.Itoa(i)))
		if command == "" {
			k.ChangeEverything()
		} else {
			k.Do(command)
		}
		was = append(was, k.Files())
	}
	back := func(n, turn string, with ...func(*Request)) {
		k.must(Restore, append(with, name(n), func(r *Request) { r.Turn = turn })...)
	}
	back("3", "undo", keep("kept"))
	assert.Equal(t, was[3], k.Files())
	assert.True(t, k.must(Restored, name("3"), turn("undo")).Yes)
	back("1", "undo")
	assert.Equal(t, was[1], k.Files())
	back("kept", "redo")
	assert.Equal(t, was[4], k.Files())
	back("0", "undo")
	assert.Equal(t, was[0], k.Files())
	k.Do("echo after >/srv/after")
	back("0", "undo")
	assert.NotEqual(t, was[0], k.Files(), "a turn is done once")
	back("2", "undo")
	assert.Equal(t, was[2], k.Files(), "forward, to a checkpoint that is above")

	for _, n := range []string{"0", "1", "2", "3", "kept"} {
		k.must(Drop, name(n), stopped)
	}
	k.must(Commit)
	assert.Equal(t, was[2], k.Files())
	assert.False(t, k.must(Stacked).Yes)
	assert.Zero(t, k.layersOnDisk())
	_, err := k.ask(Restore, name("0"), turn("late"))
	assert.Equal(t, Unknown, KindOf(err))
}

func TestManyLayersAreMergedAndEachCheckpointStays(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	const many = 2*mostLower + 10
	count := func() string { return strings.TrimSpace(k.Do("ls /srv | grep -c ^f || true")) }
	for i := range many {
		k.must(Take, name(strconv.Itoa(i)))
		// As a command would, but for starting one.
		book := k.book()
		require.LessOrEqual(t, len(book.lowerToMount(book.Lower)), mostLower)
		k.Inside(func() error {
			if i > 0 && i%10 == 0 {
				if err := os.Remove("/srv/f" + strconv.Itoa(i-5)); err != nil {
					return err
				}
			}
			return os.WriteFile("/srv/f"+strconv.Itoa(i), []byte{byte(i)}, 0o600)
		})
	}
	expect := func(n int) string { return strconv.Itoa(n - max(0, n-1)/10) }
	assert.Equal(t, expect(many), count())
	for _, n := range []int{many - 1, many - leastLower - 2, mostLower + 1, 7, many - 3, 0} {
		k.must(Restore, name(strconv.Itoa(n)), turn("undo"))
		assert.Equal(t, expect(n), count(), "checkpoint %d", n)
	}
	var all []string
	for i := range many {
		all = append(all, strconv.Itoa(i))
	}
	k.must(Restore, name(strconv.Itoa(many-1)), turn("again"))
	k.must(Drop, func(r *Request) { r.Names = all })
	k.must(Commit)
	assert.Equal(t, expect(many-1), count())
	assert.Zero(t, k.layersOnDisk())
}

func TestReadersCostNoLayer(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	for i := range 5 {
		k.must(Take, name(strconv.Itoa(i)))
		k.Do("cat /proc/self/status >/dev/null; ls -l /srv")
	}
	assert.Equal(t, 1, k.layersOnDisk())
	k.Do("touch /srv/x")
	k.must(Take, name("x"))
	assert.Equal(t, 2, k.layersOnDisk())
	k.must(Restore, name("0"), turn("undo"))
	assert.NotContains(t, k.Files(), "/srv/x")
}

func TestTheDoorOpensForTheStepThatIsThere(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	opens := func(path string) bool { return k.Command("cd "+path+" && test $(pwd -P) = /srv").Run() == nil }
	k.must(Take, name("one"))
	one := k.must(Enter, name("one"), workdir("/srv")).Path
	assert.True(t, opens(one))
	k.Do("touch /srv/1")
	k.must(Restore, name("one"), turn("attempt-2"), again)
	assert.False(t, opens(one), "a command of the first attempt comes too late")
	second := k.must(Enter, name("one"), workdir("/srv")).Path
	assert.True(t, opens(second))
	k.Do("touch /srv/2")
	k.must(Take, name("two"))
	assert.False(t, opens(second))
	_, err := k.ask(Enter, name("one"), workdir("/srv"))
	assert.Equal(t, Fenced, KindOf(err), "another step has begun")
	two := k.must(Enter, name("two"), workdir("/srv")).Path
	k.must(Restore, name("two"), turn("undo"))
	assert.False(t, opens(two))
	_, err = k.ask(Enter, name("two"), workdir("/srv"))
	assert.Equal(t, Fenced, KindOf(err))
}

func TestARestartLosesNothing(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.must(Take, name("one"))
	k.Do("echo 1 >/srv/1")
	k.must(Take, name("two"))
	k.Do("echo 2 >/srv/2")
	door := k.must(Enter, name("two"), workdir("/")).Path
	two := k.Files()
	k.lift()
	require.NotEqual(t, two, k.Files())
	assert.NotEqual(t, door, k.must(Enter, name("two"), workdir("/")).Path)
	assert.Equal(t, two, k.Files())
	k.lift()
	k.must(Restore, name("two"), turn("undo"), stopped)
	k.must(Stacked)
	assert.NotContains(t, k.Files(), "/srv/2 ")
	assert.Contains(t, k.Files(), "/srv/1 ")
}

// TestALossOfPowerTakesNothingThatWasOnTheDisk leaves what a disk does: the last page that was
// waited for.
func TestALossOfPowerTakesNothingThatWasOnTheDisk(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	dir := filepath.Join(k.dir, boxID)
	k.must(Take, name("one"))
	k.Do("echo 1 >/srv/1; chmod 711 /")
	k.must(Take, name("two"))
	two := k.Files()
	k.Do("echo 2 >/srv/2; chmod 700 /")
	k.must(Take, name("three"))
	loss := func(layers ...string) {
		for _, n := range layers { // their folders were not on the disk yet
			require.NoError(t, os.RemoveAll(filepath.Join(dir, n)))
		}
		b := k.book()
		b.Boot = "an earlier one"
		k.rewrite(b)
		k.lift()
	}
	loss("2", "3")
	k.must(Restore, name("three"), turn("undo"), stopped) // before the container is started again
	k.must(Stacked)
	assert.Equal(t, two, k.Files(), "what no disk has is not there")
	k.must(Restore, name("two"), turn("undo"))
	assert.Equal(t, two, k.Files())

	k.Do("echo 3 >/srv/3")
	k.must(Take, name("four"))
	before := k.book()
	k.must(Restore, name("two"), turn("again"), keep("kept"))
	after := k.book()
	before.Doing = &topChange{Lower: after.Lower, Upper: after.Upper, Ends: true, Turn: "two again", Keep: "kept",
		Over: "two"}
	before.Next, before.Below[after.Upper] = after.Next, after.Lower
	k.rewrite(before)
	loss()
	assert.True(t, k.must(Restored, name("two"), turn("again"), stopped).Yes, "nobody asks for it again")
	assert.True(t, k.must(Restored, name("two"), turn("again")).Yes)
	assert.Equal(t, two, k.Files())
	k.must(Restore, name("kept"), turn("redo"))
	assert.Contains(t, k.Files(), "/srv/3 ")

	loss("1")
	_, err := k.ask(Restore, name("two"), turn("and again"), stopped)
	assert.Equal(t, Damaged, KindOf(err), "a folder below others was on the disk, and somebody has removed it")
}

func TestWhatAStepLeavesRunningIsNotFrozenAndLeaksIntoNoCheckpoint(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.must(Take, name("one"))
	_, ended := k.Start(
		"echo 1 >/srv/log; echo x; while sleep 0.1; do [ -e /srv/go ] && echo 2 >>/srv/log && sleep 600; done")
	before := k.Files()
	k.must(Take, name("two"))
	k.Do("touch /srv/go /srv/new")
	require.Eventually(t, func() bool { return k.Do("cat /srv/log") == "1\n2\n" }, 60e9, 20e6, "it writes, and is seen")
	paths := []string{}
	for _, c := range k.must(Changes, name("two")).Changes {
		paths = append(paths, c.Path)
	}
	assert.Equal(t, []string{"/srv", "/srv/go", "/srv/log", "/srv/new"}, paths)
	k.must(Restore, name("two"), turn("undo"))
	require.Error(t, ended())
	assert.Equal(t, before, k.Files())
	assert.Empty(t, k.must(Changes, name("two")).Changes)
	k.must(Restore, name("one"), turn("undo"))
	assert.NotContains(t, k.Files(), "/srv/log")
}

func TestABusyBaseKeepsItsOwnFilesystem(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	said, _ := k.Start("echo x; exec 3>/srv/log; read y </proc/1/status; sleep 1; echo z >&3; echo $?; exec sleep 100")
	_, err := k.ask(Take, name("one"))
	assert.Equal(t, Unfit, KindOf(err))
	require.ErrorContains(t, err, "has the container's own root")
	assert.Equal(t, "0", said())
	assert.Equal(t, "z\n", k.Do("cat /srv/log"))
	assert.False(t, k.must(Stacked).Yes)
}

func TestAContainerThatHasJustBeenStartedIsWaitedFor(t *testing.T) {
	t.Parallel()
	b, run := boxtest.Starting(t, boxtest.Sleeps)
	k := keepIn(t, b)
	k.starting = 0
	_, err := k.ask(Fit)
	assert.Equal(t, Unfit, KindOf(err))
	require.ErrorContains(t, err, "still runs a program from outside of the container")
	k.starting = time.Minute
	took := make(chan error, 1)
	go func() {
		_, err := k.ask(Take, name("one"))
		took <- err
	}()
	run()
	require.NoError(t, <-took)
	assert.True(t, k.must(Stacked).Yes)
}

func TestTheLocksPatienceHasAnEnd(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.must(Stacked)
	k.patience = 50 * time.Millisecond
	f, err := os.Open(filepath.Join(k.dir, boxID, "lock"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	_, err = k.ask(Take, name("one"))
	assert.Equal(t, Busy, KindOf(err))
}

// another is a helper with another home for the same box.
func (k *kept) another() *kept {
	dir := filepath.Join(k.Dir, "others")
	require.NoError(k.t, os.Mkdir(dir, 0o700))
	return &kept{k.Box, &stacks{dir: dir, patience: k.patience, starting: k.starting, leaving: k.leaving, owns: k.owns},
		k.t}
}

func TestOneHomeHasAContainersLayers(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	homes := []*kept{k, k.another()}
	before := k.Files()
	for range 10 {
		var kinds [2]Kind
		var wg sync.WaitGroup
		for i, h := range homes {
			wg.Go(func() {
				_, err := h.ask(Take, name("one"))
				kinds[i] = KindOf(err)
			})
		}
		wg.Wait()
		winner := homes[slices.Index(kinds[:], "")]
		assert.ElementsMatch(t, []Kind{"", Foreign}, kinds)
		k.Do("echo x >/srv/x")
		winner.must(Restore, name("one"), turn("undo"))
		assert.Equal(t, before, k.Files())
		winner.must(Drop, name("one"))
		winner.must(Commit)
	}
}

// TestLayersAreRemovedWithTheTopsThatHoldThem is alone: former tops of this process are counted.
func TestLayersAreRemovedWithTheTopsThatHoldThem(t *testing.T) {
	overlays := func() (n int) {
		all, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		for _, each := range all {
			fd, err := strconv.Atoi(each.Name())
			require.NoError(t, err)
			var fs unix.Statfs_t
			// the folder that is read is closed by now
			if unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
				n++
			}
		}
		return n
	}
	for what, remove := range map[string]func(*kept){
		"by a sweep":  func(k *kept) { k.must(Restore, name("one"), turn("undo")) },
		"by a forget": func(k *kept) { k.must(Forget) },
	} {
		t.Run(what, func(t *testing.T) {
			k := newKept(t)
			stack.CloseFormerTops()
			before := overlays()
			k.must(Take, name("one"))
			k.Do("echo 1 >/srv/one")
			k.must(Take, name("two"))
			require.Greater(t, overlays(), before, "it waits for others")
			remove(k)
			require.Eventually(t, func() bool { return overlays() == before }, 20*time.Second, time.Millisecond,
				"not only after a while, as they go anyway")
		})
	}
}

func TestForgetAndList(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.must(Take, name("one"))
	assert.Equal(t, []string{boxID}, k.must(List).IDs)
	k.must(Forget)
	assert.Empty(t, k.must(List).IDs)
	k.must(Forget)
	_, err := k.ask(Take, func(r *Request) { r.Container = "../../etc" })
	require.Error(t, err)
	_, err = k.ask("no-such-thing")
	require.Error(t, err)
}

func TestACheckpointWeighsWhatIsWrittenInItsLayers(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	weight := func(mark string, with ...func(*Request)) int64 {
		return k.must(Weigh, append(with, name(mark), stopped)...).Bytes
	}
	const much = 1 << 20
	k.must(Take, name("one"))
	assert.Zero(t, weight("one"), "the container's own root is not of any layer")
	k.Do("yes | head -c 1048576 >/srv/a; ln /srv/a /srv/b; truncate -s 100M /srv/sparse")
	k.must(Take, name("two"))
	assert.InDelta(t, much, weight("two"), much/4)
	assert.Zero(t, weight("one"))
	k.Do("yes | head -c 2097152 >/srv/c")
	k.must(Restore, name("two"), turn("undo"), keep("kept"))
	assert.InDelta(t, 3*much, weight("two", keep("kept")), much/2)
	assert.InDelta(t, much, weight("two"), much/4)
}

func TestAForeignProcessIsNotTakenForTheContainers(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.owns = stack.InCgroup
	_, err := k.ask(Take, name("one"))
	assert.Equal(t, Unfit, KindOf(err))
}

func TestARememberedProcessIsAskedForOnlyWhileItIsTheContainers(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	born := k.must(Take, name("one")).Born
	require.NotEmpty(t, born)
	remembered := func(r *Request) { r.Born = born }
	assert.Equal(t, born, k.must(Take, name("two"), remembered).Born)

	_, err := k.ask(Take, name("three"), remembered, func(r *Request) { r.Born += "0" }) // the pid is another process's
	assert.Equal(t, Stale, KindOf(err))
	_, err = k.ask(Files, remembered, func(r *Request) { r.PID = 1 << 30 }) // nobody has it
	assert.Equal(t, Stale, KindOf(err))
	k.owns = func(int, string) bool { return false }
	_, err = k.ask(Take, name("three"), remembered)
	assert.Equal(t, Stale, KindOf(err))
	assert.NotContains(t, k.book().Marks, "three")
}

// TestTheHelperIsAProcessOfItsOwn speaks to a real one, and kills it.
func TestTheHelperIsAProcessOfItsOwn(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		testrun.Skipf(t, "overlays are tested as root only")
	}
	pid := 0
	c := newClient(filepath.Join(t.TempDir(), "stacks"), func(started int) { pid = started })
	for range 2 {
		_, err := c.Ask(t.Context(), Request{Op: Probe})
		require.NoError(t, err)
		a, err := c.Ask(t.Context(), Request{Op: List})
		require.NoError(t, err)
		assert.Empty(t, a.IDs)
		c.mu.Lock()
		p := c.now
		c.mu.Unlock()
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		<-p.ended
	}
	_, err := c.Ask(t.Context(), Request{Op: Probe})
	require.NoError(t, err)
	c.Close()
	_, err = c.Ask(context.Background(), Request{Op: Probe})
	require.Error(t, err)
}

func TestServeAnswersAllBeforeItReturns(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	done := make(chan error, 1)
	var in strings.Builder
	for i := range 20 {
		fmt.Fprintf(&in, `{"id":%d,"op":"list"}`+"\n", i)
	}
	go func() {
		done <- serve(&stacks{dir: t.TempDir(), patience: time.Second, alone: time.Hour}, strings.NewReader(in.String()), w)
		w.Close()
	}()
	lines := 0
	for s := bufio.NewScanner(r); s.Scan(); lines++ {
		assert.NotContains(t, s.Text(), "failure")
	}
	assert.Equal(t, 20, lines)
	require.NoError(t, <-done)
}

func TestAHelperThatNobodyAsksEnds(t *testing.T) {
	t.Parallel()
	in, silent := io.Pipe()
	defer silent.Close()
	require.NoError(t, serve(&stacks{dir: t.TempDir(), alone: time.Millisecond}, in, io.Discard))
}
