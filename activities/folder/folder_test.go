package folder_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
	"github.com/seed-62bf7108/unwind/testrun"
)

// bench is a folder whose checkpoint "one" is what furnish made.
type bench struct {
	*testing.T
	dir   string
	world activities.World
	n     int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, dir: t.TempDir()}
	furnish(t, b.dir)
	keep(t, b.dir, "one")
	var err error
	b.world, err = open(b.dir)
	require.NoError(t, err)
	return b
}

// step is a step of an action, and its entry.
func (b *bench) step(with params) (activities.Entry, activities.Step) {
	b.Helper()
	b.n++
	mark, err := b.world.Journal(b.Context())
	require.NoError(b, err)
	raw, err := json.Marshal(with)
	require.NoError(b, err)
	return activities.Entry{Token: activities.NewToken("run", "step", b.n), Params: raw,
		Place: activities.Place{Journal: mark}}, activities.Step{ID: "step", With: raw}
}

func (b *bench) apply(of int, with params) (activities.Entry, activities.Result, error) {
	b.Helper()
	e, s := b.step(with)
	r, err := b.world.Actions[of].Apply(b.Context(), e, s, "")
	return e, r, err
}

func (b *bench) restore() activities.Entry {
	b.Helper()
	e, _, err := b.apply(1, params{"path": treeOf(b.dir), "checkpoint": nameOf("one")})
	require.NoError(b, err)
	return e
}

func (b *bench) undo(e activities.Entry, d activities.Decision) activities.Undone {
	b.Helper()
	u, err := b.world.Actions[1].Undo(b.Context(), e, d)
	require.NoError(b, err)
	return u
}

func (b *bench) sh(script string) { b.Helper(); sh(b.T, b.dir, script) }

func TestAPlanNamesEachPathThatChanges(t *testing.T) {
	b := newBench(t)
	b.sh("rm gone/a; echo more >new; chmod 600 b; ln -sfn d link; touch -h -d @1400000000.123456789 . gone link")
	_, s := b.step(params{"path": treeOf(b.dir), "checkpoint": nameOf("one")})
	e, _ := b.step(nil)
	c, err := b.world.Actions[1].Plan(t.Context(), e, s)
	require.NoError(t, err)
	require.Equal(t, strings.Join([]string{
		"~ /b (mode 0600 -> 0640)", "+ /gone/a (2 bytes)", "~ /hard (mode 0600 -> 0640)", "~ /link (link d -> b)",
		"- /new (5 bytes)", "",
	}, "\n"), c.Diff)
	require.Equal(t, "put folder "+treeOf(b.dir)+" back to "+nameOf("one")+": 5 paths differ", c.Summary)

	b.restore()
	c, err = b.world.Actions[1].Plan(t.Context(), e, s)
	require.NoError(t, err)
	require.True(t, c.Unchanged, "%+v", c)
}

// TestWhatOthersDoElsewhereStays: an undo looks at the paths that the step has changed alone.
func TestWhatOthersDoElsewhereStays(t *testing.T) {
	b := newBench(t)
	b.sh("echo changed >b; mkdir later; echo x >later/x")
	before := manifest(t, b.dir)
	e := b.restore()
	b.sh("echo theirs >theirs; echo theirs >d/theirs; rm -r empty; touch -d @1 d/sub/s")
	u := b.undo(e, activities.Decision{})
	require.Equal(t, activities.Restored, u.Outcome, "%+v", u)
	for path, content := range map[string]string{"theirs": "theirs\n", "d/theirs": "theirs\n", "b": "changed\n",
		"later/x": "x\n"} {
		raw, err := os.ReadFile(filepath.Join(treeOf(b.dir), path))
		require.NoError(t, err)
		require.Equal(t, content, string(raw))
	}
	require.NoDirExists(t, filepath.Join(treeOf(b.dir), "empty"))
	b.sh("rm theirs d/theirs; mkdir empty; touch -d @1400000000.123456789 empty d/sub/s d")
	b.sh("touch -d @1 .")
	now := manifest(t, b.dir)
	rest := func(all string) string { _, rest, _ := strings.Cut(all, "\n"); return rest } // without the folder's own time
	require.Equal(t, rest(before), rest(now))
}

