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
)

// rollback undoes so that it can be redone, by force if need be.
func (b *bench) rollback(e activities.Entry) {
	b.t.Helper()
	d := activities.Decision{Redoable: true}
	undone, err := b.action("write").Undo(b.t.Context(), e, d)
	require.NoError(b.t, err)
	if undone.Outcome == activities.Drifted {
		d.Force = undone.Drift.Digest
		undone, err = b.action("write").Undo(b.t.Context(), e, d)
		require.NoError(b.t, err)
	}
	require.Equal(b.t, activities.Restored, undone.Outcome, "%+v", undone)
}

// redo is the entry of a redo, and what it came to.
func (b *bench) redo(action string, of activities.Entry, with params) (activities.Entry, activities.Result, error) {
	b.t.Helper()
	e := b.entry()
	e.Redoes = of.Token
	result, err := b.action(action).Apply(b.t.Context(), e, step(with), "")
	return e, result, err
}

// kept are the files that a rollback has kept.
func (b *bench) kept(e activities.Entry, name string) []string {
	b.t.Helper()
	found, err := filepath.Glob(b.path(".unwind/redo/" + e.Token + "/*/*/*/" + name))
	require.NoError(b.t, err)
	return found
}

// token is a document of a token.
func (b *bench) document(e activities.Entry, name string) string {
	return b.path(".unwind/journal/tokens/" + e.Token + "/" + name)
}

func TestARedoBringsBackAllThatARollbackTookAway(t *testing.T) {
	b := newBench(t)
	e := b.entry()
	with := params{"path": b.path("a/new"), "content": "ours\n"}
	require.NoError(t, b.apply("write", e, with))
	// And what others have put there since.
	b.put("a/sub/two", "theirs")
	require.NoError(t, os.Chmod(b.path("a/sub/two"), 0o755|fs.ModeSetuid))
	require.NoError(t, unix.Setxattr(b.path("a/sub/two"), "user.test", []byte{0, 1, 255}, 0))
	require.NoError(t, os.Symlink("/nowhere", b.path("a/dangling")))
	require.NoError(t, os.Symlink("sub", b.path("a/inside")))
	require.NoError(t, unix.Mkfifo(b.path("a/pipe"), 0o620))
	require.NoError(t, os.Mkdir(b.path("a/empty"), 0o700))
	require.NoError(t, os.Chmod(b.path("a/empty"), 0o700|fs.ModeSticky))
	require.NoError(t, os.WriteFile(b.path("a/not \xff UTF-8"), []byte("x"), 0o604))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Lchown(b.path("a/sub"), 1234, 4321))
		require.NoError(t, os.Lchown(b.path("a/dangling"), 1234, 4321))
	}
	age(t, b.path("a"))
	left := describe(t, b.root)
	b.rollback(e)
	require.NoDirExists(t, b.path("a"))
	for range 2 { // a redo that was undone can be redone: what is kept stays until it is released
		again, result, err := b.redo("write", e, with)
		require.NoError(t, err)
		require.Equal(t, left, describe(t, b.root))
		require.Equal(t, "redo: create "+b.path("a/new")+" (5 bytes)", result.Summary)
		require.Equal(t, b.path("a/new"), result.Outputs["path"])
		b.mustRestore(again)
		require.NoDirExists(t, b.path("a"))
	}
}

// What the step would do now is not what it did then.
func TestARedoDoesNotLookAtTheSource(t *testing.T) {
	b := newBench(t)
	b.put("source", "first")
	e := b.entry()
	with := params{"path": b.path("f"), "source": b.path("source")}
	require.NoError(t, b.apply("write", e, with))
	b.rollback(e)
	require.NoError(t, os.Remove(b.path("source")))
	_, _, err := b.redo("write", e, with)
	require.NoError(t, err)
	require.Equal(t, "first", b.read("f"))
}

