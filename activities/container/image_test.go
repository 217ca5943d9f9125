package container_test

import (
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

// TestImageHasAWellBehavedFirstProcess: it reaps what it inherits, and ends when it is asked to.
func TestImageHasAWellBehavedFirstProcess(t *testing.T) {
	t.Parallel()
	b := containertest.Start(t)
	b.Run(t, "/bin/sh -c '/bin/sleep 0.2 & sleep 0.1'")
	require.Eventually(t, func() bool { return len(processes(t, b)) == 1 }, time.Minute, 20*time.Millisecond,
		"no orphan and no zombie is left")
	patient := 60
	require.NoError(t, b.ContainerStop(t.Context(), b.ID, dockertypes.StopOptions{Timeout: &patient}))
	assert.Equal(t, 128+15, b.Inspect(t).State.ExitCode, "it was not killed")
}
