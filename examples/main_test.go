package examples_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/mcpserver/mcptest"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
)

func TestMain(m *testing.M) {
	mcptest.Attend()
	host.Hooks()
	// Tests must not see the user's profile, server or state.
	folder, err := os.MkdirTemp("", "examples-test-")
	if err != nil {
		panic(err)
	}
	nothing := filepath.Join(folder, "temporal.toml")
	if err := os.WriteFile(nothing, nil, 0o600); err != nil {
		panic(err)
	}
	_ = os.Setenv("TEMPORAL_CONFIG_FILE", nothing)
	_ = os.Setenv("XDG_STATE_HOME", folder)
	for _, name := range []string{"TEMPORAL_PROFILE", "TEMPORAL_NAMESPACE", "TEMPORAL_ADDRESS", "UNWIND_STATE",
		"UNWIND_QUEUE", "UNWIND_HOST"} {
		_ = os.Unsetenv(name)
	}
	status := m.Run()
	testrun.StopServers()
	if err := containertest.RemoveImages(); err != nil {
		panic(err)
	}
	_ = os.RemoveAll(folder)
	os.Exit(status)
}
