package checkpoint

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestThePageOnContainersHasTheTable compares the two.
func TestThePageOnContainersHasTheTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/containers.md")
	require.NoError(t, err)
	var table strings.Builder
	table.WriteString("| lost or changed by an undo of `container.exec` | docker commit | layers |\n|---|---|---|\n")
	for _, l := range LossTable {
		lost := map[bool]string{true: "yes", false: "no"}
		fmt.Fprintf(&table, "| %s | %s | %s |\n", strings.TrimPrefix(l.Of, ofContainer)+l.What, lost[l.Commit],
			lost[l.Layers])
	}
	assert.Contains(t, string(page), table.String())
}
