package checkpoint_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
)

// TestThePageOnContainersHasTheTable compares the two.
func TestThePageOnContainersHasTheTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/containers.md")
	require.NoError(t, err)
	assert.Contains(t, string(page), checkpoint.LossesAsMarkdown())
}
