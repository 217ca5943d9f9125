package helper

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/point"
)

func names(names ...string) func(*Request) { return func(r *Request) { r.Names = names } }

// root is what a program of the container sees that has just been started.
func (k *kept) root() string {
	k.t.Helper()
	require.False(k.t, k.must(Stacked).Yes, "no layers stand")
	return k.Files()
}

// stages takes a checkpoint before each of the commands, and returns what the container showed
// then, and shows now.
func (k *kept) stages(task string, commands ...string) (was []string) {
	k.t.Helper()
	for i, command := range commands {
		was = append(was, k.Files())
		k.must(Take, name(task+strconv.Itoa(i)))
		if command == "everything" {
			k.ChangeEverything()
		} else {
			k.Do(command)
		}
	}
	// an overlay forgets that a file which it has copied up has two names, until it is made anew
	k.must(Take, name(task+"end"))
	return append(was, k.Files())
}

func TestWhatIsCommittedStaysAndCanBeRolledBack(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.ForEverything()
	was := k.stages("a", "echo 1 >/srv/1", "everything", "mv /srv/c /srv/cc; rm /srv/1",
		"rm -r /srv/d; echo 3 >/srv/d; chmod 700 /")
	all := names("a0", "a1", "a2", "a3", "aend")
	assert.True(t, k.must(Commit, all).Yes)
	assert.Equal(t, was[4], k.root())
	assert.True(t, k.must(Commit, all).Yes, "twice is once")

	for _, n := range []int{3, 2, 0} {
		k.must(Restore, name("a"+strconv.Itoa(n)), turn("undo"), keep("kept"+strconv.Itoa(n)))
		assert.Equal(t, was[n], k.Files(), "checkpoint %d", n)
	}
	assert.True(t, k.must(Commit, all).Yes)
	assert.Equal(t, was[0], k.root(), "a rollback is made durable too")
	k.must(Restore, name("kept3"), turn("redo"))
	assert.Equal(t, was[4], k.Files())
	assert.True(t, k.must(Commit, all).Yes)
	assert.Equal(t, was[4], k.root())
	k.must(Restore, name("a1"), turn("again"))
	assert.Equal(t, was[1], k.Files())
	k.must(Drop, names("a0", "a1", "a2", "a3", "aend", "kept0", "kept2", "kept3"))
	assert.True(t, k.must(Commit).Yes)
	assert.Equal(t, was[1], k.root())
	assert.Zero(t, k.layersOnDisk(), "what no checkpoint needs goes")
}

func TestTasksThatCommitOneAfterTheOtherAreRolledBackInTurn(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.ForEverything()
	first := k.stages("a", "echo a >/srv/x; rm /srv/out", "everything", "echo a2 >>/srv/x")
	changed := k.must(Changes, name("a2")).Changes
	k.must(Commit, names("a0", "a1", "a2", "aend"))
	assert.Equal(t, changed, k.must(Changes, name("a2")).Changes, "what a step has changed is told as before the commit")
	second := k.stages("b", "echo b >/srv/x; rm -r /srv/d", "mkdir -p /srv/new/er; echo n >/srv/new/er/n")
	k.must(Commit, names("b0", "b1", "bend"))
	assert.Equal(t, second[2], k.root())
	assert.NotEqual(t, changed, k.must(Changes, name("a2")).Changes, "what a later task has changed is seen")
	third := k.stages("c", "echo c >/srv/x")
	for i, stage := range []struct {
		name string
		want string
	}{{"c0", third[0]}, {"b1", second[1]}, {"b0", second[0]}, {"a2", first[2]}, {"a1", first[1]}, {"a0", first[0]}} {
		k.must(Restore, name(stage.name), turn("undo"))
		assert.Equal(t, stage.want, k.Files(), stage.name)
		if i%2 == 1 {
			k.must(Commit)
			assert.Equal(t, stage.want, k.root(), stage.name)
		}
		if stage.name == "b0" {
			assert.Equal(t, changed, k.must(Changes, name("a2")).Changes, "and that it is back as it was")
		}
	}
	k.must(Drop, names("a0", "a1", "a2", "aend", "b0", "b1", "bend", "c0", "cend"))
	k.must(Commit)
	assert.Equal(t, first[0], k.root())
	assert.Zero(t, k.layersOnDisk())
}

