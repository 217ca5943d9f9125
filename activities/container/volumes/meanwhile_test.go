package volumes

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/testrun"
)

// TestWhatChangesAfterItWasLookedAtIsPutBack: what comes out of a volume is looked at before it is
// taken for what was seen.
func TestWhatChangesAfterItWasLookedAtIsPutBack(t *testing.T) {
	testrun.NeedRoot(t, "volumes")
	dir := t.TempDir()
	r := Restore{Root: filepath.Join(dir, "volume", "_data"), Copy: filepath.Join(dir, "copy"),
		Stage: filepath.Join(dir, "volume", "stage")}
	require.NoError(t, os.MkdirAll(r.Root, 0o755))
	at := filepath.Join(r.Root, "a")
	require.NoError(t, os.WriteFile(at, []byte("kept"), 0o600))
	var err error
	r.Want, err = Copy(r.Root, r.Copy, nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at, []byte("seen"), 0o600))
	seen, err := Of(r.Root)
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

	seen, err = Of(r.Root)
	require.NoError(t, err)
	require.NoError(t, s.swapIn(r.Want["/a"], seen["/a"], true))
	content, err = os.ReadFile(at)
	require.NoError(t, err)
	require.Equal(t, "kept", string(content))
}
