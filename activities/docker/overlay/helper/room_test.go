package helper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/boxtest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/stack"
)

// keptOnDisk is a box whose layers are on a disk of their own.
func keptOnDisk(t *testing.T, size, inodes int) *kept {
	t.Helper()
	k := newKept(t)
	boxtest.Disk(t, k.dir, size, inodes)
	return k
}

func (k *kept) fill(as string, leaves int) {
	k.t.Helper()
	boxtest.Fill(k.t, filepath.Join(k.dir, as), leaves)
}

func (k *kept) free(as string) {
	k.t.Helper()
	require.NoError(k.t, os.RemoveAll(filepath.Join(k.dir, as)))
}

// awaitSweep returns when nothing in the background frees space any more.
func (k *kept) awaitSweep() {
	k.t.Helper()
	require.Eventually(k.t, func() bool {
		left, err := filepath.Glob(filepath.Join(k.dir, boxID, trash+"*"))
		return err == nil && len(left) == 0
	}, 60e9, 5e6)
	stack.CloseFormerTops()
}

func TestACheckpointNeedsRoom(t *testing.T) {
	t.Parallel()
	k := keptOnDisk(t, 100, 2000)
	k.least = Least
	k.must(Take, name("one"))
	k.Do("yes | head -c 60M >/srv/x")
	was, layers := k.Files(), k.layersOnDisk()
	book := k.book()
	refused := func(left string) {
		t.Helper()
		_, err := k.ask(Take, name("two"))
		assert.Equal(t, Full, KindOf(err))
		require.ErrorContains(t, err, filepath.Join(k.dir, boxID)+", where the layers are, has ")
		require.ErrorContains(t, err, left)
		require.ErrorContains(t, err, "a checkpoint needs 64 MiB and 1000 inodes; layers go when")
		assert.Equal(t, was, k.Files())
		assert.Equal(t, layers, k.layersOnDisk())
		assert.Equal(t, book, k.book())
		assert.False(t, k.must(Has, name("two")).Yes)
	}
	refused(" MiB and 19")
	k.must(Take, name("one"))
	k.must(Restore, name("one"), turn("undo"))
	require.Eventually(t, func() bool { _, err := k.ask(Take, name("free")); return err == nil }, 60e9, 5e6,
		"what nobody keeps goes")
	k.Do("cd /srv; i=0; while [ $i -lt 1000 ]; do : >f$i; i=$((i+1)); done")
	was, layers = k.Files(), k.layersOnDisk()
	book = k.book()
	refused(" and 9")
}

func TestAStepThatFillsTheDiskIsTakenBack(t *testing.T) {
	t.Parallel()
	const rest = "yes >/srv/zero; while mkdir /srv/d$i; do i=$((i+1)); done; true"
	for with, command := range map[string]string{
		"data":   rest,
		"inodes": "while true >/srv/f$i; do i=$((i+1)); done; " + rest,
	} {
		t.Run(with, func(t *testing.T) {
			t.Parallel()
			k := keptOnDisk(t, 32, 1000)
			k.ForEverything()
			one := k.Files()
			k.must(Take, name("one"))
			k.ChangeEverything()
			two := k.Files()
			k.must(Take, name("two"))
			k.Do("(" + command + ") 2>/dev/null")
			full := k.Files()
			left, err := RoomAt(k.dir)
			require.NoError(t, err)
			require.True(t, left.Bytes < 1<<20 || left.Inodes == 0, "%d bytes, %d inodes", left.Bytes, left.Inodes)

			k.must(Restore, name("two"), turn("undo"), keep("kept"))
			assert.Equal(t, two, k.Files())
			k.fill("others", 0)
			k.must(Restore, name("one"), turn("undo"))
			assert.Equal(t, one, k.Files())
			k.must(Restore, name("kept"), turn("redo"))
			assert.Equal(t, full, k.Files())
			k.must(Restore, name("two"), turn("undo again"))
			assert.Equal(t, two, k.Files())
			k.must(Drop, name("kept"))
			k.free("others")
			require.Eventually(t, func() bool {
				left, err := RoomAt(k.dir)
				return err == nil && left.Bytes > 8<<20 && left.Inodes > 300
			}, 60e9, 5e6, "what nobody keeps goes")
			k.must(Take, name("three"))
			k.Do("echo x >/srv/x")
		})
	}
}

func TestARestartOnAFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	k := keptOnDisk(t, 32, 1000)
	was := k.Files()
	k.must(Take, name("one"))
	k.Do("yes >/srv/x 2>/dev/null || true")
	now := k.Files()
	at, err := stack.Open(k.PID)
	require.NoError(t, err)
	defer at.Close()
	require.NoError(t, at.RemoveTop())
	k.must(Restored, name("one"), turn("undo"))
	assert.Equal(t, now, k.Files())
	k.fill("others", 0)
	k.must(Restore, name("one"), turn("undo"))
	assert.Equal(t, was, k.Files())
}

