package journal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// synced counts what is synced from now on: "tokens" is the folder of all tokens' folders.
func synced(t *testing.T) map[string]int {
	counts := map[string]int{}
	fsync = func(f *os.File) error {
		counts[filepath.Base(f.Name())]++
		return f.Sync()
	}
	t.Cleanup(func() { fsync = (*os.File).Sync })
	return counts
}

func TestAFolderThatADeadProcessMadeIsMadeDurable(t *testing.T) {
	j, err := Open(t.TempDir())
	require.NoError(t, err)
	token, err := j.Token("0123456789abcdef0123456789abcdef")
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(token.Dir(), 0o700)) // and then its process died, before the sync

	counts := synced(t)
	v := 1
	_, err = token.Create(Record, &v)
	require.NoError(t, err)
	require.Equal(t, 1, counts[tokens])

	_, err = token.Create(Applied, &v)
	require.NoError(t, err)
	require.Equal(t, 1, counts[tokens], "once is enough")
}

// TestADocumentIsOnTheDiskBeforeItHasItsName looks at each sync: the content comes first, then the
// name, then the folder.
func TestADocumentIsOnTheDiskBeforeItHasItsName(t *testing.T) {
	j, err := Open(t.TempDir())
	require.NoError(t, err)
	token, err := j.Token("0123456789abcdef0123456789abcdef")
	require.NoError(t, err)
	require.NoError(t, token.Make())

	var order []string
	fsync = func(f *os.File) error {
		named := "unnamed"
		if _, err := os.Stat(filepath.Join(token.Dir(), Record)); err == nil {
			named = "named"
		}
		info, err := f.Stat()
		require.NoError(t, err)
		what := "content"
		if info.IsDir() {
			what = filepath.Base(f.Name())
		}
		order = append(order, what+", "+named)
		return f.Sync()
	}
	t.Cleanup(func() { fsync = (*os.File).Sync })
	v := 1
	_, err = token.Create(Record, &v)
	require.NoError(t, err)
	require.Equal(t, []string{tokens + ", unnamed", "content, unnamed", filepath.Base(token.Dir()) + ", named"}, order)
}
