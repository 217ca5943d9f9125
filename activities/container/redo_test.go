package container_test

import (
	"testing"

	cerrdefs "github.com/containerd/errdefs"
	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// redoable is the decision of a rollback after the end.
var redoable = activities.Decision{Redoable: true, Who: "someone", Why: "to look at it"}

// again is the entry of the next generation, which does an earlier one again.
func (s *stage) again(t testing.TB, of activities.Entry) activities.Entry {
	e := s.entry(t)
	e.Redoes = of.Token
	return e
}

func mustUndo(t testing.TB, s *stage, e activities.Entry, d activities.Decision) activities.Undone {
	t.Helper()
	u, err := s.action.Undo(t.Context(), e, d)
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	return u
}

func TestRedoPutsBackExactlyWhatTheRollbackTookAway(t *testing.T) {
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
			config.Labels = map[string]string{"team": "x"}
			host.Binds = []string{named + ":/named"}
			host.NetworkMode = "bridge"
		})
	s := newStage(t, t.TempDir())
	b.Run(t, "echo one >/srv/a; mkdir /srv/d; echo x >/srv/d/x; echo v >/named/v")
	before, made := containertest.Files(t, b), settings(b.Inspect(t))
	first := s.entry(t)
	with := step(t,
		map[string]any{"container": b.Name,
			"command": "rm -r /srv/d; cat /proc/sys/kernel/random/uuid >/srv/a; cat /srv/a; chmod 600 /srv/a"})
	ran, err := s.action.Apply(t.Context(), first, with, "")
	require.NoError(t, err)
	after := containertest.Files(t, b)

	back := first
	for range 2 { // undone and done again, and that once more
		mustUndo(t, s, back, redoable)
		require.Equal(t, before, containertest.Files(t, b))
		require.Len(t, containertest.Kept(t, back.Token), 1)
		next := s.again(t, back)
		plan, err := s.action.Plan(t.Context(), next, with)
		require.NoError(t, err)
		assert.Contains(t, plan.Diff, "- /srv/d/x\n")
		require.Equal(t, before, containertest.Files(t, b))

		r, err := s.action.Apply(t.Context(), next, with, plan.Digest)
		require.NoError(t, err)
		require.Equal(t, after, containertest.Files(t, b), "another run would have written another id")
		assert.Equal(t, ran.Outputs["stdout"], r.Outputs["stdout"])
		assert.Equal(t, true, r.Outputs["changed"])
		assert.FileExists(t, r.Outputs["log"].(string))
		assert.NotEqual(t, ran.Outputs["log"], r.Outputs["log"])
		assert.Equal(t, containertest.Checkpoints(t, next.Token)[0].ID, r.Outputs["checkpoint"], "its own")
		assert.Contains(t, r.Notes[0], "did not run again")
		assert.Equal(t, made, settings(b.Inspect(t)))
		seen, err := s.action.Observe(t.Context(), next)
		require.NoError(t, err)
		assert.Equal(t, activities.AsLeft, seen.State)
		require.NoError(t, s.action.Release(t.Context(), back))
		assert.Empty(t, containertest.Kept(t, back.Token))
		again, err := s.action.Apply(t.Context(), next, with, plan.Digest)
		require.NoError(t, err)
		assert.Equal(t, r, again)
		assert.FileExists(t, r.Outputs["log"].(string), "it is the new step's own")
		back = next
	}
	mustUndo(t, s, back, activities.Decision{})
	assert.Equal(t, before, containertest.Files(t, b))
	assert.Empty(t, containertest.Kept(t, back.Token), "nobody has asked for it")
	assert.Empty(t, containertest.Left(t, back.Token))
}

