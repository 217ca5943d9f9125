package file_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// at runs do once, when the process comes to a point; the world is one, so such tests do not run
// side by side.
func at(t *testing.T, label string, do func()) {
	t.Helper()
	done := false
	point.Hook(func(l string) {
		if l == label && !done {
			done = true
			do()
		}
	})
	t.Cleanup(func() {
		point.Hook(nil)
		require.True(t, done, "the point %s was not reached", label)
	})
}

func TestTheOriginalItselfComesBack(t *testing.T) {
	b := newBench(t)
	path := b.put("f", "old")
	require.NoError(t, os.Link(path, b.path("hard")))
	open, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer open.Close()
	var before, after unix.Stat_t
	require.NoError(t, unix.Lstat(path, &before))
	e := b.entry()
	require.NoError(t, b.apply("write", e, params{"path": path, "content": "new"}))
	require.Equal(t, "old", b.read("hard"), "a hard link still has the old content")
	b.mustRestore(e)
	require.NoError(t, unix.Lstat(path, &after))
	require.Equal(t, before.Ino, after.Ino)
	require.Equal(t, before.Nlink, after.Nlink)
	_, err = open.WriteAt([]byte("OLD"), 0)
	require.NoError(t, err)
	require.Equal(t, "OLD", b.read("f"))
}

func TestAFolderThatIsGoneIsNamedAndTheOriginalWaits(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.Mkdir(b.path("d"), 0o755))
	path := b.put("d/f", "old")
	e := b.entry()
	require.NoError(t, b.apply("write", e, params{"path": path, "content": "new"}))
	require.NoError(t, os.RemoveAll(b.path("d")))
	drifted, err := b.undo(e)
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, drifted.Outcome)
	force := func() (activities.Undone, error) {
		return b.action("write").Undo(t.Context(), e, activities.Decision{Force: drifted.Drift.Digest})
	}
	for range 2 {
		_, err = force()
		requireError(t, err, activities.Refused, "folder "+b.path("d")+", to which f goes back, is gone",
			"make the folder again, and retry")
	}
	require.NoError(t, os.Mkdir(b.path("d"), 0o755))
	undone, err := force()
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome)
	require.Equal(t, "old", b.read("d/f"))
}

func TestADamagedOriginalStopsTheUndoBeforeItTouchesAnything(t *testing.T) {
	b := newBench(t)
	one, two := b.put("one", "old one"), b.put("two", "old two")
	for _, damage := range []func(kept string) error{
		func(kept string) error { return os.WriteFile(kept, []byte("bad two"), 0o644) },
		os.Remove,
	} {
		e := b.entry()
		require.NoError(t,
			b.apply("write", e, params{"files": []params{{"path": one, "content": "1"}, {"path": two, "content": "2"}}}))
		kept, err := filepath.Glob(b.path(".unwind/stage/" + e.Token + "/*/1/two"))
		require.NoError(t, err)
		require.Len(t, kept, 1)
		require.NoError(t, damage(kept[0]))
		for range 2 {
			_, err = b.undo(e)
			requireError(t, err, activities.DamagedRecord, two)
			require.Equal(t, "1", b.read("one"))
			require.Equal(t, "2", b.read("two"))
		}
	}
	e := b.entry()
	require.NoError(t, b.apply("write", e, params{"path": one, "content": "x"}))
	record := b.path(".unwind/journal/tokens/" + e.Token + "/record")
	raw, err := os.ReadFile(record)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(record, []byte(strings.Replace(string(raw), "one", "two", 1)), 0o600))
	_, err = b.undo(e)
	requireError(t, err, activities.DamagedRecord)
	require.Equal(t, "x", b.read("one"))
}

func TestWhatSomeoneElsePutThereBetweenLookingAndReplacingIsGivenBack(t *testing.T) {
	for name, theirs := range map[string]func(path string) error{
		"written": func(path string) error { return os.WriteFile(path, []byte("theirs"), 0o644) },
		"moved": func(path string) error {
			return os.WriteFile(path+".tmp", []byte("theirs"), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			path := b.put("f", "old")
			e := b.entry()
			at(t, "file.write:recorded", func() {
				require.NoError(t, theirs(path))
				if name == "moved" {
					require.NoError(t, os.Rename(path+".tmp", path))
				}
			})
			requireError(t, b.apply("write", e, params{"path": path, "content": "ours"}), activities.ActionDenied,
				"changed by someone else", path)
			require.Equal(t, "theirs", b.read("f"))
			undone, err := b.undo(e)
			require.NoError(t, err)
			require.Equal(t, activities.Nothing, undone.Outcome)
			require.Equal(t, "theirs", b.read("f"))
		})
	}
}

func TestWhatAppearsWhereAFileIsToBeCreatedIsNotReplaced(t *testing.T) {
	b := newBench(t)
	e := b.entry()
	at(t, "file.write:recorded", func() { b.put("new", "theirs") })
	requireError(t, b.apply("write", e, params{"path": b.path("new"), "content": "ours"}), activities.ActionDenied)
	_, err := b.undo(e)
	require.NoError(t, err)
	require.Equal(t, "theirs", b.read("new"))
}

