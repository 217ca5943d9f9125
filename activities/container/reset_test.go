package container_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/testrun"
)

func (s *stage) reset(t testing.TB, e activities.Entry, d activities.Decision) activities.Undone {
	t.Helper()
	u, err := s.action.(activities.Resetter).Reset(t.Context(), e, d)
	require.NoError(t, err)
	return u
}

func mustReset(t testing.TB, s *stage, e activities.Entry) {
	t.Helper()
	u := s.reset(t, e, activities.Decision{})
	require.Equal(t, activities.Residue, u.Outcome, "%+v", u)
	assert.Contains(t, u.Losses[0], "everything that was done in the container since it was made")
	assert.Equal(t, u, s.reset(t, e, activities.Decision{}))
	undone, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, u, undone, "the outcome is kept")
}

func TestResetMakesTheContainerAsItsImageMadeIt(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	named := "unwind-test-" + containertest.Random()
	_, err := containertest.Docker(t).VolumeCreate(t.Context(), volume.CreateOptions{Name: named})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t,
			containertest.Docker(containertest.Outliving(t)).VolumeRemove(containertest.Outliving(t).Context(), named, true))
	})
	b := containertest.Start(t,
		func(config *dockertypes.Config, host *dockertypes.HostConfig, _ *network.NetworkingConfig) {
			config.Labels, config.Env = map[string]string{"team": "x"}, []string{"A=1"}
			host.Binds, host.NetworkMode = []string{named + ":/named"}, "bridge"
		})
	s := newStage(t, t.TempDir())
	b.Run(t, "echo v >/named/v")
	image, made := containertest.Files(t, b), settings(b.Inspect(t))
	b.Run(t, "echo by-hand >/srv/a")
	rolledBack := s.entry(t)
	_, err = s.action.Apply(t.Context(), rolledBack,
		step(t, map[string]any{"container": b.Name, "command": "touch /srv/b"}), "")
	require.NoError(t, err)
	mustUndo(t, s, rolledBack, activities.Decision{}) // so that the container stands on a checkpoint
	e, with := s.entry(t), step(t, map[string]any{"container": b.Name, "command": "touch /srv/c; rm /bin/cat"})
	_, err = s.action.Apply(t.Context(), e, with, "")
	require.NoError(t, err)

	mustReset(t, s, e)
	assert.Equal(t, image, containertest.Files(t, b), "volumes are as they were")
	assert.Equal(t, made, settings(b.Inspect(t)))
	assert.Equal(t, containertest.ShellImage(t, b.Client), b.Inspect(t).Image)
	assert.True(t, b.Inspect(t).State.Running)
	assert.Empty(t, containertest.Checkpoints(t, e.Token))
	assert.Empty(t, containertest.Left(t, e.Token))
	_, err = s.action.Apply(t.Context(), e, with, "")
	assert.Equal(t, activities.Fenced, activities.TypeOf(err))

	next := s.entry(t)
	before := containertest.Files(t, b)
	_, err = s.action.Apply(t.Context(), next, with, "")
	require.NoError(t, err)
	mustUndo(t, s, next, activities.Decision{})
	assert.Equal(t, before, containertest.Files(t, b), "the container goes on as any other")
}

func TestResetWhereTheUndoIsBeyondRepair(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(t *testing.T, b *containertest.Box, state string, e activities.Entry)
		want   activities.ErrorType
		says   string
	}{
		"someone has removed the checkpoint": {func(t *testing.T, _ *containertest.Box, _ string, e activities.Entry) {
			for _, img := range containertest.Checkpoints(t, e.Token) {
				containertest.RemoveImage(t, img.RepoTags[0])
			}
		}, activities.DamagedRecord, "somebody has removed sha256:"},
		"the record is truncated": {func(t *testing.T, _ *containertest.Box, state string, e activities.Entry) {
			truncate(t, state, e, "record")
		}, activities.DamagedRecord, "record"},
		"the record is gone": {func(t *testing.T, _ *containertest.Box, state string, e activities.Entry) {
			for _, name := range []string{"record", "record-spare"} {
				require.NoError(t, os.Remove(filepath.Join(state, "container", "tokens", e.Token, name)))
			}
		}, activities.DamagedRecord, "is gone"},
		"the manifest is truncated": {func(t *testing.T, _ *containertest.Box, state string, e activities.Entry) {
			truncate(t, state, e, "before.gz")
		}, activities.DamagedRecord, "before.gz"},
		"the ticket is truncated": {func(t *testing.T, _ *containertest.Box, state string, e activities.Entry) {
			truncate(t, state, e, "ticket")
		}, activities.DamagedRecord, "ticket"},
		"how the step ended is truncated": {func(t *testing.T, _ *containertest.Box, state string, e activities.Entry) {
			truncate(t, state, e, "applied")
		}, activities.DamagedRecord, "applied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testrun.Sampled(t)
			b, state := containertest.Start(t), t.TempDir()
			s, image := newStage(t, state), containertest.Files(t, b)
			e := s.entry(t)
			e.Params = []byte(`{"container":"` + b.Name + `"}`)
			_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "echo two >/srv/a"}),
				"")
			require.NoError(t, err)
			left := containertest.Files(t, b)
			c.damage(t, b, state, e)
			for range 2 {
				_, err = s.action.Undo(t.Context(), e, activities.Decision{})
				require.ErrorContains(t, err, c.says)
				require.Equal(t, c.want, activities.TypeOf(err), "%v", err)
				assert.Equal(t, left, containertest.Files(t, b), "nothing is half restored")
				assert.Equal(t, b.ID, b.Inspect(t).ID)
				assert.Empty(t, containertest.Left(t, e.Token))
			}
			mustReset(t, s, e)
			assert.Equal(t, image, containertest.Files(t, b))
			assert.Empty(t, containertest.Left(t, e.Token))
		})
	}
}

