package terraform

import (
	"context"
	"os"
	"path/filepath"
	"strings"
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

	// An undo on another host, or beside a look, removes nothing.
	ended, end := context.WithCancel(b.ctx)
	end()
	for _, name := range []string{VerifyAction, CompareAction} {
		a, _, _ := b.of(name, map[string]any{"checkpoint": "cp-none"})
		_, err = a.Undo(ended, other, activities.Decision{})
		require.ErrorIs(t, err, context.Canceled, name)
		elsewhere := other
		elsewhere.Place.Journal = "another"
		_, err = a.Undo(b.ctx, elsewhere, activities.Decision{})
		require.Equal(t, activities.WrongPlace, activities.TypeOf(err), name)
		require.FileExists(t, filepath.Join(busy.Dir(), "main.tf"), name)
	}

	// What cannot be removed keeps no worker from starting.
	require.NoError(t, os.Mkdir(filepath.Join(looks.Dir(), "tokens", "strange"), 0o700))
	w, err := New(b.config())
	require.NoError(t, err)
	require.Contains(t, strings.Join(w.Notices, "\n"), "there may be secrets in them: remove "+looks.Dir())
}