func TestAChangeInTheMiddleOfAnUndoIsDriftAndNotLost(t *testing.T) {
	b := newBench(t)
	path := b.put("f", "old")
	e := b.entry()
	require.NoError(t, b.apply("write", e, params{"path": path, "content": "ours"}))
	changed := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at(t, "file.write:undo-planned", func() {
		b.put("f", "theirs")
		require.NoError(t, os.Chtimes(path, changed, changed))
	})
	_, err := b.undo(e)
	requireError(t, err, activities.ActionFailed, "changed while it was being restored; retry")
	require.Equal(t, "theirs", b.read("f"))
	undone, err := b.undo(e)
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, undone.Outcome)
	require.Contains(t, undone.Drift.Diff, "(now, changed 2026-05-01T12:00:00Z, owner ", "what is known of who changed it")
	require.Equal(t, "theirs", b.read("f"))
	undone, err = b.action("write").Undo(t.Context(), e, activities.Decision{Force: undone.Drift.Digest})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome)
	require.Equal(t, "old", b.read("f"))
}

func TestAFolderThatTheStepMadeGoesOnlyWithNothingOfOthersInIt(t *testing.T) {
	b := newBench(t)
	e := b.entry()
	require.NoError(t, b.apply("write", e, params{"path": b.path("a/b/new"), "content": "ours"}))
	b.put("a/theirs", "theirs")
	undone, err := b.undo(e)
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, undone.Outcome)
	require.Contains(t, undone.Drift.Diff, "+ theirs file 0644")
	require.Equal(t, "theirs", b.read("a/theirs"))
	require.NoError(t, os.Remove(b.path("a/theirs")))
	b.mustRestore(e)
	require.NoDirExists(t, b.path("a"))
}

func TestDriftIsShownLineByLineButNothingPrivate(t *testing.T) {
	b := newBench(t)
	b.put("secret/source", "TOP SECRET\n")
	require.NoError(t, os.Chmod(b.put("owner-only", "old SECRET\n"), 0o600))
	for name, with := range map[string]params{
		"open":       {"content": "one\ntwo\nthree\n"},
		"sourced":    {"source": b.path("secret/source")},
		"owner-only": {"content": "new SECRET\n"},
		"closed":     {"content": "new SECRET\n", "mode": "0600"},
	} {
		with["path"] = b.path(name)
		e := b.entry()
		change, err := b.action("write").Plan(t.Context(), e, step(with))
		require.NoError(t, err)
		require.NotContains(t, change.Diff, "SECRET", name)
		require.NoError(t, b.apply("write", e, with))
		f, err := os.OpenFile(b.path(name), os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteString("another SECRET\n")
		require.NoError(t, err)
		require.NoError(t, f.Close())
		undone, err := b.undo(e)
		require.NoError(t, err)
		require.Equal(t, activities.Drifted, undone.Outcome)
		if name == "open" {
			require.Contains(t, change.Diff, "@@ -0,0 +1,3 @@\n+one\n+two\n+three\n")
			require.Contains(t, undone.Drift.Diff, "@@ -1,3 +1,4 @@\n one\n two\n three\n+another SECRET\n")
			continue
		}
		require.NotContains(t, undone.Drift.Diff, "SECRET", name)
		require.Contains(t, undone.Drift.Diff, "bytes sha256:")
	}
}

func TestAFoldersTimeComesBackUnlessOthersWorkedInIt(t *testing.T) {
	b := newBench(t)
	path := b.put("d/f", "old")
	age(t, b.root)
	before := describe(t, b.root)
	one, two := b.entry(), b.entry()
	require.NoError(t, b.apply("write", one, params{"path": path, "content": "new"}))
	require.NoError(t, b.apply("write", two, params{"path": b.path("d/g"), "content": "new"}))
	b.mustRestore(two)
	b.mustRestore(one)
	require.Equal(t, before, describe(t, b.root))

	e := b.entry()
	require.NoError(t, b.apply("write", e, params{"path": path, "content": "new"}))
	b.put("d/theirs", "")
	require.NoError(t, os.Chtimes(b.path("d"), folderTime, folderTime))
	b.mustRestore(e)
	info, err := os.Stat(b.path("d"))
	require.NoError(t, err)
	require.True(t, info.ModTime().Equal(folderTime), "%v", info.ModTime())
}

func TestNothingIsLeftInTheStoreButTombstones(t *testing.T) {
	b := newBench(t)
	b.put("tree/sub/f", "old")
	planned, undone, released, failed := b.entry(), b.entry(), b.entry(), b.entry()
	_, err := b.action("write").Plan(t.Context(), planned, step(params{"path": b.path("x/y"), "content": "z"}))
	require.NoError(t, err)
	require.NoError(t, b.apply("delete", undone, params{"path": b.path("tree")}))
	b.mustRestore(undone)
	require.NoError(t, b.apply("delete", released, params{"path": b.path("tree")}))
	require.NoError(t, b.action("delete").Release(t.Context(), released))
	missing := activities.Check{JSON: &activities.JSONCheck{}}
	requireError(t, b.apply("write", failed, params{"path": b.path("bad.json"), "content": "{"}, missing),
		activities.CheckFailed, "bad.json is not JSON")
	require.NoFileExists(t, b.path("bad.json"))
	var found []string
	for _, folder := range []string{"stage", "undo", "trash"} {
		top := b.path(".unwind/" + folder)
		require.NoError(t, filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			kind := "f"
			if err == nil && d.IsDir() {
				kind = "d"
			}
			if path != top {
				found = append(found, folder+" "+kind+" "+strings.TrimPrefix(path, top+"/"))
			}
			return err
		}))
	}
	require.ElementsMatch(t, []string{
		"stage d " + planned.Token, "stage f " + undone.Token, "undo f " + undone.Token, "stage f " + released.Token,
		"stage d " + failed.Token,
	}, found)
}
