package container_test

import (
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/go-connections/nat"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/testrun"
)

// TestReplacedContainerComesBackAsItWas: name, id, state, networks with their addresses and names,
// published ports.
func TestReplacedContainerComesBackAsItWas(t *testing.T) {
	t.Parallel()
	network1, network2 := "unwind-test-"+containertest.Random(), "unwind-test-"+containertest.Random()
	networkOf(t, network1, "10.213.27.0/24")
	networkOf(t, network2, "10.213.28.0/24")
	b := containertest.Start(t,
		func(config *dockertypes.Config, host *dockertypes.HostConfig, net *network.NetworkingConfig) {
			config.Env, config.Labels = []string{"A=1"}, map[string]string{"team": "x"}
			config.ExposedPorts = nat.PortSet{"80/tcp": {}}
			host.NetworkMode = dockertypes.NetworkMode(network1)
			host.PortBindings = nat.PortMap{"80/tcp": {{HostIP: "127.0.0.1", HostPort: "18227"}}}
			host.RestartPolicy = dockertypes.RestartPolicy{Name: dockertypes.RestartPolicyOnFailure, MaximumRetryCount: 3}
			net.EndpointsConfig = map[string]*network.EndpointSettings{network1: {
				IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: "10.213.27.99"}, Aliases: []string{"web"},
			}}
		})
	require.NoError(t,
		b.NetworkConnect(t.Context(), network2, b.ID, &network.EndpointSettings{Aliases: []string{"second"}}))
	before, s := settings(b.Inspect(t)), newStage(t, t.TempDir())
	e := s.entry(t)
	change, err := s.replace.Plan(t.Context(), e,
		step(t, map[string]any{"container": b.Name, "image": containertest.Greens(t)[0]}))
	require.NoError(t, err)
	assert.Equal(t, activities.High, change.Risk)
	assert.Contains(t, strings.Join(change.Facts, "; "), "127.0.0.1:18227 to 80/tcp")
	assert.Contains(t, strings.Join(change.Facts, "; "), "`docker container prune` would remove it, and the undo with it")

	// The checks run before anything is stopped, in a container beside the old one.
	r, err := s.replace.Apply(t.Context(), e,
		step(t, map[string]any{"container": b.Name, "image": containertest.Greens(t)[0]},
			activities.Check{Exists: &activities.ExistsCheck{Path: "/srv/green"}}), change.Digest)
	require.NoError(t, err)
	fresh := b.Inspect(t)
	assert.Equal(t, r.Outputs["container"], fresh.ID)
	assert.NotEqual(t, b.ID, fresh.ID)
	assert.True(t, b.Has(t, "/srv/green"))
	assert.Equal(t, before, settings(fresh), "the same but for the image")
	old, err := b.ContainerInspect(t.Context(), b.ID)
	require.NoError(t, err)
	assert.False(t, old.State.Running)
	assert.True(t, old.HostConfig.RestartPolicy.IsNone(), "no engine starts it again")

	u, err := s.replace.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	back := b.Inspect(t)
	assert.Equal(t, b.ID, back.ID)
	assert.True(t, back.State.Running)
	assert.Equal(t, before, settings(back))
	_, err = b.ContainerInspect(t.Context(), fresh.ID)
	assert.True(t, cerrdefs.IsNotFound(err))
	require.NoError(t, s.replace.Release(t.Context(), e))
	assert.Empty(t, containertest.Left(t, e.Token))
}

// TestAnOldContainerThatALaterStepHasLeftAsideComesBack from the name that it has by then, which is
// held: an undo of that step that comes late cannot take it away again.
func TestAnOldContainerThatALaterStepHasLeftAsideComesBack(t *testing.T) {
	t.Parallel()
	for _, isUndone := range []bool{true, false} {
		b, dir := containertest.Start(t), t.TempDir()
		s := newStage(t, dir)
		e := s.entry(t)
		_, err := s.replace.Apply(t.Context(), e,
			step(t, map[string]any{"container": b.Name, "image": containertest.Greens(t)[0]}), "")
		require.NoError(t, err)
		later := activities.NewToken("later", "step", 1)
		left := aside.LeftName(later, aside.NameFor(e.Token))
		require.NoError(t, b.ContainerRename(t.Context(), b.ID, left))
		if isUndone {
			u, err := s.replace.Undo(t.Context(), e, activities.Decision{})
			require.NoError(t, err)
			require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
			require.Equal(t, b.ID, b.Inspect(t).ID)
			require.Error(t, b.ContainerRename(t.Context(), b.ID, left))
			folders, err := journal.Open(filepath.Join(dir, "folder", "journal"))
			require.NoError(t, err)
			record, err := folders.Token(later)
			require.NoError(t, err)
			_, err = record.DecideReleasing()
			require.NoError(t, err)
			require.NoError(t, record.MarkReleased())
		}
		require.NoError(t, s.replace.Release(t.Context(), e))
		_, err = b.ContainerInspect(t.Context(), left)
		require.True(t, cerrdefs.IsNotFound(err), "%v", err)
		require.Equal(t, isUndone, b.Inspect(t).ID == b.ID)
		require.Empty(t, containertest.Left(t, e.Token))
	}
}

