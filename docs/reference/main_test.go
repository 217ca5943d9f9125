package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/worker/host"
)

func TestMain(m *testing.M) {
	host.Hooks()
	os.Exit(m.Run())
}

func TestReferenceAndCatalogAreUpToDate(t *testing.T) {
	specs, err := host.Specs(nil)
	require.NoError(t, err)
	for name, content := range files {
		want, err := content(specs)
		require.NoError(t, err)
		got, err := os.ReadFile("../../" + name)
		require.NoError(t, err)
		require.Equal(t, want, string(got), "%s is out of date: go run ./docs/reference", name)
	}
}
