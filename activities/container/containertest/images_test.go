package containertest_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

// A machine may have no engine: then each test is skipped, and its package passes.
func TestWithoutAnEngineThereAreNoImagesToRemove(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "none.sock"))
	require.NoError(t, containertest.RemoveImages())
}
