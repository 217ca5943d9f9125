package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An image from scratch has no time zones, and quiet hours name one.
func TestTheWorkerBringsTheTimeZones(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	require.True(t, slices.Contains(strings.Split(string(out), "\n"), "time/tzdata"))
}
