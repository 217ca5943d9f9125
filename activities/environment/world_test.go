package environment

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A worker whose steps may use no environment still serves the rollbacks of those on its host.
func TestAWorldWithoutNamesOnlyLooksForTasks(t *testing.T) {
	w, err := New(Config{State: t.TempDir()})
	require.NoError(t, err)
	require.Len(t, w.Actions, 1)
	require.Equal(t, TasksAction, w.Actions[0].Spec().Name)
	journal, err := w.Journal(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, journal, "the compiler takes a world without a journal for one that is not served")
}