func TestWhatOthersWriteAfterACommitIsDriftWhereTheTaskHasWritten(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.Do("mkdir /srv/d /srv/e; echo x >/srv/d/x; echo y >/srv/y; touch -d @5 /srv/e")
	k.stages("a", "mkdir /srv/new; echo 1 >/srv/new/1; echo 2 >/srv/d/x; rm /srv/y; echo z >/srv/z")
	before := said(k.must(Changes, name("a0")).Changes)
	assert.Equal(t, "~d/srv =~d/srv/d ~f/srv/d/x d/srv/new f/srv/new/1 ~x/srv/y f/srv/z", before)
	k.must(Commit, names("a0", "aend"))
	assert.Equal(t, before, said(k.must(Changes, name("a0")).Changes))
	k.Do("echo other >/srv/e/elsewhere")
	assert.Equal(t, before, said(k.must(Changes, name("a0")).Changes), "what the task has not written is not overwritten")
	own := k.must(Changes, name("a0")).Changes
	for _, write := range []string{"echo 3 >/srv/new/1", "echo 4 >/srv/d/x", "rm /srv/z", "echo y >/srv/y",
		"mkdir /srv/new/theirs", "chmod 700 /srv/new"} {
		k.Do("cp -a /srv /tmp/srv; " + write)
		assert.NotEqual(t, own, k.must(Changes, name("a0")).Changes, write)
		k.Do("rm -r /srv/*; cp -a /tmp/srv/. /srv; rm -r /tmp/srv")
		assert.Equal(t, own, k.must(Changes, name("a0")).Changes)
	}
	k.must(Restore, name("a0"), turn("undo"))
	assert.Equal(t, "other\n", k.Do("cat /srv/e/elsewhere"), "and is still there")
}

// cutShort is what a helper is killed with.
type cutShort struct{}

// cut does something until the helper reaches a point, and ends there as if it were killed.
func (k *kept) cut(at string, do func()) (reached bool) {
	k.t.Helper()
	point.Hook(func(label string) {
		if label == at {
			panic(cutShort{})
		}
	})
	defer point.Hook(nil)
	defer func() {
		if p := recover(); p != nil {
			require.Equal(k.t, cutShort{}, p)
			reached = true
		}
	}()
	do()
	return false
}

// TestACommitThatIsCutShortLosesNothing is alone: its hook is for the whole process.
func TestACommitThatIsCutShortLosesNothing(t *testing.T) {
	for _, at := range []string{"reversed", "kept", "written", "taking-off", "aside"} {
		for what, then := range map[string]func(k *kept){
			"and is asked for again":         func(*kept) {},
			"and the container is restarted": func(k *kept) { k.restart() },
		} {
			t.Run(at+" "+what, func(t *testing.T) {
				prepared := func(t *testing.T) (*kept, []string) {
					t.Helper()
					k := newKept(t)
					k.ForEverything()
					was := k.stages("a", "echo 1 >/srv/1", "everything", "echo 2 >/srv/1; rm -r /srv/e; touch -d @7.123456789 /srv")
					require.True(t, k.cut("overlay.commit:"+at, func() { _, _ = k.ask(Commit, names("a0", "a1", "a2", "aend")) }))
					then(k)
					return k, was
				}
				k, was := prepared(t)
				k.must(Fit)
				assert.Equal(t, was[3], k.Files(), "all shows meanwhile")
				k.must(Commit, names("a0", "a1", "a2", "aend"))
				assert.Equal(t, was[3], k.root())
				for _, n := range []int{2, 0, 1} {
					k.must(Restore, name("a"+strconv.Itoa(n)), turn("undo"))
					assert.Equal(t, was[n], k.Files(), "checkpoint %d", n)
				}

				k, was = prepared(t) // or is wanted no more
				for _, n := range []int{2, 1, 0} {
					k.must(Restore, name("a"+strconv.Itoa(n)), turn("undo"))
					assert.Equal(t, was[n], k.Files(), "checkpoint %d", n)
				}
				k.must(Commit)
				assert.Equal(t, was[0], k.root())
			})
		}
	}
}