func TestRedoOfWhatIsNotThereAnyMoreIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(t *testing.T, b *containertest.Box, s *stage, e activities.Entry)
		want  activities.ErrorType
		says  string
	}{
		"someone has changed the container": {func(t *testing.T, b *containertest.Box, s *stage, e activities.Entry) {
			mustUndo(t, s, e, redoable)
			b.Run(t, "echo mine >/srv/mine")
		}, activities.Refused, "+ /srv/mine"},
		"someone has removed the container": {func(t *testing.T, b *containertest.Box, s *stage, e activities.Entry) {
			mustUndo(t, s, e, redoable)
			stood := b.Inspect(t).Image
			t.Cleanup(func() { containertest.RemoveImage(t, stood) }) // nobody else knows of it once the container is gone
			require.NoError(t, b.ContainerRemove(t.Context(), b.Name, dockertypes.RemoveOptions{Force: true}))
		}, activities.Refused, "has been removed since the rollback"},
		"someone has removed the image": {func(t *testing.T, b *containertest.Box, s *stage, e activities.Entry) {
			mustUndo(t, s, e, redoable)
			containertest.RemoveImage(t, containertest.Kept(t, e.Token)[0].ID)
		}, activities.DamagedRecord, "is gone: somebody has removed image sha256:"},
		"released": {func(t *testing.T, _ *containertest.Box, s *stage, e activities.Entry) {
			mustUndo(t, s, e, redoable)
			require.NoError(t, s.action.Release(t.Context(), e))
		}, activities.Refused, "is released"},
		"an undo that kept nothing": {func(t *testing.T, _ *containertest.Box, s *stage, e activities.Entry) {
			mustUndo(t, s, e, activities.Decision{})
		}, activities.Refused, "has kept nothing"},
		"not undone": {func(*testing.T, *containertest.Box, *stage, activities.Entry) {}, activities.Refused,
			"has not been rolled back"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testrun.Sampled(t)
			b, s, e, _ := applied(t, map[string]any{})
			c.spoil(t, b, s, e)
			stands, _ := b.ContainerInspect(t.Context(), b.Name)
			next, with := s.again(t, e), step(t,
				map[string]any{"container": b.Name, "command": "echo two >/srv/a; mkdir /srv/d"})
			_, err := s.action.Apply(t.Context(), next, with, "")
			require.ErrorContains(t, err, c.says)
			assert.Equal(t, c.want, activities.TypeOf(err))
			_, err = s.action.Plan(t.Context(), next, with)
			assert.Equal(t, c.want, activities.TypeOf(err))
			now, _ := b.ContainerInspect(t.Context(), b.Name)
			assert.Equal(t, stands.ContainerJSONBase == nil, now.ContainerJSONBase == nil)
			if now.ContainerJSONBase != nil {
				assert.Equal(t, stands.ID, now.ID, "nothing was touched")
			}
			u, err := s.action.Undo(t.Context(), next, activities.Decision{})
			require.NoError(t, err)
			assert.Equal(t, activities.Nothing, u.Outcome)
		})
	}
}

func TestRedoOfACommandThatNeverRanRunsIt(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	e := s.entry(t)
	u, err := s.action.Undo(t.Context(), e, redoable)
	require.NoError(t, err)
	require.Equal(t, activities.Nothing, u.Outcome)
	r, err := s.action.Apply(t.Context(), s.again(t, e),
		step(t, map[string]any{"container": b.Name, "command": "echo ran >/srv/a; cat /srv/a"}), "")
	require.NoError(t, err)
	assert.Equal(t, "ran\n", r.Outputs["stdout"])
	assert.True(t, b.Has(t, "/srv/a"))
}

func TestRedoPutsBackForcedDriftToo(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	b, s, e, before := applied(t, map[string]any{})
	b.Run(t, "echo mine >/srv/mine")
	drifted := containertest.Files(t, b)
	u, err := s.action.Undo(t.Context(), e, redoable)
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	assert.Empty(t, containertest.Kept(t, e.Token), "nothing has been taken away")
	mustUndo(t, s, e, activities.Decision{Redoable: true, Force: u.Drift.Digest})
	require.Equal(t, before, containertest.Files(t, b))
	_, err = s.action.Apply(t.Context(), s.again(t, e),
		step(t, map[string]any{"container": b.Name, "command": "true >/srv/a"}), "")
	require.NoError(t, err)
	assert.Equal(t, drifted, containertest.Files(t, b))
}

