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

func TestReferenceIsUpToDate(t *testing.T) {
	want, err := page()
	require.NoError(t, err)
	got, err := os.ReadFile("../task-file-reference.md")
	require.NoError(t, err)
	require.Equal(t, want, string(got), "out of date: go run ./docs/reference")
}
