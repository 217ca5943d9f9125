package terraform

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// TestAKilledLookLeavesNoConfiguration: its undo removes the working copy, as the next start of the
// worker does, except that of a look that another process is at.
func TestAKilledLookLeavesNoConfiguration(t *testing.T) {
	b := newBench(t, first)
	looks, err := journal.Open(filepath.Join(b.dir, "worker", "looks"))
	require.NoError(t, err)
	leave := func(token string) *journal.Token {
		left, err := looks.Token(token)
		require.NoError(t, err)
		require.NoError(t, left.Make())
		require.NoError(t, os.WriteFile(filepath.Join(left.Dir(), "main.tf"), []byte(first), 0o600))
		return left
	}
	for _, name := range []string{VerifyAction, CompareAction} {
		a, e, _ := b.of(name, map[string]any{"checkpoint": "cp-none"})
		left := leave(e.Token)
		_, err := a.Undo(b.ctx, e, activities.Decision{})
		require.NoError(t, err)
		require.NoDirExists(t, left.Dir(), name)
	}
	_, e, _ := b.of(VerifyAction, map[string]any{"checkpoint": "cp-none"})
	_, other, _ := b.of(CompareAction, map[string]any{"checkpoint": "cp-none"})
	left, busy := leave(e.Token), leave(other.Token)
	unlock, err := busy.Lock(b.ctx)
	require.NoError(t, err)
	defer unlock()
	b.open()
	require.NoDirExists(t, left.Dir())
	require.FileExists(t, filepath.Join(busy.Dir(), "main.tf"))
}