func TestReplaceThatFailsItsChecksLeavesTheOldContainerAlone(t *testing.T) {
	t.Parallel()
	bound := t.TempDir()
	b, f := containertest.Start(t, func(_ *dockertypes.Config, host *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		host.Binds = []string{bound + ":/bound"}
		host.Mounts = []mount.Mount{{Type: mount.TypeVolume, Target: "/mounted"}}
	}), newFront(t)
	s, seen := frontStage(t, f), map[string]dockertypes.InspectResponse{}
	f.before(http.MethodDelete, "/containers/", func(r *http.Request) {
		c, err := b.ContainerInspect(r.Context(), path.Base(r.URL.Path))
		if err == nil {
			seen[strings.Split(c.Name, "-")[2]] = c
		}
	})
	e, started := s.entry(t), b.Inspect(t).State.StartedAt
	with := step(t, map[string]any{"container": b.Name, "image": containertest.Greens(t)[1]},
		activities.Check{Exists: &activities.ExistsCheck{Path: "/none"}})
	change, err := s.replace.Plan(t.Context(), e, with)
	require.NoError(t, err)
	assert.Contains(t, strings.Join(change.Facts, "\n"), "mounted read-only")
	assert.Contains(t, strings.Join(change.Losses, "\n"), "a volume without a name at /unnamed")
	for range 2 {
		_, err := s.replace.Apply(t.Context(), e, with, "")
		require.Equal(t, activities.CheckFailed, activities.TypeOf(err), "%v", err)
	}
	u, err := s.replace.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Nothing, u.Outcome)
	assert.Equal(t, b.ID, b.Inspect(t).ID)
	assert.Equal(t, started, b.Inspect(t).State.StartedAt)
	assert.Empty(t, containertest.Left(t, e.Token))

	trial, fresh := seen["trial"], seen["new"]
	require.NotEmpty(t, trial.ID)
	assert.Equal(t, trial.ID[:12], trial.Config.Hostname, "its own, not the old one's")
	writes := map[string]bool{}
	for _, m := range trial.Mounts {
		writes[m.Destination] = m.RW
	}
	assert.Equal(t, map[string]bool{"/bound": false, "/mounted": false, "/unnamed": true}, writes)
	require.Len(t, fresh.Mounts, 3)
	for _, m := range slices.Concat(trial.Mounts, fresh.Mounts) {
		if m.Type == mount.TypeVolume {
			_, err := b.VolumeInspect(t.Context(), m.Name)
			assert.Equal(t, m.Destination == "/unnamed", cerrdefs.IsNotFound(err), "%s: %v", m.Destination, err)
		}
	}
}

// TestAFencedReplaceDoesNotPutTheOldContainerAside: an undo that has begun, and waits for a person
// perhaps, finds it at work.
func TestAFencedReplaceDoesNotPutTheOldContainerAside(t *testing.T) {
	t.Parallel()
	b, f := containertest.Start(t), newFront(t)
	s := frontStage(t, f)
	e, started := s.entry(t), b.Inspect(t).State.StartedAt
	f.before(http.MethodPost, "/containers/create", func(*http.Request) {
		_, err := s.token(t, e).Decide(journal.Undoing)
		assert.NoError(t, err)
	})
	_, err := s.replace.Apply(t.Context(), e,
		step(t, map[string]any{"container": b.Name, "image": containertest.Greens(t)[0]}), "")
	require.Equal(t, activities.Fenced, activities.TypeOf(err), "%v", err)
	assert.Equal(t, b.ID, b.Inspect(t).ID)
	u, err := s.replace.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Nothing, u.Outcome)
	assert.Equal(t, started, b.Inspect(t).State.StartedAt)
	assert.Empty(t, containertest.Left(t, e.Token))
}

