package durable

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCreateLeavesTheFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	require.NoError(t, Create(path, []byte("first")))
	require.ErrorIs(t, Create(path, []byte("second")), fs.ErrExist)
	assertOnly(t, path, "first")
}

func TestReplaceLeavesTheLast(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "settings")
	require.NoError(t, Replace(path, []byte("first")))
	require.NoError(t, Replace(path, []byte("second")))
	assertOnly(t, path, "second")
	require.Error(t, Replace(filepath.Dir(path)+"/none/settings", nil))
}

// assertOnly checks that the folder holds this file, and nothing else.
func assertOnly(t *testing.T, path, content string) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, content, string(got))
	all, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, all, 1, "a temporary file was left")
}
