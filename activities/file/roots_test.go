package file_test

import (
	"crypto/rand"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/testrun"
)

// bench is a world in a test, with a fresh root unless it is told others.
type bench struct {
	t     *testing.T
	root  string
	world activities.World
}

func newBench(t *testing.T, roots ...string) *bench {
	t.Helper()
	if len(roots) == 0 {
		roots = []string{t.TempDir()}
	}
	w, err := file.New(file.Config{Roots: roots})
	require.NoError(t, err)
	return &bench{t: t, root: roots[0], world: w}
}

func (b *bench) path(name string) string { return filepath.Join(b.root, name) }

func (b *bench) put(name, content string) string {
	b.t.Helper()
	require.NoError(b.t, os.MkdirAll(filepath.Dir(b.path(name)), 0o755))
	require.NoError(b.t, os.WriteFile(b.path(name), []byte(content), 0o644))
	return b.path(name)
}

func (b *bench) read(name string) string {
	b.t.Helper()
	raw, err := os.ReadFile(b.path(name))
	require.NoError(b.t, err)
	return string(raw)
}

// entry makes the entry of a new step.
func (b *bench) entry() activities.Entry {
	b.t.Helper()
	place, err := b.world.Journal(b.t.Context())
	require.NoError(b.t, err)
	return activities.Entry{Version: 1, Token: activities.NewToken(rand.Text(), "step", 1),
		Place: activities.Place{Journal: place}}
}

func (b *bench) action(name string) activities.Action {
	return activities.NewRegistry(b.world).Action("file." + name)
}

func step(with params, checks ...activities.Check) activities.Step {
	raw, err := json.Marshal(with)
	if err != nil {
		panic(err)
	}
	return activities.Step{ID: "step", With: raw, Checks: checks}
}

func (b *bench) apply(action string, e activities.Entry, with params, checks ...activities.Check) error {
	ctx := activities.WithCheckCommands(b.t.Context(), []string{"*"})
	_, err := b.action(action).Apply(ctx, e, step(with, checks...), "")
	return err
}

func (b *bench) undo(e activities.Entry) (activities.Undone, error) {
	return b.action("write").Undo(b.t.Context(), e, activities.Decision{})
}

func (b *bench) mustRestore(e activities.Entry) {
	b.t.Helper()
	undone, err := b.undo(e)
	require.NoError(b.t, err)
	require.Equal(b.t, activities.Restored, undone.Outcome, "%+v", undone)
}

func requireError(t *testing.T, err error, want activities.ErrorType, parts ...string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, activities.TypeOf(err), "%v", err)
	for _, part := range parts {
		require.Contains(t, err.Error(), part)
	}
}