func TestRedoLeavesStoppedWhatTheStepHadStopped(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	b := containertest.Start(t, func(config *dockertypes.Config, _ *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		config.Cmd = []string{"/bin/sh", "-c", "while [ ! -e /tmp/stop ]; do sleep 0.05; done"}
	})
	s := newStage(t, t.TempDir())
	before, e := containertest.Files(t, b), s.entry(t)
	with := step(t, map[string]any{"container": b.Name, "command": "echo x >/srv/a; touch /tmp/stop; /bin/sleep 60"})
	_, err := s.action.Apply(t.Context(), e, with, "")
	require.Equal(t, activities.Unsuccessful, activities.TypeOf(err), "%v", err)
	require.False(t, b.Inspect(t).State.Running)
	mustUndo(t, s, e, redoable)
	require.True(t, b.Inspect(t).State.Running)
	next := s.again(t, e)
	_, failed := s.action.Apply(t.Context(), next, with, "")
	assert.Equal(t, err, failed, "it ends as it had ended")
	assert.False(t, b.Inspect(t).State.Running)
	assert.True(t, b.Has(t, "/srv/a"))
	mustUndo(t, s, next, activities.Decision{})
	assert.True(t, b.Inspect(t).State.Running)
	assert.Equal(t, before, containertest.Files(t, b))
}

func TestRecordsTellWhoseTheyAreAndWhatTheyWeigh(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	b.Run(t, "cp /bin/sh /srv/big")
	big, err := b.ContainerStatPath(t.Context(), b.Name, "/srv/big")
	require.NoError(t, err)
	e := s.entry(t)
	owner := activities.Owner{Workflow: "task", Run: "run"}
	with := step(t, map[string]any{"container": b.Name, "command": "cp /bin/sh /srv/more"})
	_, err = s.action.Apply(activities.WithOwner(t.Context(), owner), e, with, "")
	require.NoError(t, err)
	told := func() activities.Record {
		t.Helper()
		records, problems, err := s.world.Records.Records(t.Context())
		require.NoError(t, err)
		require.Empty(t, problems)
		require.Len(t, records, 1)
		require.Equal(t, e.Token, records[0].Entry.Token)
		return records[0]
	}
	r := told()
	assert.Equal(t, activities.RecordOpen, r.State)
	assert.Equal(t, owner, r.Owner)
	assert.Equal(t, e, r.Entry)
	assert.InDelta(t, big.Size, r.Bytes, 50_000, "the checkpoint, and a little")
	mustUndo(t, s, e, redoable)
	r = told()
	assert.Equal(t, activities.RecordUndone, r.State)
	assert.InDelta(t, 2*big.Size, r.Bytes, 50_000, "what the rollback has kept, and a little")
	require.NoError(t, s.action.Release(t.Context(), e))
	r = told()
	assert.Equal(t, activities.RecordReleased, r.State)
	assert.Less(t, r.Bytes, int64(50_000), "%+v", r)
}

func TestRedoLeavesOnlyTheImageThatTheContainerStandsOn(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	b, s, e, _ := applied(t, map[string]any{})
	mustUndo(t, s, e, redoable)
	stood, next := b.Inspect(t).Image, s.again(t, e)
	_, err := s.action.Apply(t.Context(), next, step(t, map[string]any{"container": b.Name, "command": "true >/srv/a"}),
		"")
	require.NoError(t, err)
	_, err = b.ImageInspect(t.Context(), stood)
	require.NoError(t, err, "the redo's own checkpoint is made from it")
	require.NoError(t, s.action.Release(t.Context(), e))
	require.NoError(t, s.action.Release(t.Context(), next))
	_, err = b.ImageInspect(t.Context(), stood)
	assert.True(t, cerrdefs.IsNotFound(err), "%v", err)
	assert.Equal(t, []string{b.Inspect(t).Image}, ourImages(t, b))
}