func TestAnOrphanedReplaceWhoseOldContainerIsGoneIsSettled(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	e := s.entry(t)
	_, err := s.replace.Apply(t.Context(), e,
		step(t, map[string]any{"container": b.Name, "image": containertest.Greens(t)[0]}), "")
	require.NoError(t, err)
	fresh := b.Inspect(t).ID
	require.NoError(t, b.ContainerRemove(t.Context(), b.ID, dockertypes.RemoveOptions{Force: true}))
	_, err = s.replace.Undo(t.Context(), e, activities.Decision{})
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "in a task a person decides: %v", err)
	u, err := s.replace.Undo(t.Context(), e, activities.Decision{Orphan: true})
	require.NoError(t, err)
	assert.Equal(t, activities.Residue, u.Outcome)
	assert.Contains(t, u.Observed, "there is nothing to switch back to, and what has its name now is left as it is")
	assert.Equal(t, fresh, b.Inspect(t).ID)
	assert.True(t, b.Inspect(t).State.Running)
}

// TestAStepBeforeAReplaceIsUndoneInItsPlace: not in the container that was put aside, and only as a
// person decides.
func TestAStepBeforeAReplaceIsUndoneInItsPlace(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	before, first, e := containertest.Files(t, b), s.entry(t), s.entry(t)
	_, err := s.action.Apply(t.Context(), first, step(t, map[string]any{"container": b.Name, "command": "echo x >/srv/x"}),
		"")
	require.NoError(t, err)
	_, err = s.replace.Apply(t.Context(), e,
		step(t, map[string]any{"container": b.Name, "image": containertest.Greens(t)[0]}), "")
	require.NoError(t, err)
	fresh := b.Inspect(t).ID
	u, err := s.action.Undo(t.Context(), first, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome, "%+v", u)
	assert.Contains(t, u.Drift.Diff, fresh[:12])
	require.Equal(t, fresh, b.Inspect(t).ID)
	_, err = s.action.Undo(t.Context(), first, activities.Decision{Force: u.Drift.Digest})
	require.NoError(t, err)
	back := b.Inspect(t)
	require.Equal(t, before, containertest.Files(t, b))
	require.NotEqual(t, b.ID, back.ID)

	u, err = s.replace.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	assert.Equal(t, back.ID, b.Inspect(t).ID, "it is what the old one is now")
	assert.True(t, b.Inspect(t).State.Running)
	require.NoError(t, s.replace.Release(t.Context(), e))
	assert.Empty(t, containertest.Left(t, e.Token))
	_, err = b.ContainerInspect(t.Context(), b.ID)
	assert.True(t, cerrdefs.IsNotFound(err))
}

// TestAContainerIsReplacedByOneFromACheckpoint: and that is taken back, with the step before it,
// whether or not the record that has the checkpoint is released first.
func TestAContainerIsReplacedByOneFromACheckpoint(t *testing.T) {
	t.Parallel()
	for name, released := range map[string]bool{"undone in turn": false, "checkpoint released first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := containertest.Start(t), newStage(t, t.TempDir())
			b.Run(t, "echo before >/srv/a")
			before, first, e := containertest.Files(t, b), s.entry(t), s.entry(t)
			ran, err := s.action.Apply(t.Context(), first,
				step(t, map[string]any{"container": b.Name, "command": "echo after >/srv/a"}), "")
			require.NoError(t, err)
			after := containertest.Files(t, b)
			_, err = s.replace.Apply(t.Context(), e,
				step(t, map[string]any{"container": b.Name, "image": ran.Outputs["checkpoint"]}), "")
			require.NoError(t, err)
			require.Equal(t, before, containertest.Files(t, b))
			require.NotEqual(t, b.ID, b.Inspect(t).ID)
			if released {
				require.NoError(t, s.action.Release(t.Context(), first))
				require.True(t, b.Inspect(t).State.Running)
			}
			u, err := s.replace.Undo(t.Context(), e, activities.Decision{})
			require.NoError(t, err)
			require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
			require.Equal(t, b.ID, b.Inspect(t).ID)
			require.Equal(t, after, containertest.Files(t, b))
			require.NoError(t, s.replace.Release(t.Context(), e))
			if !released {
				mustUndo(t, s, first, activities.Decision{})
				require.Equal(t, before, containertest.Files(t, b))
				require.NoError(t, s.action.Release(t.Context(), first))
			}
			assert.Empty(t, containertest.Left(t, e.Token))
			assert.Empty(t, containertest.Left(t, first.Token))
			if released {
				_, err = b.ImageInspect(t.Context(), ran.Outputs["checkpoint"].(string))
				assert.True(t, cerrdefs.IsNotFound(err), "%v", err)
			}
		})
	}
}

// TestWhatRunsInTheNewContainerIsUndoneBeforeIt: it is another container by then.
func TestWhatRunsInTheNewContainerIsUndoneBeforeIt(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	e, after := s.entry(t), s.entry(t)
	_, err := s.replace.Apply(t.Context(), e,
		step(t, map[string]any{"container": b.Name, "image": containertest.Greens(t)[0]}), "")
	require.NoError(t, err)
	_, err = s.action.Apply(t.Context(), after, step(t, map[string]any{"container": b.Name, "command": "echo x >/srv/x"}),
		"")
	require.NoError(t, err)
	u, err := s.action.Undo(t.Context(), after, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome)
	u, err = s.replace.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	assert.Equal(t, b.ID, b.Inspect(t).ID)
}

