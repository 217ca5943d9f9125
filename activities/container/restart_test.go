package container_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/enginetest"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestARestartLosesNothing(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	state := t.TempDir()
	s, b := layersStage(t, state), containertest.Start(t)
	b.Run(t, "mkdir -p /srv; echo base >/srv/a")
	first, _ := s.did(t, b, "echo one >/srv/a")
	second, _ := s.did(t, b, "echo two >>/srv/a")
	restart := func() {
		b.Restart(t)
	}
	restart()
	_, r := s.did(t, b, "cat /srv/a; touch /srv/b")
	assert.Equal(t, "one\ntwo\n", r.Outputs["stdout"])
	restart()
	s = layersStage(t, state)
	e := s.layersEntry()
	r, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "cat /srv/a"}), "")
	require.NoError(t, err)
	assert.Equal(t, "one\ntwo\n", r.Outputs["stdout"], "also of what only reads")
	restart()
	u, err := s.action.Undo(t.Context(), second, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome, "the third step has come after it: %+v", u)
	u, err = s.action.Undo(t.Context(), second, activities.Decision{Force: u.Drift.Digest})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome)
	assert.Equal(t, "one\n", saidBy(t, b, "cat /srv/a"))
	b.Stop(t)
	s.undid(t, first)
	assert.False(t, b.Inspect(t).State.Running, "it was stopped since, and stays so")
	require.NoError(t, b.ContainerStart(t.Context(), b.ID, dockertypes.StartOptions{}))
	_, r = s.did(t, b, "cat /srv/a; touch /srv/c")
	assert.Equal(t, "base\n", r.Outputs["stdout"])
}

func TestAContainerThatPreparesItselfAtItsStartIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := layersStage(t, t.TempDir())
	b := containertest.Start(t, func(c *dockertypes.Config, _ *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		c.Image, c.Cmd = containertest.UserlandImage(t), []string{"sh", "-c", "sleep 1; exec sleep 600"}
	})
	prepared := func() bool {
		name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(b.Inspect(t).State.Pid), "comm"))
		return err == nil && string(name) == "sleep\n"
	}
	require.Eventually(t, prepared, time.Minute, 10*time.Millisecond)
	first, _ := s.did(t, b, "echo one >/a")
	require.Empty(t, containertest.Checkpoints(t, first.Token), "it has layers")
	b.Restart(t)
	second, _ := s.did(t, b, "echo two >/a")
	assert.Equal(t, "two\n", saidBy(t, b, "cat /a"))
	s.undid(t, second)
	assert.Equal(t, "one\n", saidBy(t, b, "cat /a"))
	s.undid(t, first)
}

// TestARestartOfTheEngineLosesNothing has an engine of its own.
func TestARestartOfTheEngineLosesNothing(t *testing.T) {
	testrun.NeedRoot(t, "layers over containers")
	e := enginetest.Start(t)
	containertest.Prepare(t, e)
	s, b := newStageAt(t, container.Config{State: t.TempDir(), Host: e.Host}), containertest.StartOn(t, e)
	before := containertest.Shows(t, b)
	first, _ := s.did(t, b, "mkdir -p /srv; echo one >/srv/a")
	e.Stop()
	_, err := s.action.Undo(t.Context(), first, activities.Decision{})
	require.Error(t, err)
	require.NoError(t, e.Run())
	_, r := s.did(t, b, "cat /srv/a; touch /srv/b")
	assert.Equal(t, "one\n", r.Outputs["stdout"])
	u, err := s.action.Undo(t.Context(), first, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	_, err = s.action.Undo(t.Context(), first, activities.Decision{Force: u.Drift.Digest})
	require.NoError(t, err)
	assert.Equal(t, before, containertest.Shows(t, b))
}

func TestARestartOfAnEngineThatEndsItsContainersLosesNothing(t *testing.T) {
	testrun.NeedRoot(t, "layers over containers")
	e := enginetest.Start(t, enginetest.EndsAll)
	containertest.Prepare(t, e)
	s, b := newStageAt(t, container.Config{State: t.TempDir(), Host: e.Host}), containertest.StartOn(t, e)
	before := containertest.Shows(t, b)
	first, _ := s.did(t, b, "mkdir -p /srv; echo one >/srv/a")
	one := containertest.Shows(t, b)
	second, _ := s.did(t, b, "echo two >/srv/a")
	was := b.Inspect(t)
	e.Stop()
	require.NoError(t, e.Run())
	require.False(t, b.Inspect(t).State.Running)
	require.NoError(t, b.ContainerStart(t.Context(), b.ID, dockertypes.StartOptions{}))
	s.undid(t, second)
	assert.Equal(t, one, containertest.Shows(t, b))
	s.undid(t, first)
	assert.Equal(t, before, containertest.Shows(t, b))
	assert.Equal(t, was.ID, b.Inspect(t).ID)
}
