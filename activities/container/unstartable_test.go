package container_test

import (
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// startOwn starts a box whose program is a script in its own filesystem.
func startOwn(t testing.TB, script string) *containertest.Box {
	t.Helper()
	b := containertest.Create(t, func(c *dockertypes.Config, _ *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		c.Entrypoint, c.Cmd, c.User = []string{"/app/run.sh"}, nil, "root"
		c.Volumes = map[string]struct{}{"/data": {}}
	})
	// an engine gives an empty volume the times of its folder in the image
	b.Put(t, "/data", map[string]string{"kept": "x\n"})
	b.Put(t, "/app", map[string]string{"run.sh": "#!/bin/sh\n" + script, "needed": "x\n"})
	require.NoError(t, b.ContainerStart(t.Context(), b.Name, dockertypes.StartOptions{}))
	return b
}

func TestAStateThatCannotRunDoesNotKeepAnEarlierOneFromComingBack(t *testing.T) {
	t.Parallel()
	const gone = "it does not run, and cannot be started: "
	for name, of := range map[string]struct{ command, volumes, says string }{
		"its program is gone":       {command: "rm /app/run.sh", says: gone},
		"and a volume is kept":      {command: "rm /app/run.sh", volumes: "snapshot", says: gone},
		"everything is gone":        {command: "rm -rf /app /bin /etc /root /run /srv", says: gone},
		"its user is gone":          {command: "rm /etc/passwd", says: "unable to find user root"},
		"what it looks for is gone": {command: "rm /app/needed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testrun.Sampled(t)
			s, b := newStage(t, t.TempDir()), startOwn(t, "[ -e /app/needed ] || exit 3\nsleep infinity\n")
			before := containertest.Files(t, b)
			first, second := s.entry(t), s.entry(t)
			_, err := s.action.Apply(t.Context(), first, step(t, map[string]any{"container": b.Name, "command": of.command}), "")
			require.NoError(t, err)
			_, err = s.action.Apply(t.Context(), second,
				step(t, map[string]any{"container": b.Name, "command": "touch /srv/it; exit 1", "volumes": of.volumes}), "")
			require.Equal(t, activities.Unsuccessful, activities.TypeOf(err), "%v", err)
			u, err := s.action.Undo(t.Context(), second, activities.Decision{})
			require.NoError(t, err)
			if of.says != "" {
				require.Equal(t, activities.Residue, u.Outcome, "%+v", u)
				assert.Contains(t, u.Observed, of.says)
			}
			require.Eventually(t, func() bool { return !b.Inspect(t).State.Running }, time.Minute, 10*time.Millisecond)
			var heals []string
			if u.Outcome == activities.Residue && of.volumes == "" {
				heals = []string{second.Token}
			}
			assert.Equal(t, heals, mustUndo(t, s, first, activities.Decision{}).Heals)
			assert.Equal(t, before, containertest.Files(t, b))
			assert.True(t, b.Inspect(t).State.Running)
		})
	}
}

func TestAResetToAnImageThatCannotRunEndsTheUndo(t *testing.T) {
	t.Parallel()
	s, b := newStage(t, t.TempDir()), startOwn(t, "sleep infinity\n")
	e := s.entry(t)
	_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "touch /app/it"}), "")
	require.NoError(t, err)
	u := s.reset(t, e, activities.Decision{})
	assert.Contains(t, u.Observed, "it does not run, and cannot be started: ")
}