func TestARedoOfAStepThatHadChangedNothingGoesForward(t *testing.T) {
	b := newBench(t)
	e := b.entry()
	undone, err := b.action("write").Undo(t.Context(), e, activities.Decision{Redoable: true})
	require.NoError(t, err)
	require.Equal(t, activities.Nothing, undone.Outcome)
	again, result, err := b.redo("write", e, params{"path": b.path("f"), "content": "new"})
	require.NoError(t, err)
	require.Equal(t, "create "+b.path("f")+" (3 bytes)", result.Summary)
	require.Equal(t, "new", b.read("f"))
	b.mustRestore(again)
	require.NoFileExists(t, b.path("f"))
}

func TestARedoIsRefusedWithTheWayOut(t *testing.T) {
	with := func(b *bench) params { return params{"path": b.path("d/f"), "content": "new"} }
	undo := func(b *bench, e activities.Entry) { b.mustRestore(e) }
	for name, c := range map[string]struct {
		before func(b *bench, e activities.Entry)
		want   activities.ErrorType
		says   string
	}{
		"never rolled back":      {func(*bench, activities.Entry) {}, activities.Refused, "has not been rolled back"},
		"undone by its own task": {undo, activities.Refused, "kept nothing for a redo; run its task again"},
		"released": {func(b *bench, e activities.Entry) {
			b.rollback(e)
			require.NoError(b.t, b.action("write").Release(b.t.Context(), e))
		}, activities.Refused, "has expired and been released; run its task again"},
		"forgotten": {func(b *bench, e activities.Entry) {
			b.rollback(e)
			require.NoError(b.t, b.action("write").Release(b.t.Context(), e))
			require.NoError(b.t, b.world.Records.Forget(b.t.Context(), e.Token))
		}, activities.Refused, "or has been forgotten"},
		"written to since": {func(b *bench, e activities.Entry) {
			b.rollback(e)
			b.put("d/f", "theirs")
		}, activities.Refused, "d/f is not as the rollback left it"},
		"deleted since": {func(b *bench, e activities.Entry) {
			b.rollback(e)
			require.NoError(b.t, os.Remove(b.path("d/f")))
		}, activities.Refused, "run the task again instead of a redo"},
		"touched since": {func(b *bench, e activities.Entry) {
			b.rollback(e)
			require.NoError(b.t, os.Chtimes(b.path("d/f"), folderTime, folderTime))
		}, activities.Refused, "is not as the rollback left it"},
		"its folder is gone": {func(b *bench, e activities.Entry) {
			b.rollback(e)
			require.NoError(b.t, os.RemoveAll(b.path("d")))
		}, activities.Refused, "d/f is not as the rollback left it"},
		"kept content is changed": {func(b *bench, e activities.Entry) {
			b.rollback(e)
			require.NoError(b.t, os.WriteFile(b.kept(e, "f")[0], []byte("NEW"), 0o600))
		}, activities.DamagedRecord, "has changed since; nothing was touched"},
		"kept content is truncated": {func(b *bench, e activities.Entry) {
			b.rollback(e)
			require.NoError(b.t, os.Truncate(b.kept(e, "f")[0], 2))
		}, activities.DamagedRecord, "run the task again"},
		"kept mode is changed": {func(b *bench, e activities.Entry) {
			b.rollback(e)
			require.NoError(b.t, os.Chmod(b.kept(e, "f")[0], 0o777))
		}, activities.DamagedRecord, "has changed since; nothing was touched"},
		"kept content is lost": {func(b *bench, e activities.Entry) {
			b.rollback(e)
			require.NoError(b.t, os.RemoveAll(b.path(".unwind/redo/"+e.Token)))
		}, activities.DamagedRecord, "has changed since; nothing was touched"},
		"the undo's plan is truncated": {func(b *bench, e activities.Entry) {
			b.rollback(e)
			require.NoError(b.t, os.Truncate(b.document(e, "plan"), 40))
		}, activities.DamagedRecord, "plan"},
		"the record is truncated": {func(b *bench, e activities.Entry) {
			b.rollback(e)
			require.NoError(b.t, os.Truncate(b.document(e, "record"), 40))
		}, activities.DamagedRecord, "record"},
		"the outcome is truncated": {func(b *bench, e activities.Entry) {
			b.rollback(e)
			require.NoError(b.t, os.Truncate(b.document(e, "outcome"), 4))
		}, activities.DamagedRecord, "outcome"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put("d/f", "old")
			e := b.entry()
			require.NoError(t, b.apply("write", e, with(b)))
			c.before(b, e)
			before := describe(t, b.root)
			again, _, err := b.redo("write", e, with(b))
			requireError(t, err, c.want, c.says)
			require.Equal(t, before, describe(t, b.root))
			planned := again
			planned.Token = activities.NewToken(again.Token, "planned", 1)
			_, err = b.action("write").Plan(t.Context(), planned, step(with(b)))
			requireError(t, err, c.want, c.says)
			undone, err := b.undo(again)
			require.NoError(t, err)
			require.Equal(t, activities.Nothing, undone.Outcome)
			require.Equal(t, before, describe(t, b.root))
		})
	}
}