// TestDriftIsShownAndNothingElseIsForced: also what others put into a folder that an undo removes.
func TestDriftIsShownAndNothingElseIsForced(t *testing.T) {
	b := newBench(t)
	b.sh("rm -r gone; echo changed >b")
	before := manifest(t, b.dir)
	e := b.restore()
	b.sh("echo theirs >gone/theirs; echo theirs >>b")
	left := manifest(t, b.dir)
	u := b.undo(e, activities.Decision{})
	require.Equal(t, activities.Drifted, u.Outcome)
	require.Equal(t, "~ /b (content, 4 -> 11 bytes)\n+ /gone/theirs (7 bytes)\n~ /hard (content, 4 -> 11 bytes)\n", u.Drift.Diff)
	require.Equal(t, left, manifest(t, b.dir))

	b.sh("echo more >>gone/theirs")
	again := b.undo(e, activities.Decision{Force: u.Drift.Digest})
	require.Equal(t, activities.Drifted, again.Outcome, "it is another drift")
	u = b.undo(e, activities.Decision{Force: again.Drift.Digest})
	require.Equal(t, activities.Restored, u.Outcome, "%+v", u)
	require.Equal(t, before, manifest(t, b.dir))
}

func TestADamagedCheckpointIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	b := newBench(t)
	b.sh("echo changed >b; echo changed >gone/a")
	left := manifest(t, b.dir)
	chunks, err := filepath.Glob(filepath.Join(b.dir, "state", "store", "chunks", "*", "*"))
	require.NoError(t, err)
	for _, at := range chunks {
		raw, err := os.ReadFile(at)
		require.NoError(t, err)
		if string(raw) == "a\n" {
			require.NoError(t, os.Remove(at))
		}
	}
	_, _, err = b.apply(1, params{"path": treeOf(b.dir), "checkpoint": nameOf("one")})
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
	require.Equal(t, left, manifest(t, b.dir))
}

func TestWhatAStepMustNotNameIsRefused(t *testing.T) {
	b := newBench(t)
	outside := t.TempDir()
	root := filepath.Join(b.dir, "root")
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "out")))
	require.NoError(t, os.Mkdir(filepath.Join(outside, "in"), 0o755))
	require.NoError(t, os.Symlink("tree", filepath.Join(root, "link")))
	require.NoError(t, os.Mkdir(filepath.Join(root, "other"), 0o755))
	for path, why := range map[string]string{
		"tree":                          "is not an absolute path",
		root:                            "is not a folder in one of the folders",
		outside + "/in":                 "is not a folder in one of the folders",
		root + "/out/in":                "is not a folder in one of the folders",
		root + "/tree/../../x":          "is not a folder in one of the folders",
		root + "/link":                  "is not a folder; of a link to one, name where it leads",
		root + "/tree/b":                "is not a folder",
		root + "/nowhere":               "is not there",
		root + "/nowhere/below":         "is in a folder that is not there",
		root + "/.unwind/stage":         "is in a folder that is not there",
		filepath.Join(root, "tree\x00"): "is not an absolute path",
	} {
		_, _, err := b.apply(0, params{"path": path})
		require.Equal(t, activities.Refused, activities.TypeOf(err), "%s: %v", path, err)
		require.ErrorContains(t, err, why)
	}
	for name, why := range map[string]string{
		"":            "is no name of a checkpoint",
		"cp-../x":     "is no name of a checkpoint",
		"cp-.x":       "is no name of a checkpoint",
		token("one"):  "is no name of a checkpoint",
		nameOf("two"): "there is no " + nameOf("two"),
	} {
		_, _, err := b.apply(1, params{"path": treeOf(b.dir), "checkpoint": name})
		require.Equal(t, activities.Refused, activities.TypeOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, why)
	}
	_, _, err := b.apply(1, params{"path": root + "/other", "checkpoint": nameOf("one")})
	require.ErrorContains(t, err, nameOf("one")+" is of what was at "+treeOf(b.dir)+", and folder "+root+"/other is at ")
}

