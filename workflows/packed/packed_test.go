package packed_test

import (
	"bytes"
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/workflows/packed"
)

func TestSmallIsPlainLargeIsPackedTooLargeIsRefused(t *testing.T) {
	raw, err := packed.Marshal([]string{"small"})
	require.NoError(t, err)
	require.Equal(t, `["small"]`, string(raw))

	large := map[string][]byte{"a": bytes.Repeat([]byte("unwind "), packed.Max)}
	raw, err = packed.Marshal(large)
	require.NoError(t, err)
	require.Less(t, len(raw), packed.Max)
	var back map[string][]byte
	require.NoError(t, packed.Unmarshal(raw, &back))
	require.Equal(t, large, back)

	noise := make([]byte, 2*packed.Max)
	_, _ = rand.Read(noise)
	_, err = packed.Marshal(noise)
	require.ErrorContains(t, err, "bytes compressed, more than")
}