// restart takes all layers off that stand, as a restart of the container does.
func (k *kept) restart() {
	k.t.Helper()
	at := k.at()
	s, err := at.Survey()
	require.NoError(k.t, err)
	for range s.Tops {
		require.NoError(k.t, at.RemoveTop())
	}
	if s.Aside != nil {
		require.NoError(k.t, at.RemoveAside())
	}
}

func TestACommitGoesRoundWhoIsLeftInTheLayers(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	before := k.Files()
	k.must(Take, name("one"))
	said, _ := k.Start(
		"echo 1 >/srv/log; echo x; while [ ! -e /dev/shm/go ]; do sleep 0.01; done; echo 2 >>/srv/log; echo y; exec " +
			"sleep 600")
	k.Do("echo one >/srv/1")
	assert.False(t, k.must(Commit, name("one")).Yes)
	assert.Equal(t, "1\none\n", k.Do("cat /srv/log /srv/1"))
	k.Do("touch /dev/shm/go")
	assert.Equal(t, "y", said())
	assert.Equal(t, "1\n2\n", k.Do("cat /srv/log"), "it goes on, and is seen")
	b := k.book()
	assert.Zero(t, b.Landing)
	k.restart()
	assert.Equal(t, "1\none\n", k.Do("cat /srv/log /srv/1"), "the first instruction after a restart finds it")
	k.must(Stacked)
	assert.Equal(t, "1\n2\none\n", k.Do("cat /srv/log /srv/1"), "and what was written after it, as soon as a helper looks")
	k.must(Restore, name("one"), turn("undo"))
	assert.Equal(t, before, k.Files())
}

func TestAStepOfAnotherTaskIsNotDisturbedByACommit(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	was := k.stages("a", "echo 1 >/srv/1")
	k.must(Take, name("b"))
	door := k.must(Enter, name("b"), workdir("/srv")).Path
	k.Do("echo b >/srv/b")
	both := k.Files()
	assert.False(t, k.must(Commit, names("a0", "aend")).Yes)
	assert.Equal(t, both, k.Files())
	assert.Equal(t, door, k.must(Enter, name("b"), workdir("/srv")).Path, "it may still enter")
	k.restart()
	assert.Equal(t, was[1], k.Files(), "what is not committed is not there before the layers are")
	k.must(Stacked)
	assert.Equal(t, both, k.Files())
	k.must(Restore, name("b"), turn("undo"))
	assert.Equal(t, was[1], k.Files())
	k.must(Restore, name("a0"), turn("undo"))
	assert.Equal(t, was[0], k.Files())
}

func TestAContainerThatDoesNotRunIsCommittedAtItsStart(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	was := k.stages("a", "echo 1 >/srv/1")
	k.restart()
	assert.False(t, k.must(Commit, names("a0", "aend"), stopped).Yes)
	assert.Equal(t, was[1], k.root())
	k.must(Restore, name("a0"), turn("undo"))
	assert.Equal(t, was[0], k.Files())
}

func TestARollbackOfAContainerThatUsesItsFilesIsWrittenIntoIt(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	was := k.stages("a", "echo 1 >/srv/1", "echo 2 >/srv/2")
	k.must(Commit, names("a0", "a1", "aend"))
	// on the container's own root
	said, _ := k.Start("echo x; while [ -e /srv/2 ]; do sleep 0.01; done; echo gone; while sleep 1; do :; done")
	k.must(Restore, name("a1"), turn("undo"), keep("kept"))
	assert.Equal(t, "gone", said(), "what stands there sees it")
	assert.Equal(t, was[1], k.root())
	assert.True(t, k.must(Restored, name("a1"), turn("undo")).Yes)
	assert.Empty(t, k.must(Changes, name("a1")).Changes)
	k.must(Restore, name("a0"), turn("undo"))
	assert.Equal(t, was[0], k.root())
}

func TestADiskThatIsFullKeepsACommitWaiting(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	was := k.stages("a", "echo 1 >/srv/1")
	k.least = Room{Bytes: 1 << 60}
	_, err := k.ask(Commit, names("a0", "aend"))
	assert.Equal(t, Full, KindOf(err))
	assert.Equal(t, was[1], k.Files())
	k.least = Room{}
	k.must(Commit, names("a0", "aend"))
	assert.Equal(t, was[1], k.root())
}
