package helper

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/boxtest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/stack"
)

func TestACutShortChangeIsTakenUp(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.must(Take, name("one"))
	k.Do("echo 1 >/srv/1")
	before := k.book()
	one := k.Files()

	// A helper that is killed when the new top shows, and before that is in the book.
	k.must(Take, name("two"))
	before.Next, before.Below[2] = 3, 1
	before.Doing = &topChange{Lower: 1, Upper: 2, Mark: "two", Takes: true}
	k.rewrite(before)
	assert.True(t, k.must(Has, name("two")).Yes)
	k.Do("echo 2 >/srv/2")
	k.must(Restore, name("two"), turn("undo"))
	assert.Equal(t, one, k.Files())

	// One after which the container was restarted: what the step has written may be in the new layer
	// already.
	k.must(Take, name("three"))
	k.Do("echo 3 >/srv/3")
	three := k.Files()
	now := k.book()
	now.Doing = &topChange{Lower: now.Lower, Upper: now.Upper, Mark: "three", Takes: true}
	now.Upper = now.Lower
	k.rewrite(now)
	k.lift()
	k.must(Enter, name("three"), workdir("/"))
	assert.Equal(t, three, k.Files())
	k.must(Restore, name("three"), turn("undo"))
	assert.Equal(t, one, k.Files())

	// One that is killed before the new top shows.
	now = k.book()
	dir := filepath.Join(k.dir, boxID)
	require.NoError(t, layer.Make(dir, now.Next))
	require.NoError(t, os.WriteFile(filepath.Join(layer.Content(dir, now.Next), "junk"), nil, 0o600))
	now.Doing = &topChange{Upper: 77, Mark: "one", Turn: "one undo", Ends: true}
	k.rewrite(now)
	assert.False(t, k.must(Restored, name("one"), turn("undo")).Yes)
	assert.Equal(t, one, k.Files())
	k.Do("touch /srv/3")
	k.must(Take, name("three"))
	assert.NotContains(t, k.Files(), "junk", "what a killed helper has left in a layer that is in no book")
}

func TestAFirstLayerThatWasNeverShownIsStruckOut(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	before := k.Files()
	k.must(Fit)
	b := k.book()
	b.Doing = &topChange{Upper: b.Next, Mark: "one", Takes: true, Born: k.born()}
	b.Below[b.Next], b.Next = 0, b.Next+1
	k.rewrite(b)
	assert.False(t, k.must(Has, name("one")).Yes)
	assert.False(t, k.must(Stacked).Yes)
	assert.Equal(t, before, k.Files())

	require.NoError(t, layer.Make(filepath.Join(k.dir, boxID), b.Doing.Upper))
	b.Doing.Born = "an earlier one" // then it may have been shown, and have gone with a restart
	k.rewrite(b)
	assert.True(t, k.must(Has, name("one")).Yes)
	assert.True(t, k.must(Stacked).Yes)
	k.Do("touch /srv/x")
	k.must(Restore, name("one"), turn("undo"))
	assert.Equal(t, before, k.Files())
}

func TestAContainerWhoseRootBearsNoOverlayIsUnfitBeforeItIsTouched(t *testing.T) {
	t.Parallel()
	k := keepIn(t, boxtest.Deep(t))
	before := k.Files()
	for range 2 {
		for _, op := range []Op{Fit, Take} {
			_, err := k.ask(op, name("one"))
			assert.Equal(t, Unfit, KindOf(err))
			require.ErrorContains(t, err, "no overlay can be mounted over")
		}
	}
	assert.False(t, k.must(Stacked).Yes)
	assert.Equal(t, before, k.Files())
	assert.Zero(t, k.layersOnDisk())
}

func TestADropSettlesNoChange(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.must(Take, name("one"))
	k.Do("echo 1 >/srv/1")
	k.must(Take, name("two"))
	k.Do("echo 2 >/srv/2")
	two, b := k.Files(), k.book()
	// Begun, and cut short before it was shown.
	b.Doing = &topChange{Lower: 0, Upper: b.Next, Old: &stack.Top{}, Ends: true, Turn: "one undo", Over: "one",
		Keep: "kept"}
	b.Below[b.Next], b.Next = 0, b.Next+1
	k.rewrite(b)
	k.must(Drop, name("two"), stopped)
	k.must(Drop, name("kept"), stopped)
	assert.False(t, k.must(Restored, name("one"), turn("undo")).Yes)
	assert.Equal(t, two, k.Files())

	b = k.book() // begun, shown, and dropped before that is in the book
	b.Doing = &topChange{Lower: b.Lower, Upper: b.Upper, Mark: "three", Takes: true, Keep: "kept"}
	k.rewrite(b)
	k.must(Drop, func(r *Request) { r.Names = []string{"three", "kept"} }, stopped)
	assert.Equal(t, []string{"one"}, k.must(Named).IDs)
}

