package servertest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
)

func TestSharedIsOneServer(t *testing.T) {
	first := Shared(t)
	require.Same(t, first, Shared(t))
	names, _, err := devserver.MissingSearchAttributes(t.Context(), Client(t), first.Namespace)
	require.NoError(t, err)
	require.Empty(t, names)
}