func TestWhoeverWritesOnIsEndedBeforeRoomIsMade(t *testing.T) {
	t.Parallel()
	k := keptOnDisk(t, 32, 1000)
	k.must(Take, name("one"))
	was := k.Files()
	said, ended := k.Start(
		"cd /srv; echo x; { yes >/srv/zero; echo full >&3; i=0; while true; do echo $i >f$i && i=$((i+1)); done; } 3>&1 " +
			"2>/dev/null")
	require.Equal(t, "full", said())
	k.must(Restore, name("one"), turn("undo"))
	require.Error(t, ended())
	assert.Equal(t, was, k.Files())
}

// TestWhatHasNoRoomChangesNothing leaves a restore each little room on its way to enough.
func TestWhatHasNoRoomChangesNothing(t *testing.T) {
	t.Parallel()
	k := keptOnDisk(t, 32, 1000)
	was := k.Files()
	k.must(Take, name("one"))
	k.Do("echo x >/srv/x")
	writable := func() {
		t.Helper()
		k.Inside(func() error { return unix.Access("/srv", unix.W_OK) })
	}
	full, restored := 0, 0
	for leaves := range 16 {
		now := k.Files()
		k.free(filepath.Join(boxID, spareName))
		k.fill("fill", leaves)
		with := []func(*Request){name("one"), turn(strconv.Itoa(leaves)), keep("kept")}
		if _, err := k.ask(Restore, with...); err != nil {
			require.Equal(t, Full, KindOf(err), "%v", err)
			require.ErrorContains(t, err, "a disk is full: ")
			require.Equal(t, now, k.Files())
			writable()
			k.free("fill")
			k.must(Restore, with...)
			full++
		} else {
			restored++
		}
		require.Equal(t, was, k.Files())
		writable()
		k.free("fill")
		k.must(Restore, name("kept"), turn("redo"+strconv.Itoa(leaves)))
		require.Contains(t, k.Files(), "/srv/x ")
		k.must(Drop, name("kept"))
	}
	assert.NotZero(t, full)
	assert.NotZero(t, restored)
}

func TestACopyOfTheTopNeedsRoomForIt(t *testing.T) {
	t.Parallel()
	k := keptOnDisk(t, 64, 1000)
	k.must(Take, name("one"))
	_, ended := k.Start(
		"cd /srv; yes | head -c 20M >x; i=0; while [ $i -lt 100 ]; do echo $i >f$i; i=$((i+1)); done; echo x; exec sleep 600")
	k.least.Bytes = 30 << 20
	was, layers := k.Files(), k.layersOnDisk()
	_, err := k.ask(Take, name("two"))
	assert.Equal(t, Full, KindOf(err))
	require.ErrorContains(t, err, "a checkpoint needs 50 MiB")
	assert.Equal(t, layers, k.layersOnDisk())

	k.least = Room{} // as if others had been quicker
	require.NoError(t, os.Mkdir(filepath.Join(k.dir, "fill"), 0o700))
	for i := range 2000 {
		left, err := RoomAt(k.dir)
		require.NoError(t, err)
		if left.Inodes <= 50 {
			break
		}
		require.NoError(t, os.WriteFile(filepath.Join(k.dir, "fill", strconv.Itoa(i)), nil, 0o600))
	}
	_, err = k.ask(Take, name("two"))
	assert.Equal(t, Full, KindOf(err))
	require.ErrorContains(t, err, "a disk is full: ")
	assert.Equal(t, was, k.Files())
	require.Eventually(t, func() bool { return k.layersOnDisk() == layers }, 60e9, 5e6)
	k.free("fill")
	k.must(Take, name("two"))
	k.Do("rm /srv/x")
	k.must(Restore, name("two"), turn("undo"))
	require.Error(t, ended())
	assert.Equal(t, was, k.Files())
}

func TestLayersAreMergedWhereThereIsRoom(t *testing.T) {
	t.Parallel()
	k := keptOnDisk(t, 64, 4000)
	const many = 2 * mostLower
	write := func(i int) {
		k.Inside(func() error {
			dir := fmt.Sprintf("/srv/%d/a/b/c/d", i)
			return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/f", []byte{byte(i)}, 0o600))
		})
	}
	look := k.Files
	back := many - 2*leastLower // a merged layer that would hold it has gone
	shows := map[int]string{3: "", back: "", many - 1: ""}
	for i := range many {
		if _, ok := shows[i]; ok {
			shows[i] = look()
		}
		k.must(Take, name(strconv.Itoa(i)))
		write(i)
	}
	merges := func() bool {
		b := k.book()
		return len(b.lowerToMount(b.Marks[strconv.Itoa(back)])) > mostLower
	}
	require.True(t, merges())
	k.fill("fill", 0)
	k.must(Restore, name(strconv.Itoa(back)), turn("undo"))
	assert.Equal(t, shows[back], look())
	k.awaitSweep()
	write(back)
	k.fill("rest", 3)
	now, layers := look(), k.layersOnDisk()
	_, err := k.ask(Take, name("next"))
	assert.Equal(t, Full, KindOf(err))
	assert.Equal(t, now, look())
	assert.Equal(t, layers, k.layersOnDisk())
	k.free("fill")
	k.free("rest")
	k.must(Take, name("next"))
	assert.False(t, merges())
	assert.Equal(t, now, look())
	for _, n := range []int{many - 1, 3, back} {
		k.must(Restore, name(strconv.Itoa(n)), turn("again"))
		assert.Equal(t, shows[n], look())
	}
}
