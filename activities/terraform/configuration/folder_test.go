package configuration

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// folder makes a folder with files.
func folder(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

func filesIn(t *testing.T, dir string) Files {
	b, err := ReadFolder(dir)
	require.NoError(t, err)
	return b.Files
}

var never = func() error { return nil }

func TestPlacementMakesAFolderHoldFilesExactly(t *testing.T) {
	dir := folder(t, map[string]string{"main.tf": "two", "new/deep/a.tf": "new", "same.tf": "same", StateName: "{}",
		".terraform/modules/a.tf": "made by init"})
	want := filesIn(t, folder(t, map[string]string{"main.tf": "one", "old/b.tf": "old", "same.tf": "same"}))
	run := want["main.tf"]
	run.Mode = 0o640
	want["main.tf"] = run
	p := Placement{Dir: dir, Token: "abc", Want: want, Seen: filesIn(t, dir), Over: never}
	require.NoError(t, p.Run())
	require.Equal(t, want, filesIn(t, dir))
	require.NoError(t, p.Run(), "there is nothing left to do")
	require.NoDirExists(t, filepath.Join(dir, "new"))
	require.FileExists(t, filepath.Join(dir, StateName))
	require.FileExists(t, filepath.Join(dir, ".terraform", "modules", "a.tf"))
	require.NoDirExists(t, filepath.Join(dir, ".unwind-abc"))
}

func TestPlacementLeavesWhatSomebodyHasChanged(t *testing.T) {
	dir := folder(t, map[string]string{"main.tf": "two", "more.tf": "more"})
	seen := filesIn(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "more.tf"), []byte("by hand"), 0o600))
	now := filesIn(t, dir)
	err := Placement{Dir: dir, Token: "abc", Want: filesIn(t, folder(t, map[string]string{"main.tf": "one"})), Seen: seen,
		Over: never}.Run()
	changed, is := errors.AsType[*ChangedError](err)
	require.True(t, is, "%v", err)
	require.Equal(t, "more.tf", changed.Path)
	require.Equal(t, now, filesIn(t, dir))
}

// A placement that is over, or whose stage is cleared after it has asked, touches nothing.
func TestALatePlacementTouchesNothing(t *testing.T) {
	for name, over := range map[string]func(dir string) error{
		"over":   func(string) error { return errors.New("too late") },
		"fenced": func(dir string) error { return ClearStage(dir, "abc") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, map[string]string{"main.tf": "two", "new.tf": "new"})
			now := filesIn(t, dir)
			require.Error(t, Placement{Dir: dir, Token: "abc", Seen: now,
				Want: filesIn(t, folder(t, map[string]string{"main.tf": "one", "old.tf": "old"})),
				Over: func() error { return over(dir) }}.Run())
			require.Equal(t, now, filesIn(t, dir))
			require.NoDirExists(t, filepath.Join(dir, ".unwind-abc"))
		})
	}
}

func TestALinkIsRefused(t *testing.T) {
	dir := folder(t, map[string]string{"main.tf": ""})
	require.NoError(t, os.Symlink("main.tf", filepath.Join(dir, "link.tf")))
	_, err := ReadFolder(dir)
	require.ErrorContains(t, err, "link.tf is neither a file nor a folder")
}

// What is protected stays so in a restore, and no block of it imports, moves or removes again.
func TestArrivedKeepsProtection(t *testing.T) {
	b := Bundle{Files: map[string]BundleFile{
		"a.tf": {Content: []byte("moved {\n  from = a.b\n  to = a.c\n}\nresource \"a\" \"c\" {\n  lifecycle {\n" +
			"    prevent_destroy = true\n  }\n}\n")},
		"b.tf.json": {Content: []byte(`{"import": [{"id": "1"}], "resource": {"a": {"d": {"lifecycle": {"prevent_destroy": true}}}}}`)},
	}}
	text := string(b.Arrived().Files["a.tf"].Content) + string(b.Arrived().Files["b.tf.json"].Content)
	require.NotContains(t, text, "moved")
	require.NotContains(t, text, "import")
	require.Contains(t, text, "prevent_destroy = true")
	require.Contains(t, text, `"prevent_destroy":true`)
}
