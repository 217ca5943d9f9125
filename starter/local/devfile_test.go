package local

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAStaleDevFileIsNotBelieved(t *testing.T) {
	t.Setenv("UNWIND_STATE", t.TempDir())
	folder, err := StateFolder()
	require.NoError(t, err)
	_, err = DevFile{Address: "127.0.0.1:1"}.Write(folder)
	require.NoError(t, err)
	_, found := FindDev()
	require.False(t, found)
}