// born is the start of the box, as a book tells it.
func (k *kept) born() string {
	k.t.Helper()
	at, err := k.at().StartTime()
	require.NoError(k.t, err)
	return bootID() + " " + at
}

// setAside leaves the box as a flatten does that somebody is in the way of: he has entered before
// the top was set aside.
func (k *kept) setAside() (letGo func()) {
	k.t.Helper()
	k.must(Take, name("one"))
	k.Do("echo one >/srv/1; chmod 711 /")
	k.must(Drop, name("one"))
	_, ended := k.Start("echo x; while [ ! -e /dev/shm/go ]; do sleep 0.01; done; echo two >/srv/2; rm /srv/1")
	at := k.at()
	b := k.book()
	require.NoError(k.t,
		at.Base().Flatten(filepath.Join(k.dir, boxID), []int{b.Upper}, func(string) bool { return false }))
	b.Doing, b.Since = &topChange{Old: &stack.Top{}, Born: k.born()}, time.Now().UnixNano()
	k.rewrite(b)
	require.NoError(k.t, at.MoveTopAside())
	return func() {
		k.Do("touch /dev/shm/go")
		require.NoError(k.t, ended())
	}
}

func TestWhatIsWrittenWhileTheLayersAreTakenOffIsNotLost(t *testing.T) {
	t.Parallel()
	flat := func(k *kept) {
		assert.False(k.t, k.must(Stacked).Yes)
		assert.Equal(k.t, "two\n", k.Do("cat /srv/2; [ ! -e /srv/1 ]"))
		assert.Equal(k.t, "711\n", k.Do("stat -c %a /"))
		assert.Zero(k.t, k.layersOnDisk())
		assert.Nil(k.t, k.survey().Aside)
		k.must(Take, name("two"))
	}
	t.Run("who is there is waited for", func(t *testing.T) {
		k := newKept(t)
		letGo := k.setAside()
		for _, op := range []Op{Commit, Take, Stacked} {
			_, err := k.ask(op, name("two"))
			require.Equal(t, InUse, KindOf(err), op)
		}
		letGo()
		k.must(Commit)
		flat(k)
	})
	t.Run("until a restart ends him", func(t *testing.T) {
		k := newKept(t)
		k.setAside()()
		require.NoError(t, k.at().RemoveAside())
		flat(k)
	})
	t.Run("a helper is killed before the top is set aside", func(t *testing.T) {
		k := newKept(t)
		k.must(Take, name("one"))
		k.Do("echo two >/srv/2; chmod 711 /")
		k.must(Drop, name("one"))
		b := k.book()
		b.Doing = &topChange{Old: &stack.Top{}, Born: k.born()}
		k.rewrite(b)
		assert.True(t, k.must(Stacked).Yes)
		k.must(Commit)
		flat(k)
	})
	t.Run("another home leaves it alone", func(t *testing.T) {
		k := newKept(t)
		letGo := k.setAside()
		letGo()
		_, err := k.another().ask(Take, name("one"))
		assert.Equal(t, Foreign, KindOf(err))
		flat(k)
	})
}

func (k *kept) survey() stack.Survey {
	k.t.Helper()
	s, err := k.at().Survey()
	require.NoError(k.t, err)
	return s
}

func TestAnotherHomesChangeIsNotFinished(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.must(Take, name("one"))
	at := k.at()
	k.Inside(func() error { // as in the middle of a change: there are two tops
		twin, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return err
		}
		defer unix.Close(twin)
		return unix.MoveMount(twin, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH)
	})
	_, err := k.another().ask(Stacked)
	assert.Equal(t, Foreign, KindOf(err))
	s, err := at.Survey()
	require.NoError(t, err)
	assert.Len(t, s.Tops, 2)
	k.must(Stacked)
	s, err = at.Survey()
	require.NoError(t, err)
	assert.Len(t, s.Tops, 1)
}