func TestNothingOutsideOfTheRootsIsTouched(t *testing.T) {
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "victim"), []byte("theirs"), 0o644))
	b := newBench(t)
	b.put("inside/file", "ours")
	for link, to := range map[string]string{
		"absolute": outside, "relative": "../" + filepath.Base(outside), "tofile": outside + "/victim", "loop": "loop",
		"inside/up": "../..", "chain": "absolute", "store": ".unwind",
	} {
		require.NoError(t, os.Symlink(to, b.path(link)))
	}
	before := describe(t, outside)
	for path, why := range map[string]string{
		outside + "/victim":              "is outside the allowed roots",
		"inside/file":                    "is not an absolute path",
		b.root + "/../x":                 "is outside the allowed roots",
		b.root + "/a/../../x":            "is outside the allowed roots",
		b.root:                           "is itself an allowed root",
		b.root + "/absolute/victim":      "is outside the allowed roots",
		b.root + "/relative/victim":      "is outside the allowed roots",
		b.root + "/chain/new/file":       "is outside the allowed roots",
		b.root + "/inside/up/up":         "is outside the allowed roots",
		b.root + "/loop/x":               "too many symlinks",
		b.root + "/inside/file/x":        "which is not a folder",
		b.root + "/.unwind/journal/id":   "holds undo data",
		b.root + "/store/journal/id":     "holds undo data",
		b.root + "/inside/../.unwind/id": "holds undo data",
		b.root + "\x00":                  "is not an absolute path",
	} {
		for _, action := range []string{"write", "delete"} {
			with := params{"path": path}
			if action == "write" {
				with["content"] = "stolen"
			}
			requireError(t, b.apply(action, b.entry(), with), activities.Refused, why, "path: ", b.root)
		}
	}
	requireError(t, b.apply("write", b.entry(), params{"path": b.root + "/tofile", "content": "x"}), activities.Refused,
		"outside")
	requireError(t, b.apply("write", b.entry(), params{"path": b.root + "/new", "source": outside + "/victim"}),
		activities.Refused, "source: ", "outside")
	requireError(t, b.apply("write", b.entry(), params{"path": b.root + "/new", "source": b.root + "/tofile"}),
		activities.Refused, "source: ", "outside")
	check := activities.Check{JSON: &activities.JSONCheck{File: b.root + "/tofile"}}
	requireError(t, b.apply("write", b.entry(), params{"path": b.root + "/new", "content": "x"}, check),
		activities.Refused, "outside")
	require.Equal(t, before, describe(t, outside))

	// The link itself is inside.
	e := b.entry()
	require.NoError(t, b.apply("delete", e, params{"path": b.root + "/tofile"}))
	require.NoFileExists(t, b.path("tofile"))
	require.Equal(t, before, describe(t, outside))
	b.mustRestore(e)
	require.Equal(t, "theirs", b.read("tofile"))
}

func TestASymlinkInsideOfTheRootsIsFollowed(t *testing.T) {
	b := newBench(t)
	b.put("releases/1/app.yml", "one")
	require.NoError(t, os.Symlink(b.path("releases/1"), b.path("current")))
	require.NoError(t, os.Symlink("releases/2/new.yml", b.path("dangling")))
	e, made := b.entry(), b.entry()
	require.NoError(t, b.apply("write", e, params{"path": b.path("current/app.yml"), "content": "two"}))
	require.Equal(t, "two", b.read("releases/1/app.yml"))
	require.NoError(t, b.apply("write", made, params{"path": b.path("dangling"), "content": "new"}))
	require.Equal(t, "new", b.read("releases/2/new.yml"))
	b.mustRestore(made)
	b.mustRestore(e)
	require.Equal(t, "one", b.read("releases/1/app.yml"))
	require.NoDirExists(t, b.path("releases/2"))
}

func TestRootsInRoots(t *testing.T) {
	outer := t.TempDir()
	inner := filepath.Join(outer, "mnt/inner")
	require.NoError(t, os.MkdirAll(inner, 0o755))
	b := newBench(t, outer, inner)
	b.put("mnt/inner/f", "old")
	b.put("f", "old")
	requireError(t, b.apply("delete", b.entry(), params{"path": outer + "/mnt"}), activities.Refused,
		"contains the allowed root "+inner)
	requireError(t,
		b.apply("write", b.entry(),
			params{"files": []params{{"path": outer + "/f", "content": "1"}, {"path": inner + "/f", "content": "2"}}}),
		activities.Refused, "two roots", "make it two steps")
	e := b.entry()
	require.NoError(t, b.apply("write", e, params{"path": inner + "/f", "content": "new"}))
	b.mustRestore(e)
	require.Equal(t, "old", b.read("mnt/inner/f"))
}

func TestAnEntryOutlivesRootsThatAreAdded(t *testing.T) {
	b := newBench(t)
	b.put("f", "old")
	applied, planned := b.entry(), b.entry()
	require.NoError(t, b.apply("write", applied, params{"path": b.path("f"), "content": "new"}))

	more := newBench(t, b.root, t.TempDir())
	undone, err := more.undo(planned)
	require.NoError(t, err)
	require.Equal(t, activities.Nothing, undone.Outcome)
	requireError(t, more.apply("write", planned, params{"path": b.path("f"), "content": "late"}), activities.Fenced)
	more.mustRestore(applied)
	require.Equal(t, "old", b.read("f"))
}