func TestARedoOfSeveralFilesIsDoneWholeOrNotAtAll(t *testing.T) {
	b := newBench(t)
	with := params{"files": []params{{"path": b.put("one", "old"), "content": "1"},
		{"path": b.put("two", "old"), "content": "2"}}}
	e := b.entry()
	require.NoError(t, b.apply("write", e, with))
	b.rollback(e)
	before := describe(t, b.root)
	require.NoError(t, os.Truncate(b.kept(e, "two")[0], 0))
	_, _, err := b.redo("write", e, with)
	requireError(t, err, activities.DamagedRecord, "two")
	require.Equal(t, before, describe(t, b.root))
}

func TestAFoldersTimeStaysWithWhoWorkedInItSinceTheRollback(t *testing.T) {
	b := newBench(t)
	path := b.put("d/f", "old")
	age(t, b.root)
	e := b.entry()
	require.NoError(t, b.apply("delete", e, params{"path": path}))
	b.rollback(e)
	b.put("d/theirs", "")
	_, _, err := b.redo("delete", e, params{"path": path})
	require.NoError(t, err)
	info, err := os.Stat(b.path("d"))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), info.ModTime(), time.Minute)
	require.NoFileExists(t, path)
}

func TestReleasingARollbackLeavesOnlyTombstones(t *testing.T) {
	b := newBench(t)
	e := b.entry()
	require.NoError(t, b.apply("write", e, params{"path": b.path("f"), "content": strings.Repeat("x", 1000)}))
	b.rollback(e)
	require.Len(t, b.kept(e, "f"), 1)
	require.Greater(t, b.listed(e).Bytes, int64(1000))
	for range 2 {
		require.NoError(t, b.action("write").Release(t.Context(), e))
	}
	require.NoDirExists(t, b.path(".unwind/redo/"+e.Token))
	es, err := os.ReadDir(b.path(".unwind/trash"))
	require.NoError(t, err)
	require.Empty(t, es)
	got := b.listed(e)
	require.Equal(t, activities.RecordReleased, got.State)
	require.Less(t, got.Bytes, int64(2000))
	undone, err := b.undo(e)
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome, "the outcome stays")
}

func TestAReleaseThatWasCutOffIsListedAndDoneAgain(t *testing.T) {
	for name, c := range map[string]struct {
		before func(b *bench, e activities.Entry)
		cutOff string
		listed activities.RecordState
	}{
		"of a committed step": {func(b *bench, e activities.Entry) {
			require.NoError(t, b.world.Records.Commit(t.Context(), e.Token, time.Now().Add(time.Hour)))
		}, "release-dropped", activities.RecordCommitted},
		"of a committed step, just begun": {func(b *bench, e activities.Entry) {
			require.NoError(t, b.world.Records.Commit(t.Context(), e.Token, time.Now().Add(time.Hour)))
		}, "released", activities.RecordCommitted},
		"of a rollback": {(*bench).rollback, "release-dropped", activities.RecordUndone},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			path := b.put("f", strings.Repeat("old", 1000))
			e := b.entry()
			require.NoError(t, b.apply("write", e, params{"path": path, "content": strings.Repeat("new", 1000)}))
			c.before(b, e)
			at(t, "file.write:"+c.cutOff, func() { panic("dies in the middle") })
			require.Panics(t, func() { _ = b.action("write").Release(t.Context(), e) })
			got := b.listed(e)
			require.Equal(t, c.listed, got.State)
			require.Equal(t, e.Place, got.Entry.Place, "with all that another Release needs")
			if c.listed == activities.RecordCommitted {
				require.False(t, got.Until.After(time.Now()), "at once")
			}
			require.NoError(t, b.action("write").Release(t.Context(), e))
			got = b.listed(e)
			require.Equal(t, activities.RecordReleased, got.State)
			require.Less(t, got.Bytes, int64(3000))
		})
	}
}

