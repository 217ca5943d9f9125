package session_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

func TestAnIDThatDoesNotStandInCommandsIsRefused(t *testing.T) {
	_, _, err := session.Open(t.Context(), nil, session.Options{ID: "a b/c"}, nil)
	var refusal session.Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, protocol.BadRequest, refusal.Type)
	require.Contains(t, refusal.Text, `id "a b/c": it stands in commands and links: write a letter or a digit`)
}
