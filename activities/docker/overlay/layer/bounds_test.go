package layer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// nest makes folders in one another below a folder.
func nest(t *testing.T, in string, depth int) {
	t.Helper()
	at, err := unix.Open(in, unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	for range depth {
		require.NoError(t, unix.Mkdirat(at, "d", 0o755))
		next, err := unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		unix.Close(at)
		at = next
	}
	unix.Close(at)
}

func TestFoldersThatAreNestedDeepAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, Make(dir, 1))
	nest(t, Content(dir, 1), 25_000)
	changes, err := Changes(dir, []int{1}, func(string) bool { return false })
	require.NoError(t, err)
	assert.Len(t, changes, MostNested)
	assert.Equal(t, TooDeep, changes[MostNested-1].Digest)
	_, err = Size(dir, 1)
	require.NoError(t, err)
	require.NoError(t, RemoveAll(filepath.Join(dir, "1")))
	assert.NoDirExists(t, filepath.Join(dir, "1"))
}

func TestHolesAreNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const much = int64(20) << 30
	digest := func(name string, write func(f *os.File)) string {
		f, err := os.Create(filepath.Join(dir, name))
		require.NoError(t, err)
		defer f.Close()
		require.NoError(t, f.Truncate(much))
		write(f)
		it, err := filetree.Open(unix.AT_FDCWD, f.Name())
		require.NoError(t, err)
		defer it.Close()
		sum, err := digestContent(it)
		require.NoError(t, err)
		return sum
	}
	at := func(offset int64, data string) func(*os.File) {
		return func(f *os.File) {
			_, err := f.WriteAt([]byte(data), offset)
			require.NoError(t, err)
		}
	}
	nothing := digest("nothing", func(*os.File) {})
	assert.Equal(t, nothing, digest("zeros", at(much/2, "\x00\x00")), "zeros that are no hole are the same")
	one := digest("one", at(much/2, "x"))
	assert.NotEqual(t, nothing, one)
	assert.NotEqual(t, one, digest("elsewhere", at(much/2+(1<<20), "x")))
	assert.NotEqual(t, one, digest("more", func(f *os.File) { at(much/2, "x")(f); at(much-1, "y")(f) }))
	assert.NotEqual(t, nothing, digest("longer", func(f *os.File) { require.NoError(t, f.Truncate(much+1)) }))
}