func (b *bench) listed(e activities.Entry) activities.Record {
	b.t.Helper()
	records, _, err := b.world.Records.Records(b.t.Context())
	require.NoError(b.t, err)
	var found []activities.Record
	for _, r := range records {
		if r.Entry.Token == e.Token {
			found = append(found, r)
		}
	}
	require.Len(b.t, found, 1)
	return found[0]
}

func TestAnUndoThatWaitsForAPersonIsNotReleased(t *testing.T) {
	b := newBench(t)
	path := b.put("f", "old")
	e := b.entry()
	require.NoError(t, b.apply("write", e, params{"path": path, "content": "ours"}))
	b.put("f", "theirs")
	undone, err := b.undo(e)
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, undone.Outcome)
	requireError(t, b.action("write").Release(t.Context(), e), activities.Refused, "has begun and needs the originals")
	requireError(t, b.world.Records.Forget(t.Context(), e.Token), activities.Refused)
	undone, err = b.action("write").Undo(t.Context(), e, activities.Decision{Force: undone.Drift.Digest})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome)
	require.Equal(t, "old", b.read("f"))
}

func TestAnUndoThatHasEndedInOneRootOnlyIsNotReleased(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	b := newBench(t, one, two)
	b.put("f", "old")
	e := b.entry()
	require.NoError(t, b.apply("write", e, params{"path": one + "/f", "content": "x"}))
	at(t, "file.write:undone", func() { panic("dies between two roots") })
	require.Panics(t, func() { _, _ = b.undo(e) })
	requireError(t, b.action("write").Release(t.Context(), e), activities.Refused, "has begun")
	b.mustRestore(e)
	require.Equal(t, "old", b.read("f"))
	require.NoError(t, b.action("write").Release(t.Context(), e))
	b.mustRestore(e)
}

func TestSeveralRootsListATokenOnce(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	b := newBench(t, one, two)
	e := b.entry()
	require.NoError(t, b.apply("write", e, params{"path": two + "/f", "content": "x"}))
	require.Equal(t, activities.RecordOpen, b.listed(e).State)
	until := time.Now().Add(time.Hour)
	require.NoError(t, b.world.Records.Commit(t.Context(), e.Token, until))
	require.True(t, b.listed(e).Until.Equal(until))
	b.rollback(e)
	got := b.listed(e)
	require.Equal(t, activities.RecordUndone, got.State)
	require.Equal(t, e.Token, got.Entry.Token)
	require.Equal(t, e.Place, got.Entry.Place)
	_, _, err := b.redo("write", e, params{"path": two + "/f", "content": "x"})
	require.NoError(t, err)
	require.NoError(t, b.action("write").Release(t.Context(), e))
	require.Equal(t, activities.RecordReleased, b.listed(e).State)
	require.NoError(t, b.world.Records.Forget(t.Context(), e.Token))
	records, problems, err := b.world.Records.Records(t.Context())
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Len(t, records, 1, "that of the redo")

	// With its record damaged, a token is not what its tombstone in the other root says.
	broken := b.entry()
	require.NoError(t, b.apply("write", broken, params{"path": two + "/g", "content": "x"}))
	b.mustRestore(broken)
	require.NoError(t, os.Truncate(filepath.Join(two, ".unwind/journal/tokens", broken.Token, "record"), 10))
	records, problems, err = b.world.Records.Records(t.Context())
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.ErrorContains(t, problems[0], broken.Token)
	require.Len(t, records, 1)
}