func TestALostJournalIsTheWrongPlace(t *testing.T) {
	other := t.TempDir()
	b := newBench(t, t.TempDir(), other)
	b.put("f", "old")
	applied, waiting := b.entry(), b.entry()
	require.NoError(t, b.apply("write", applied, params{"path": b.path("f"), "content": "new"}))

	// The other root's journal is lost: what is recorded can be undone, of all else nobody knows.
	require.NoError(t, os.RemoveAll(filepath.Join(other, ".unwind")))
	b = newBench(t, b.root, other)
	_, err := b.undo(waiting)
	requireError(t, err, activities.WrongPlace, "start it with the roots")
	b.mustRestore(applied)
	require.Equal(t, "old", b.read("f"))

	applied = b.entry()
	require.NoError(t, b.apply("write", applied, params{"path": b.path("f"), "content": "new"}))
	require.NoError(t, os.RemoveAll(b.path(".unwind")))
	b = newBench(t, b.root, other)
	for _, err := range []error{
		b.apply("write", applied, params{"path": b.path("f"), "content": "new"}),
		func() error { _, err := b.undo(applied); return err }(),
	} {
		requireError(t, err, activities.WrongPlace)
	}
	require.Equal(t, "new", b.read("f"))
}

func TestNewNeedsARootOfItsOwn(t *testing.T) {
	_, err := file.New(file.Config{})
	require.ErrorContains(t, err, "Roots is empty")
	_, err = file.New(file.Config{Roots: []string{"relative"}})
	require.ErrorContains(t, err, "give an absolute path")
	_, err = file.New(file.Config{Roots: []string{"/nowhere/at/all"}})
	require.ErrorContains(t, err, "root /nowhere/at/all")

	stolen := t.TempDir()
	require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(stolen, ".unwind")))
	_, err = file.New(file.Config{Roots: []string{stolen}})
	require.ErrorContains(t, err, ".unwind")

	// Two workers share a journal, also where each has another name of the root.
	b := newBench(t)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(b.root, link))
	again := newBench(t, link)
	require.Equal(t, b.entry().Place.WithoutEpochs(), again.entry().Place.WithoutEpochs())
	e := again.entry()
	require.NoError(t, again.apply("write", e, params{"path": link + "/new", "content": "x"}))
	b.mustRestore(e)
	for _, roots := range [][]string{{b.root, link}, {link, b.root}, {b.root, b.root}} {
		_, err := file.New(file.Config{Roots: roots})
		require.ErrorContains(t, err, "roots "+roots[0]+" and "+roots[1]+" are one folder")
	}
}

func TestARootThatIsMountedInAnotherOneIsFound(t *testing.T) {
	outer, inner, second := t.TempDir(), t.TempDir(), t.TempDir()
	bindMount(t, inner, second)
	_, err := file.New(file.Config{Roots: []string{inner, second}})
	require.ErrorContains(t, err, "roots "+inner+" and "+second+" are one folder")

	b := newBench(t, outer, inner)
	require.NoError(t, os.MkdirAll(b.path("mnt/inner"), 0o755))
	bindMount(t, inner, b.path("mnt/inner"))
	one, two := b.entry(), b.entry()
	journals := describeStore(t, inner)
	requireError(t, b.apply("delete", one, params{"path": b.path("mnt")}), activities.Refused,
		"contains undo data, in mnt/inner/.unwind")
	requireError(t, b.apply("delete", two, params{"path": b.path("mnt/inner/.unwind")}), activities.Refused,
		"holds undo data")
	require.Equal(t, journals, describeStore(t, inner))
}

// bindMount mounts a folder at another one, where this process may.
func bindMount(t *testing.T, from, to string) {
	t.Helper()
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		testrun.Skipf(t, "binding %s to %s: %v; run it as a user who may mount", from, to, err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(to, unix.MNT_DETACH)) })
}

func describeStore(t *testing.T, root string) (names []string) {
	require.NoError(t, filepath.WalkDir(filepath.Join(root, ".unwind"), func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	}))
	return names
}
