package canonical

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/testrun"
)

func TestOneFileHasOneName(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	in := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.MkdirAll(in("a/sub"), 0o700))
	require.NoError(t, os.WriteFile(in("a/file"), nil, 0o600))
	require.NoError(t, os.Link(in("a/file"), in("hard")))
	for link, target := range map[string]string{"folder": "a", "file": "a/file", "absent": "a/new", "chain": "absent",
		"loop": "loop"} {
		require.NoError(t, os.Symlink(target, in(link)))
	}
	names, err := ReadMounts()
	require.NoError(t, err)
	for _, pair := range [][2]string{
		{"a/file", "file"}, {"a/file", "hard"}, {"a/file", "folder/file"}, {"a/sub", "folder/sub"}, {"a/new", "absent"},
		{"a/new", "chain"},
		{"a/sub/x/y", "folder/sub/../sub/x/y"},
	} {
		assert.True(t, meet(t, names, in(pair[0]), in(pair[1])), pair)
	}
	assert.True(t, meet(t, names, in("a/file"), "/proc/self/root"+in("a/file")))
	assert.False(t, meet(t, names, in("a/file"), in("a/new")))
	_, err = names.Of(in("loop/x"))
	require.Error(t, err)
}

func TestBindMountIsAnotherNameOfItsFolder(t *testing.T) {
	t.Parallel()
	testrun.NeedRoot(t, "bind mounts")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	in := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.MkdirAll(in("a/sub"), 0o700))
	require.NoError(t, os.Mkdir(in("b"), 0o700))
	if err := unix.Mount(in("a"), in("b"), "", unix.MS_BIND, ""); err != nil {
		testrun.Skipf(t, "this machine lets nobody mount: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(in("b"), unix.MNT_DETACH)) })
	names, err := ReadMounts()
	require.NoError(t, err)
	assert.True(t, meet(t, names, in("a"), in("b")))
	assert.True(t, meet(t, names, in("a/sub/new"), in("b/sub/new")))
	assert.False(t, meet(t, names, in("a/sub/new"), in("b/sub/old")))
}

func meet(t *testing.T, names Names, a, b string) bool {
	t.Helper()
	of, err := names.Of(a)
	require.NoError(t, err)
	other, err := names.Of(b)
	require.NoError(t, err)
	return slices.ContainsFunc(of, func(name string) bool { return slices.Contains(other, name) })
}