func TestReplaceRefusesWhatItCouldNotTakeBack(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	stopped := containertest.Start(t)
	require.NoError(t, b.ContainerKill(t.Context(), stopped.ID, "KILL"))
	require.Eventually(t, func() bool { return !stopped.Inspect(t).State.Running }, time.Minute, 20*time.Millisecond)
	gone := containertest.Start(t, func(_ *dockertypes.Config, host *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		host.AutoRemove = true
	})
	image := containertest.Greens(t)[0]
	for says, with := range map[string]map[string]any{
		"container: name the container":               {"image": image},
		"image: name the image":                       {"container": b.Name},
		`no container "unwind-test-none"`:             {"container": "unwind-test-none", "image": image},
		"docker start " + stopped.Name + " starts it": {"container": stopped.Name, "image": image},
		`image: the engine has no image "none:1"`:     {"container": b.Name, "image": "none:1"},
		"is not the name of a container":              {"container": b.ID[:12], "image": image},
		"start it without --rm":                       {"container": gone.Name, "image": image},
		`ignore: "tmp" is not an absolute path`:       {"container": b.Name, "image": image, "ignore": []string{"tmp"}},
	} {
		e := s.entry(t)
		_, err := s.replace.Plan(t.Context(), e, step(t, with))
		require.ErrorContains(t, err, says)
		assert.Equal(t, activities.Refused, activities.TypeOf(err))
		_, err = s.replace.Apply(t.Context(), e, step(t, with), "")
		require.ErrorContains(t, err, says)
		assert.Empty(t, containertest.Left(t, e.Token))
	}
	assert.Equal(t, b.ID, b.Inspect(t).ID)
}

// TestOldContainerThatWasRemovedIsNotMadeUp: nothing can be switched back to, and a person is told.
func TestOldContainerThatWasRemovedIsNotMadeUp(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	e := s.entry(t)
	_, err := s.replace.Apply(t.Context(), e,
		step(t, map[string]any{"container": b.Name, "image": containertest.Greens(t)[0]}), "")
	require.NoError(t, err)
	fresh := b.Inspect(t).ID
	require.NoError(t, b.ContainerRemove(t.Context(), b.ID, dockertypes.RemoveOptions{Force: true}))
	_, err = s.replace.Undo(t.Context(), e, activities.Decision{})
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
	assert.Equal(t, fresh, b.Inspect(t).ID, "the new one is left alone")
}

// TestLateCallsDoNothingToTheOldContainer makes the calls that a forward or an undo still has in
// hand when it wakes up after the step was undone. The undo looks at what it takes away also where
// one before it had looked; and needs no image of the old container's.
func TestLateCallsDoNothingToTheOldContainer(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	own, err := containertest.Docker(t).ContainerCommit(t.Context(), containertest.Start(t).ID,
		dockertypes.CommitOptions{})
	require.NoError(t, err)
	b, s := containertest.Start(t,
		func(c *dockertypes.Config, _ *dockertypes.HostConfig, _ *network.NetworkingConfig) { c.Image = own.ID }),
		newStage(t, t.TempDir())
	e := s.entry(t)
	_, err = s.replace.Apply(t.Context(), e,
		step(t, map[string]any{"container": b.Name, "image": containertest.Greens(t)[0]}), "")
	require.NoError(t, err)
	containertest.RemoveImage(t, own.ID)
	_, err = s.token(t, e).Create("back", &struct{}{}) // an undo has looked, and died
	require.NoError(t, err)
	b.Run(t, "echo mine >/srv/mine")
	u, err := s.replace.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	_, err = s.replace.Undo(t.Context(), e, activities.Decision{Force: u.Drift.Digest})
	require.NoError(t, err)
	before := b.Inspect(t)
	for _, name := range []string{"unwind-" + e.Token + "-aside", "unwind-" + e.Token + "-return"} {
		assert.True(t, cerrdefs.IsConflict(b.ContainerRename(t.Context(), b.ID, name)), "the name is taken")
		require.NoError(t, b.ContainerStop(t.Context(), name, dockertypes.StopOptions{}))
		assert.Error(t, b.ContainerStart(t.Context(), name, dockertypes.StartOptions{}))
	}
	assert.Equal(t, before.State, b.Inspect(t).State)
	assert.Equal(t, b.ID, b.Inspect(t).ID)
}