// truncate cuts a file of a token's record in half.
func truncate(t testing.TB, state string, e activities.Entry, name string) {
	t.Helper()
	file := filepath.Join(state, "container", "tokens", e.Token, name)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(file, info.Size()/2))
}

func TestResetOfACommandThatNeverRanLeavesTheContainerAlone(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	b.Run(t, "echo mine >/srv/mine")
	for range 2 {
		e := s.entry(t)
		assert.Equal(t, activities.Nothing, s.reset(t, e, activities.Decision{}).Outcome)
		_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "touch /srv/a"}), "")
		assert.Equal(t, activities.Fenced, activities.TypeOf(err))
	}
	assert.Equal(t, b.ID, b.Inspect(t).ID)
	assert.True(t, b.Has(t, "/srv/mine"))
}

func TestResetBringsBackARemovedContainerButReplacesAnotherOnlyByForce(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	image := containertest.Files(t, b)
	removed := s.entry(t)
	_, err := s.action.Apply(t.Context(), removed, step(t, map[string]any{"container": b.Name, "command": "touch /srv/a"}),
		"")
	require.NoError(t, err)
	require.NoError(t, b.ContainerRemove(t.Context(), b.Name, dockertypes.RemoveOptions{Force: true}))
	mustReset(t, s, removed)
	require.Equal(t, image, containertest.Files(t, b))

	e := s.entry(t)
	_, err = s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "touch /srv/a"}), "")
	require.NoError(t, err)
	require.NoError(t, b.ContainerRemove(t.Context(), b.Name, dockertypes.RemoveOptions{Force: true}))
	other, err := b.ContainerCreate(t.Context(), &dockertypes.Config{Image: containertest.ShellImage(t, b.Client)},
		&dockertypes.HostConfig{NetworkMode: "none"}, nil, nil, b.Name)
	require.NoError(t, err)
	u := s.reset(t, e, activities.Decision{})
	require.Equal(t, activities.Drifted, u.Outcome)
	assert.Contains(t, u.Drift.Diff, other.ID[:12])
	require.Equal(t, other.ID, b.Inspect(t).ID)
	u = s.reset(t, e, activities.Decision{Force: u.Drift.Digest})
	require.Equal(t, activities.Residue, u.Outcome)
	assert.Equal(t, image, containertest.Files(t, b))
}

// TestUndosAndResetsAtOnceAgreeOnOneOutcome: whoever is quicker, the outcome that is kept is what
// the container came to.
func TestUndosAndResetsAtOnceAgreeOnOneOutcome(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	b, state := containertest.Start(t), t.TempDir()
	stages := []*stage{newStage(t, state), newStage(t, state), newStage(t, state), newStage(t, state)}
	image := containertest.Files(t, b)
	b.Run(t, "echo one >/srv/a")
	before := containertest.Files(t, b)
	e := stages[0].entry(t)
	_, err := stages[0].action.Apply(t.Context(), e,
		step(t, map[string]any{"container": b.Name, "command": "touch /srv/b"}), "")
	require.NoError(t, err)
	ends, errs := make([]activities.Undone, len(stages)), make([]error, len(stages))
	atOnce(len(stages), func(i int) {
		if i%2 == 0 {
			ends[i], errs[i] = stages[i].action.Undo(t.Context(), e, activities.Decision{})
		} else {
			ends[i], errs[i] = stages[i].action.(activities.Resetter).Reset(t.Context(), e, activities.Decision{})
		}
	})
	settled, err := stages[0].action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	for i := range ends {
		if errs[i] == nil {
			assert.Equal(t, settled, ends[i])
		}
	}
	assert.True(t, slices.Contains(errs, nil), "%v", errs)
	switch settled.Outcome {
	case activities.Residue:
		assert.Equal(t, image, containertest.Files(t, b))
	case activities.Compensated:
		assert.Equal(t, before, containertest.Files(t, b))
	default:
		t.Errorf("%+v", settled)
	}
	assert.Empty(t, containertest.Left(t, e.Token))
}
