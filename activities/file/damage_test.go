package file_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// Whatever is damaged of what a step of two files has kept: the undo says so, each time, and
// touches neither.
func TestADamagedJournalIsNeverHalfRestored(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(b *bench, e activities.Entry) error
		says   string
	}{
		"original truncated": {func(b *bench, e activities.Entry) error { return os.Truncate(b.original(e, "two"), 3) },
			"the original of"},
		"original emptied": {func(b *bench, e activities.Entry) error { return os.Truncate(b.original(e, "two"), 0) },
			"the original of"},
		"original of another content": {func(b *bench, e activities.Entry) error {
			return os.WriteFile(b.original(e, "two"), []byte("bad two"), 0o600)
		}, "the original of"},
		"original of another mode": {func(b *bench,
			e activities.Entry) error {
			return os.Chmod(b.original(e, "two"), 0o600)
		}, "the original of"},
		"original of another time": {func(b *bench, e activities.Entry) error {
			return os.Chtimes(b.original(e, "two"), folderTime, folderTime)
		}, "the original of"},
		"original with an attribute": {func(b *bench, e activities.Entry) error {
			return unix.Setxattr(b.original(e, "two"), "user.test", []byte("x"), 0)
		}, "the original of"},
		"original that is a folder": {func(b *bench, e activities.Entry) error {
			at := b.original(e, "two")
			return errorsOf(os.Remove(at), os.Mkdir(at, 0o755))
		}, "the original of"},
		"original lost": {func(b *bench, e activities.Entry) error { return os.Remove(b.original(e, "two")) },
			"the original of"},
		"all originals lost": {func(b *bench,
			e activities.Entry) error {
			return os.RemoveAll(b.path(".unwind/stage/" + e.Token))
		}, "the original of"},
		"record and its spare lost": {func(b *bench, e activities.Entry) error {
			return errorsOf(os.Remove(b.document(e, "record")), os.Remove(b.document(e, "record-spare")))
		}, "is gone from"},
		"record truncated": {func(b *bench, e activities.Entry) error { return os.Truncate(b.document(e, "record"), 100) },
			"record"},
		"record emptied": {func(b *bench, e activities.Entry) error { return os.Truncate(b.document(e, "record"), 0) },
			"record"},
		"record changed": {func(b *bench,
			e activities.Entry) error {
			return swapBytes(b.document(e, "record"), "one", "two")
		}, "does not match its digest"},
		"mark of the forward": {func(b *bench, e activities.Entry) error { return os.Truncate(b.document(e, "left"), 5) },
			"left"},
		"the tombstone itself": {func(b *bench, e activities.Entry) error {
			return os.WriteFile(b.document(e, "fate"), []byte("{}"), 0o600)
		}, "fate"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e := b.entry()
			with := params{"files": []params{{"path": b.put("one", "old one"), "content": "1"},
				{"path": b.put("two", "old two"), "content": "2"}}}
			require.NoError(t, b.apply("write", e, with))
			left := describe(t, b.root)
			require.NoError(t, c.damage(b, e))
			for range 2 {
				_, err := b.undo(e)
				requireError(t, err, activities.DamagedRecord, c.says)
				require.Equal(t, left, describe(t, b.root))
				_, err = b.action("write").Undo(t.Context(), e, activities.Decision{Redoable: true, Force: "sha256:anything"})
				requireError(t, err, activities.DamagedRecord, c.says)
				require.Equal(t, left, describe(t, b.root))
			}
		})
	}
}

// original is where a file is kept that a step has replaced.
func (b *bench) original(e activities.Entry, name string) string {
	b.t.Helper()
	found, err := filepath.Glob(b.path(".unwind/stage/" + e.Token + "/*/*/" + name))
	require.NoError(b.t, err)
	require.Len(b.t, found, 1)
	return found[0]
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func swapBytes(file, old, replacement string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strings.ReplaceAll(string(raw), old, replacement)), 0o600)
}

// small is a root on a filesystem of its own, of so many bytes.
func small(t *testing.T, size string) string {
	t.Helper()
	testrun.NeedRoot(t, "full disks")
	dir := t.TempDir()
	if err := unix.Mount("unwind-test", dir, "tmpfs", 0, "size="+size+",mode=755"); err != nil {
		testrun.Skipf(t, "full disks are not tested: a small filesystem cannot be mounted: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	require.NoError(t, os.Mkdir(filepath.Join(dir, "room"), 0o755))
	return dir
}

// fill leaves no room on a filesystem; the returned function makes some again.
func fill(t *testing.T, root string) (free func()) {
	t.Helper()
	ballast := filepath.Join(root, "room", "ballast")
	f, err := os.Create(ballast)
	require.NoError(t, err)
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	return func() { require.NoError(t, os.Remove(ballast)) }
}

// shape is a root without the ballast and its folder.
func shape(t *testing.T, root string) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(describe(t, root)) {
		if !strings.HasPrefix(line, "/room") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func TestAFullDiskIsNamedAndNothingIsHalfDone(t *testing.T) {
	root := small(t, "1m")
	b := newBench(t, root)
	with := params{"files": []params{{"path": b.put("one", "old one"), "content": "1"},
		{"path": b.put("two", "old two"), "content": strings.Repeat("2", 50_000)}}}
	before := shape(t, root)
	full := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, unix.ENOSPC)
		requireError(t, err, activities.ActionFailed, root)
	}
	e := b.entry()
	free := fill(t, root)
	for range 2 {
		full(b.apply("write", e, with))
		require.Equal(t, before, shape(t, root))
		_, err := b.action("write").Plan(t.Context(), e, step(with))
		full(err)
	}
	free()
	require.NoError(t, b.apply("write", e, with))
	left := shape(t, root)

	free = fill(t, root)
	_, err := b.undo(e)
	full(err)
	require.Equal(t, left, shape(t, root))
	free()
	b.rollback(e)
	require.Equal(t, before, shape(t, root))

	again := b.entry()
	again.Redoes = e.Token
	free = fill(t, root)
	_, err = b.world.Journal(t.Context())
	require.ErrorIs(t, err, unix.ENOSPC, "a task that is compiled now is refused")
	_, err = b.action("write").Apply(t.Context(), again, step(with), "")
	full(err)
	require.Equal(t, before, shape(t, root))
	free()
	_, err = b.action("write").Apply(t.Context(), again, step(with), "")
	require.NoError(t, err)
	require.Equal(t, left, shape(t, root))
	b.mustRestore(again)
	require.Equal(t, before, shape(t, root))
}

// The disk filled at any point of an undo.
func TestADiskThatFillsInTheMiddleOfAnUndo(t *testing.T) {
	for label, touched := range map[string]bool{
		"undo-begun": false, "undo-fenced": false, "undo-claimed": false, "undo-planned": true, "undo-taken-back": true,
		"undo-settled": true,
	} {
		t.Run(label, func(t *testing.T) {
			root := small(t, "1m")
			b := newBench(t, root)
			e := b.entry()
			with := params{"files": []params{{"path": b.put("one", "old one"), "content": "1"},
				{"path": b.put("two", "old two"), "content": "2"}}}
			before := shape(t, root)
			require.NoError(t, b.apply("write", e, with))
			left := shape(t, root)
			var free func()
			at(t, "file.write:"+label, func() { free = fill(t, root) })
			_, err := b.undo(e)
			if err != nil {
				require.ErrorIs(t, err, unix.ENOSPC)
				requireError(t, err, activities.ActionFailed, root)
				if !touched {
					require.Equal(t, left, shape(t, root))
				}
			}
			free()
			b.mustRestore(e)
			require.Equal(t, before, shape(t, root))
		})
	}
}
