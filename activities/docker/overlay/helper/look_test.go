package helper

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/stack"
)

// said is what changes come to, a word for each: ~ for what lies over something, = for what is the
// same.
func said(changes []layer.Change) string {
	words := make([]string, 0, len(changes))
	for _, c := range changes {
		word := string(c.Kind) + c.Path
		if c.Over {
			word = "~" + word
		}
		if c.Same {
			word = "=" + word
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func skip(paths ...string) func(*Request) { return func(r *Request) { r.Skip = paths } }

func TestChangesTellWhatTheyLieOver(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.Do("cd /srv; mkdir -p d/e f; echo x >d/e/x; echo y >y; echo z >z; touch -d @5 d/e y")
	k.must(Take, name("one"))
	k.Do("cd /srv; echo new >d/e/new; exec 3<>y; rm z")
	assert.Equal(t, "~d/srv =~d/srv/d ~d/srv/d/e f/srv/d/e/new =~f/srv/y ~x/srv/z",
		said(k.must(Changes, name("one")).Changes))

	// Against a checkpoint with layers of its own below.
	k.must(Take, name("two"))
	k.Do("cd /srv; echo old >d/e/new; echo z >z; rm -r d/e; mkdir d/e; echo >f/1; rm f/1")
	two := k.must(Changes, name("two")).Changes
	assert.Equal(t, "~d/srv ~d/srv/d ~o/srv/d/e ~d/srv/f f/srv/z", said(two))
	assert.Equal(t, "=~d/srv =~d/srv/d ~d/srv/f", said(k.must(Changes, name("two"), skip("/srv/d/e", "/srv/z")).Changes))
	k.Do("cd /srv; touch -r d d/e; exec 3<>y; chmod 700 f")
	assert.Contains(t, said(k.must(Changes, name("two")).Changes), "=~f/srv/y")

	// What a restore has kept is told by the checkpoint that was restored, as it was before.
	now := k.must(Changes, name("two")).Changes
	k.must(Restore, name("two"), turn("undo"), keep("kept"))
	assert.Empty(t, k.must(Changes, name("two")).Changes)
	assert.Equal(t, now, k.must(Changes, name("two"), keep("kept")).Changes)
	assert.Equal(t, []string{"kept"}, k.must(Named, name("k")).IDs)
	_, err := k.ask(Changes, name("two"), keep("no-such"))
	assert.Equal(t, Unknown, KindOf(err))
}

func TestTheTimeOfAFolderWithSkippedThingsInItDoesNotCount(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.must(Take, name("one"))
	k.Do("echo x >/srv/skipped")
	assert.Equal(t, "=~d/srv", said(k.must(Changes, name("one"), skip("/srv/skipped")).Changes))
	k.Do("chmod 700 /srv")
	assert.Equal(t, "~d/srv", said(k.must(Changes, name("one"), skip("/srv/skipped")).Changes))
}

func TestFilesAreThoseThatTheContainerShows(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.Do("echo base >/srv/a; echo base >/srv/b; mkdir -m 700 /srv/d")
	k.must(Take, name("one"))
	k.Do("rm /srv/a; echo over >/srv/b; ln -s b /srv/l; echo hidden >/dev/shm/x; ln -s /proc/1/root/usr /srv/out")
	var paths []string
	for _, f := range k.must(Files, skip("/tmp", "/proc")).Files {
		paths = append(paths, f.Path+" "+string(f.Kind))
	}
	assert.ElementsMatch(t, []string{
		"/ d", "/bin l", "/dev d", "/lib l", "/lib64 l", "/sbin l", "/srv d", "/srv/b f", "/srv/d d", "/srv/l l",
		"/srv/out l", "/usr d",
	}, paths, "mounts are not looked into")

	read := func(at string) stack.File {
		return k.must(Read, func(r *Request) { r.Path, r.Limit = at, 100 }).File
	}
	assert.Zero(t, read("/srv/a"))
	assert.Zero(t, read("/srv/b/x"))
	b := stack.File{Name: "/srv/b", Mode: unix.S_IFREG | 0o644, Size: 5, Content: []byte("over\n")}
	assert.Equal(t, b, read("/srv/b"))
	assert.Equal(t, b, read("/../srv/./l"))
	assert.Equal(t, "hidden\n", string(read("/dev/shm/x").Content), "mounts are read")
	assert.Zero(t, read("/srv/out/bin/sh"), "no link of /proc leads out")
	assert.Empty(t, read("/srv/d").Content)
	large := read("/usr/bin/sh")
	assert.Empty(t, large.Content)
	assert.Greater(t, large.Size, int64(100))
	_, err := k.ask(Files, stopped)
	assert.Equal(t, Unfit, KindOf(err))
}

func TestAStepThatWasTakenBackBringsNothingBackAnyMore(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	door := func(n string) func(*Request) { return func(r *Request) { r.Door = n } }
	k.must(Take, name("one"))
	k.Do("touch /srv/1")
	k.must(Restore, name("one"), turn("attempt-2"), door("one"))
	k.Do("touch /srv/2")
	k.must(Restore, name("one"), turn("undo"), keep("kept"))
	k.Do("touch /srv/next")
	_, err := k.ask(Restore, name("one"), turn("attempt-3"), door("one"))
	assert.Equal(t, Fenced, KindOf(err))

	// A step that puts back what was kept, and one that does so too late: after its own checkpoint is
	// restored, or gone.
	k.must(Take, name("redo"))
	k.must(Restore, name("kept"), turn("redo of redo"), door("redo"))
	assert.Contains(t, k.Files(), "/srv/2 ")
	k.must(Enter, name("redo"), workdir("/"))
	k.must(Restore, name("redo"), turn("undo"))
	assert.NotContains(t, k.Files(), "/srv/2 ")
	_, err = k.ask(Restore, name("kept"), turn("another"), door("redo"))
	assert.Equal(t, Fenced, KindOf(err))
	k.must(Drop, name("redo"))
	_, err = k.ask(Restore, name("kept"), turn("another"), door("redo"))
	assert.Equal(t, Fenced, KindOf(err))
	assert.Contains(t, k.Files(), "/srv/next ")
}

func TestBusyIsACheckpointThatProcessesStoodIn(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.must(Take, name("one"))
	k.Start("echo x; exec sleep 500")
	k.must(Take, name("two"))
	assert.False(t, k.must(Has, name("one")).Busy)
	assert.True(t, k.must(Has, name("two")).Busy)
	k.must(Restore, name("two"), turn("undo"))
	assert.True(t, k.must(Restored, name("two"), turn("undo")).Busy)
	is, err := HasLayers(k.dir, boxID)
	require.NoError(t, err)
	assert.True(t, is)
	k.must(Drop, func(r *Request) { r.Names = []string{"one", "two"} })
	k.must(Commit)
	is, err = HasLayers(k.dir, boxID)
	require.NoError(t, err)
	assert.False(t, is)
}

func TestALookIntoAContainerOfWhichNothingIsKeptLeavesNothing(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.Do("mkdir -p /srv; echo it >/srv/it")
	seen := k.must(Files, func(r *Request) { r.Skip = []string{"/proc", "/dev", "/sys"} }).Files
	assert.True(t,
		slices.ContainsFunc(seen, func(f stack.RootEntry) bool { return f.Path == "/srv/it" && f.Digest != "" }))
	assert.NoDirExists(t, filepath.Join(k.dir, boxID))
	_, err := k.ask(Files, func(r *Request) { r.PID = 0 })
	assert.Equal(t, Unfit, KindOf(err))
	assert.NoDirExists(t, filepath.Join(k.dir, boxID))
}

func TestLooksThatAreTakenTogether(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	assert.False(t, k.must(Fit).Yes, "nothing is kept yet")
	k.must(Take, name("one"))
	assert.True(t, k.must(Fit).Yes)
	k.Do("echo changed >/srv/a")
	parts := func(all ...Request) func(*Request) { return func(r *Request) { r.Parts = all } }

	all := k.must(Together,
		parts(Request{Op: Restored, Name: "one", Turn: "undo"}, Request{Op: Changes, Name: "one"}, Request{Op: Beside}))
	require.Len(t, all.Parts, 3)
	assert.False(t, all.Parts[0].Yes)
	assert.Equal(t, k.must(Changes, name("one")).Changes, all.Parts[1].Changes)
	assert.NotEmpty(t, all.Parts[1].Changes)
	assert.Equal(t, k.must(Beside).Changes, all.Parts[2].Changes)

	_, err := k.ask(Together, parts(Request{Op: Changes, Name: "other"}, Request{Op: Beside}))
	assert.Equal(t, Unknown, KindOf(err))
	_, err = k.ask(Together, stopped, parts(Request{Op: Changes, Name: "one"}, Request{Op: Beside}))
	assert.Equal(t, Unfit, KindOf(err))
	_, err = k.ask(Together, parts(Request{Op: Take, Name: "two"}))
	require.ErrorContains(t, err, "does more than look")
	assert.NotContains(t, k.book().Marks, "two")

	// What a restore has left is looked at with it, and so again.
	looks := parts(Request{Op: Restored, Name: "one", Turn: "undo"}, Request{Op: Changes, Name: "one"},
		Request{Op: Beside})
	for range 2 {
		back := k.must(Restore, name("one"), turn("undo"), looks)
		require.Len(t, back.Parts, 3)
		assert.True(t, back.Parts[0].Yes)
		assert.Equal(t, k.must(Changes, name("one")).Changes, back.Parts[1].Changes)
		assert.Equal(t, k.must(Beside).Changes, back.Parts[2].Changes)
		k.Do("echo changed >/srv/a")
	}
	assert.NotEmpty(t, k.must(Restore, name("one"), turn("undo"), looks).Parts[1].Changes, "it does not restore again")
	_, err = k.ask(Restore, name("one"), turn("undo"), parts(Request{Op: Take, Name: "two"}))
	require.ErrorContains(t, err, "does more than look")
	assert.NotContains(t, k.book().Marks, "two")
}
