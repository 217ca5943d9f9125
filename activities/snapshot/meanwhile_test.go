package snapshot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatChangesAfterItWasLookedAtIsPutBack: what comes out of a folder is looked at before it is
// taken for what was seen.
func TestWhatChangesAfterItWasLookedAtIsPutBack(t *testing.T) {
	dir := t.TempDir()
	store, err := Open(filepath.Join(dir, "store"))
	require.NoError(t, err)
	root := filepath.Join(dir, "beside", "root")
	r := Restore{Root: Root{Path: root}, From: store, Stage: filepath.Join(dir, "beside", "stage")}
	require.NoError(t, os.MkdirAll(root, 0o755))
	at := filepath.Join(root, "a")
	require.NoError(t, os.WriteFile(at, []byte("kept"), 0o600))
	r.Want, err = store.Keep(t.Context(), r.Root, Keeping{Name: "kept"})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at, []byte("seen"), 0o600))
	seen, err := Scan(t.Context(), r.Root, Look{})
	require.NoError(t, err)
	s, err := r.openStaging()
	require.NoError(t, err)
	defer s.closeFolders()

	require.NoError(t, os.WriteFile(at, []byte("newer"), 0o600))
	require.ErrorIs(t, s.takeOut("/a", seen["/a"]), errMeanwhile)
	require.ErrorIs(t, s.swapIn(r.Want["/a"], seen["/a"], true), errMeanwhile)
	require.ErrorIs(t, s.swapIn(r.Want["/a"], Entry{}, false), errMeanwhile, "nothing was seen there")
	content, err := os.ReadFile(at)
	require.NoError(t, err)
	require.Equal(t, "newer", string(content))

	seen, err = Scan(t.Context(), r.Root, Look{})
	require.NoError(t, err)
	require.NoError(t, s.swapIn(r.Want["/a"], seen["/a"], true))
	content, err = os.ReadFile(at)
	require.NoError(t, err)
	require.Equal(t, "kept", string(content))
}
