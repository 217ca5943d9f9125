package mcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAStepSaysAgainOnlyIfItsAgentDoes(t *testing.T) {
	t.Parallel()
	with := map[string]any{"amount": 5}
	require.Equal(t, map[string]any{"uses": "pay", "with": with}, stepOptions{}.step("pay", with))
	require.Equal(t, map[string]any{"uses": "pay", "with": with, "id": "p", "again": true},
		stepOptions{ID: "p", Again: true}.step("pay", with))
}
