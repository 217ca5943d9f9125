package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// A step that is approved while its run waits for the answer to that, before it continues as new,
// must be carried over: a run without it would seem to have nothing left to do, and commit.
func TestAStepThatIsHeldBackIsStillToBeDone(t *testing.T) {
	c := newSchedule(func() {})
	for _, id := range []string{"approved", "later"} {
		c.addStep(task.Step{ID: id})
	}
	c.arrangeSteps()
	x := &executor{schedule: c, gates: &gates{}, parks: &parks{}, rollbacks: &rollbacks{}, ending: &ending{},
		draining: true}
	approved, later := c.takeReady(), c.takeReady()
	later.View.State = protocol.Done
	require.False(t, x.hasWork(), "both were taken")

	approved.View.State = protocol.Running
	c.holdBack(approved)
	require.True(t, x.hasWork())
	require.Equal(t, protocol.NotStarted, approved.View.State)
	require.Equal(t, []*Step{approved}, c.Ready)
	c.arrangeSteps()
	require.Equal(t, []*Step{approved}, c.Ready, "once")
}