func TestAFolderWhereSomethingIsMountedIsRefused(t *testing.T) {
	testrun.NeedRoot(t, "mounting")
	b := newBench(t)
	require.NoError(t, unix.Mount(treeOf(b.dir), treeOf(b.dir), "", unix.MS_BIND, ""))
	defer func() { require.NoError(t, unix.Unmount(treeOf(b.dir), 0)) }()
	_, _, err := b.apply(0, params{"path": treeOf(b.dir)})
	require.ErrorContains(t, err, "is where something is mounted")
}

// TestALinkInThePlaceOfTheFolderLeadsNowhere: it is put there after the step was done.
func TestALinkInThePlaceOfTheFolderLeadsNowhere(t *testing.T) {
	b := newBench(t)
	b.sh("echo changed >b")
	e := b.restore()
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "b"), []byte("not yours"), 0o600))
	require.NoError(t, os.Rename(treeOf(b.dir), treeOf(b.dir)+"-aside"))
	require.NoError(t, os.Symlink(outside, treeOf(b.dir)))
	_, err := b.world.Actions[1].Undo(t.Context(), e, activities.Decision{})
	require.ErrorContains(t, err, "is not a folder")
	raw, err := os.ReadFile(filepath.Join(outside, "b"))
	require.NoError(t, err)
	require.Equal(t, "not yours", string(raw))

	require.NoError(t, os.Remove(treeOf(b.dir)))
	require.NoError(t, os.Rename(treeOf(b.dir)+"-aside", treeOf(b.dir)))
	require.Equal(t, activities.Restored, b.undo(e, activities.Decision{}).Outcome)
}

// TestACheckpointIsComparedWithAnotherAndWithNow has a file that changes twice.
func TestACheckpointIsComparedWithAnotherAndWithNow(t *testing.T) {
	dir := t.TempDir()
	furnish(t, dir)
	keep(t, dir, "one")
	sh(t, dir, "echo two >b; rm d/b")
	keep(t, dir, "two")
	sh(t, dir, "echo three >b; touch made")
	w, err := open(dir)
	require.NoError(t, err)
	said := func(p params) string {
		r, err := call(t, w, "folder.compare", "it", p)
		require.NoError(t, err)
		return fmt.Sprintf("%d\n%s", r.Outputs["changed"], r.Outputs["diff"])
	}
	of := params{"path": treeOf(dir), "checkpoint": nameOf("one")}
	now := said(of)
	require.Contains(t, now, "+ /made (0 bytes)")
	require.Contains(t, now, "~ /b (content, 4 -> 6 bytes)")
	require.Contains(t, now, "- /d/b (3 bytes)")
	then := said(with(of, "with", nameOf("two")))
	require.NotContains(t, then, "made")
	require.Contains(t, then, "~ /b (content, 4 -> 4 bytes)")
	require.Equal(t, "0\n", said(with(of, "with", nameOf("one"))))
	_, err = call(t, w, "folder.compare", "it", with(of, "with", "cp-none"))
	require.ErrorContains(t, err, "there is no cp-none on this worker")
}

// TestWhatIsInAnImageIsNotNew has an image with a file that is deleted, replaced and added
// to by what lies over it.
func TestWhatIsInAnImageIsNotNew(t *testing.T) {
	top, bottom := t.TempDir(), t.TempDir()
	testrun.NeedRoot(t, "whiteouts")
	require.NoError(t, os.WriteFile(filepath.Join(bottom, "a"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(bottom, "hidden"), nil, 0o600))
	require.NoError(t, unix.Mknod(filepath.Join(top, "hidden"), unix.S_IFCHR, 0))
	file, whiteout, none := snapshot.Entry{Kind: snapshot.File, Size: 3}, snapshot.Entry{Kind: snapshot.Char}, snapshot.Entry{}
	for want, c := range map[string]struct {
		at      string
		was, is snapshot.Entry
	}{
		"- /a":                           {"/a", none, whiteout},
		"+ /a (as the image has it)":     {"/a", whiteout, none},
		"~ /a (was as the image has it)": {"/a", none, file},
		"~ /a (is as the image has it)":  {"/a", file, none},
		"+ /hidden (3 bytes)":            {"/hidden", none, file},
		"- /b (3 bytes)":                 {"/b", file, none},
		"+ /a (3 bytes)":                 {"/a", whiteout, file},
	} {
		require.Equal(t, want, folder.DescribeOver(c.at, c.was, c.is, top, bottom))
	}
}
