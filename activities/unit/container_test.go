package unit_test

import (
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/unit"
)

// TestAContainerIsAUnit has one whose stop takes a second.
func TestAContainerIsAUnit(t *testing.T) {
	wait := 1
	c := containertest.Start(t, func(c *container.Config, _ *container.HostConfig, _ *network.NetworkingConfig) {
		c.StopTimeout = &wait
	})
	runs := func() bool { return c.Inspect(t).State.Running }
	b := newBed(t, unit.Unit{Container: c.Name})
	r, err := b.apply("unit.health", app)
	require.NoError(t, err)
	require.Equal(t, "container "+c.Name+" runs", r.Outputs["detail"])
	r, err = b.apply("unit.stop", app)
	require.NoError(t, err)
	require.Equal(t, true, r.Outputs["ran"])
	require.False(t, runs())
	_, err = b.apply("unit.health", app)
	require.ErrorContains(t, err, "container "+c.Name+" is exited")

	// A stop is still under way when the undo comes, and the container looks as if it ran.
	require.NoError(t, c.ContainerStart(t.Context(), c.ID, container.StartOptions{}))
	killed, _ := c.Events(t.Context(), events.ListOptions{Filters: filters.NewArgs(filters.Arg("container", c.ID),
		filters.Arg("event", string(events.ActionKill)))})
	stopping := make(chan error, 1)
	go func() { stopping <- c.ContainerStop(t.Context(), c.ID, container.StopOptions{}) }()
	<-killed
	undone, err := b.undo("unit.stop", app)
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome)
	require.NoError(t, <-stopping)
	require.True(t, runs())

	_, err = newBed(t, unit.Unit{Container: "unwind-test-none"}).apply("unit.stop", app)
	require.ErrorContains(t, err, "whether container unwind-test-none runs is not known")
}

// TestAContainerMayBeAbsent has one that is removed while it is a unit.
func TestAContainerMayBeAbsent(t *testing.T) {
	c := containertest.Start(t)
	b := newBed(t, unit.Unit{Container: c.Name})
	absent := map[string]any{"unit": "app", "absent": true}
	r, err := b.apply("unit.stop", absent)
	require.NoError(t, err)
	require.Equal(t, true, r.Outputs["ran"])
	require.NoError(t, c.ContainerRemove(t.Context(), c.ID, container.RemoveOptions{}))
	_, err = b.undo("unit.stop", absent)
	require.Error(t, err, "it ran before, and cannot run again")
	r, err = b.apply("unit.health", map[string]any{"unit": "app", "must": false})
	require.NoError(t, err)
	require.Equal(t, false, r.Outputs["healthy"])
	require.Equal(t, "there is no container "+c.Name, r.Outputs["detail"])

	b = newBed(t, unit.Unit{Container: c.Name})
	_, err = b.apply("unit.start", map[string]any{"unit": "app"})
	require.Error(t, err)
	b = newBed(t, unit.Unit{Container: c.Name})
	for _, action := range []string{"unit.stop", "unit.start"} {
		r, err = b.apply(action, absent)
		require.NoError(t, err)
		require.Equal(t, false, r.Outputs["ran"])
		undone, err := b.undo(action, absent)
		require.NoError(t, err)
		require.Equal(t, activities.Restored, undone.Outcome)
	}
}

// TestAContainerIsPaused and goes on; what somebody else has done meanwhile stays.
func TestAContainerIsPaused(t *testing.T) {
	c := containertest.Start(t, func(c *container.Config, _ *container.HostConfig, _ *network.NetworkingConfig) {
		c.StopTimeout = new(int)
	})
	status := func() string { return c.Inspect(t).State.Status }
	started := c.Inspect(t).State.StartedAt
	b := newBed(t, unit.Unit{Container: c.Name})
	r, err := b.apply("unit.pause", app)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"ran": true}, r.Outputs)
	require.Equal(t, container.StatePaused, status())
	r, err = b.apply("unit.resume", app)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"ran": false}, r.Outputs)
	require.Equal(t, container.StateRunning, status())
	require.Equal(t, started, c.Inspect(t).State.StartedAt, "it goes on")

	// Somebody resumes it before the step does, which says so.
	b = newBed(t, unit.Unit{Container: c.Name})
	_, err = b.apply("unit.pause", app)
	require.NoError(t, err)
	require.NoError(t, c.ContainerUnpause(t.Context(), c.Name))
	r, err = b.apply("unit.resume", app)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"ran": true}, r.Outputs)

	// Somebody stops it: nothing can be resumed, and only who forces the undo has it started.
	b = newBed(t, unit.Unit{Container: c.Name})
	_, err = b.apply("unit.pause", app)
	require.NoError(t, err)
	require.NoError(t, c.ContainerUnpause(t.Context(), c.Name))
	c.Stop(t)
	_, err = b.apply("unit.resume", app)
	require.ErrorContains(t, err, "resuming container "+c.Name)
	undone, err := b.undo("unit.resume", app)
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome)
	require.Equal(t, "the unit app does not run, as before", undone.Observed)
	undone, err = b.undo("unit.pause", app)
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, undone.Outcome)
	require.Equal(t, container.StateExited, status())
	a, e, _ := b.step("unit.pause", app)
	undone, err = a.Undo(t.Context(), e, activities.Decision{Force: undone.Drift.Digest})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome)
	require.Equal(t, container.StateRunning, status())

	// One that does not run is left so.
	c.Stop(t)
	b = newBed(t, unit.Unit{Container: c.Name})
	r, err = b.apply("unit.pause", app)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"ran": false}, r.Outputs)
	r, err = b.apply("unit.resume", map[string]any{"unit": "app", "if": false})
	require.NoError(t, err)
	require.Equal(t, "the unit app does not run", r.Summary)
	undone, err = b.undo("unit.pause", app)
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome)
	require.Equal(t, container.StateExited, status())

	_, err = newBed(t, service(t.TempDir(), "app")).apply("unit.pause", app)
	require.ErrorContains(t, err, "unit: app is not a container, and only containers can be paused; stop it instead")
}
