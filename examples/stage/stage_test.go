package stage

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAStageThatCannotBeSetUpLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	_, err := Set(t.Context(), Options{Secrets: map[string]string{"no/such/folder": "value"}})
	require.ErrorContains(t, err, "no/such/folder")
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
}
