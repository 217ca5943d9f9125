package volumes_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/examples/found"
	"github.com/seed-62bf7108/unwind/testrun"
)

// scene is a box with a volume, and the world of a worker.
type scene struct {
	*testing.T
	box    *containertest.Box
	world  activities.World
	action activities.Action
	place  string
	state  string
	volume string
	root   string
}

func newScene(t *testing.T, layers bool) *scene {
	t.Helper()
	testrun.NeedRoot(t, "copies of volumes")
	s := &scene{T: t, box: startWithVolume(t), state: t.TempDir()}
	c := container.Config{State: s.state, Layers: container.LayersNever}
	if layers {
		c.Layers = container.LayersRequire
		t.Cleanup(func() { containertest.RemoveLayers(t, s.state) })
	}
	w, err := container.New(c)
	require.NoError(t, err)
	s.world, s.action = w, w.Actions[0]
	s.place, err = w.Journal(t.Context())
	require.NoError(t, err)
	for _, m := range s.box.Inspect(t).Mounts {
		s.volume, s.root = m.Name, m.Source
	}
	s.box.Run(t, "mkdir -p /srv /data/d; echo one >/data/a; echo same >/data/same; echo x >/data/d/x; chmod 751 /data/d")
	return s
}

func (s *scene) entry() activities.Entry {
	token := activities.NewToken(containertest.Random(), "it", 1)
	s.Cleanup(func() { containertest.Clear(s.T, token) })
	return activities.Entry{
		Version: activities.EntryVersion, Seq: 1, Step: "it", Action: "container.exec", UndoType: "container.exec.undo",
		Token: token, Place: activities.Place{Journal: s.place},
	}
}

func (s *scene) step(command string) activities.Step {
	raw, err := json.Marshal(map[string]any{"container": s.box.Name, "command": command, "volumes": "snapshot"})
	require.NoError(s, err)
	return activities.Step{ID: "it", With: raw}
}

func (s *scene) did(command string) activities.Entry {
	s.Helper()
	e := s.entry()
	r, err := s.action.Apply(s.Context(), e, s.step(command), "")
	require.NoError(s, err)
	require.Contains(s, r.Notes[len(r.Notes)-1], "a copy of volume "+s.volume)
	return e
}

// holds is all that the volume holds, to the nanosecond, as its host sees it.
func (s *scene) holds() found.Snapshot {
	s.Helper()
	all, err := found.Files("", s.root)
	require.NoError(s, err)
	return all
}

// chunk is where a step keeps a piece of a file.
func (s *scene) chunk(e activities.Entry, content string) string {
	s.Helper()
	name := fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
	at := filepath.Join(s.state, "container", "tokens", e.Token, "volumes", "chunks", name[:2], name[2:])
	require.FileExists(s, at)
	return at
}

func (s *scene) undo(e activities.Entry, d activities.Decision) activities.Undone {
	s.Helper()
	u, err := s.action.Undo(s.Context(), e, d)
	require.NoError(s, err)
	return u
}

const change = "echo two >/data/a; rm -r /data/d; echo n >/data/new; mkdir -p /data/deep/er; echo app >/srv/app"

func TestVolumesComeBackExactly(t *testing.T) {
	for name, layers := range map[string]bool{"docker commit": false, "layers": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, layers)
			before := s.holds()
			plan, err := s.action.Plan(t.Context(), s.entry(), s.step(change))
			require.NoError(t, err)
			assert.Contains(t, plan.Facts[len(plan.Facts)-1], "4 paths, 11 bytes")
			assert.Contains(t, plan.Undo, "put back from copies")
			assert.NotContains(t, plan.Losses, "volume "+s.volume+" at /data is not rolled back")

			e := s.did(change)
			seen, err := s.action.Observe(t.Context(), e)
			require.NoError(t, err)
			require.Equal(t, activities.AsLeft, seen.State)
			require.NotEmpty(t, before.Changes(s.holds()))
			u := s.undo(e, activities.Decision{})
			want := activities.Compensated
			if layers {
				want = activities.Restored
			}
			require.Equal(t, want, u.Outcome, "%+v", u)
			require.Empty(t, before.Changes(s.holds()))
			require.True(t, s.box.Inspect(t).State.Running)
			seen, err = s.action.Observe(t.Context(), e)
			require.NoError(t, err)
			require.Equal(t, activities.AsBefore, seen.State)

			require.NoError(t, s.action.Release(t.Context(), e))
			copies, err := filepath.Glob(filepath.Join(s.state, "container", "tokens", e.Token, "volumes", "*"))
			require.NoError(t, err)
			require.Empty(t, copies)
			beside, err := os.ReadDir(filepath.Dir(s.root))
			require.NoError(t, err)
			require.Len(t, beside, 1)
		})
	}
}

func TestDriftInAVolumeIsShownAndOnlyThatDriftIsForced(t *testing.T) {
	t.Parallel()
	s := newScene(t, false)
	before := s.holds()
	e := s.did(change)
	s.box.Run(t, "echo mine >/data/mine")
	left := s.holds()
	u := s.undo(e, activities.Decision{})
	require.Equal(t, activities.Drifted, u.Outcome)
	require.Contains(t, u.Drift.Diff, "+ "+s.volume+":/mine\n")
	require.Empty(t, left.Changes(s.holds()))
	s.box.Run(t, "echo more >>/data/mine")
	newer := s.undo(e, activities.Decision{Force: u.Drift.Digest})
	require.Equal(t, activities.Drifted, newer.Outcome, "it is not the drift that was shown")
	u = s.undo(e, activities.Decision{Force: newer.Drift.Digest})
	require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	require.Empty(t, before.Changes(s.holds()))
}

func TestADamagedCopyParksAndNothingIsHalfRestored(t *testing.T) {
	t.Parallel()
	s := newScene(t, false)
	e := s.did(change)
	require.NoError(t, os.WriteFile(s.chunk(e, "same\n"), []byte("peek\n"), 0o600))
	left := s.holds()
	_, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
	require.Empty(t, left.Changes(s.holds()))
}

func TestAVolumeThatAnotherContainerMayWriteToIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t, false)
	other := containertest.Start(t, withVolume(s.volume))
	e := s.entry()
	_, err := s.action.Plan(t.Context(), e, s.step(change))
	require.Equal(t, activities.Refused, activities.TypeOf(err))
	require.ErrorContains(t, err, other.Name)
	_, err = s.action.Apply(t.Context(), e, s.step(change), "")
	require.Equal(t, activities.Refused, activities.TypeOf(err))

	require.NoError(t, s.box.ContainerRemove(context.Background(), other.ID, dockertypes.RemoveOptions{Force: true}))
	before := s.holds()
	e = s.did(change)
	other = containertest.Start(t, withVolume(s.volume))
	_, err = s.action.Undo(t.Context(), e, activities.Decision{})
	require.Equal(t, activities.ActionFailed, activities.TypeOf(err), "%v", err)
	require.NoError(t, s.box.ContainerRemove(context.Background(), other.ID, dockertypes.RemoveOptions{Force: true}))
	u := s.undo(e, activities.Decision{})
	require.Equal(t, activities.Compensated, u.Outcome)
	require.Empty(t, before.Changes(s.holds()))
}

// begun waits until run n of a step stands in the container, and returns its supervisor's process
// id.
func (s *scene) begun(e activities.Entry, n int) int {
	s.Helper()
	j, err := journal.Open(filepath.Join(s.state, "container"))
	require.NoError(s, err)
	token, err := j.Token(e.Token)
	require.NoError(s, err)
	var run struct {
		PID int `json:"pid"`
	}
	require.Eventually(s, func() bool {
		found, err := token.Read(fmt.Sprintf("begun-%d", n), &run)
		return found && err == nil
	}, time.Minute, 10*time.Millisecond)
	return run.PID
}

func TestACommandThatRunsAgainFindsItsVolumesAsBefore(t *testing.T) {
	t.Parallel()
	s := newScene(t, false)
	before, e := s.holds(), s.entry()
	type answer struct {
		r   activities.Result
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		r, err := s.action.Apply(context.Background(), e,
			s.step("cat /data/a; echo run >/data/a; while [ ! -e /tmp/go ]; do sleep 0.05; done"), "")
		answered <- answer{r, err}
	}()
	supervisor := s.begun(e, 1)
	require.Eventually(t, func() bool {
		now, err := os.ReadFile(filepath.Join(s.root, "a"))
		return err == nil && string(now) == "run\n"
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, syscall.Kill(supervisor, syscall.SIGKILL))
	s.begun(e, 2)
	s.box.Run(t, "touch /tmp/go")
	a := <-answered
	require.NoError(t, a.err)
	require.Equal(t, "one\n", a.r.Outputs["stdout"])
	u := s.undo(e, activities.Decision{})
	require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	require.Empty(t, before.Changes(s.holds()))
}

// TestAnUndoTakesNoOtherUndoForDrift has one undo look when another has brought back the container,
// but not yet its volume. It is not parallel, like the next one.
func TestAnUndoTakesNoOtherUndoForDrift(t *testing.T) {
	s := newScene(t, false)
	before := s.holds()
	e := s.did(change)
	halfway, looked, ended := make(chan struct{}), make(chan struct{}), make(chan activities.Undone, 1)
	goOn := sync.OnceFunc(func() { close(looked) })
	var looking, naming, judged atomic.Int32
	point.Hook(func(label string) {
		switch {
		case label == "container.exec:undo-begun" && looking.Add(1) == 1:
			go func() {
				u, err := s.action.Undo(t.Context(), e, activities.Decision{})
				assert.NoError(t, err)
				ended <- u
			}()
			<-halfway
		case label == "container.exec:new-named" && naming.Add(1) == 1:
			close(halfway)
			<-looked
		case label == "container.exec:drift-checked" && judged.Add(1) == 2:
			goOn()
		}
	})
	u := s.undo(e, activities.Decision{})
	goOn()
	other := <-ended
	point.Hook(nil)
	require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	require.Equal(t, u, other)
	require.Empty(t, before.Changes(s.holds()))
}

// TestNewerWorkStopsAnUndoThatHasBegun changes the volume when its container is rolled back
// already. It is not parallel: what it does at a point, it would do for others.
func TestNewerWorkStopsAnUndoThatHasBegun(t *testing.T) {
	s := newScene(t, false)
	before := s.holds()
	e := s.did(change)
	point.Hook(func(label string) {
		if label == "container.exec:new-named" {
			assert.NoError(t, os.WriteFile(filepath.Join(s.root, "mine"), []byte("mine"), 0o600))
		}
	})
	u := s.undo(e, activities.Decision{})
	point.Hook(nil)
	require.Equal(t, activities.Drifted, u.Outcome, "%+v", u)
	require.Contains(t, u.Drift.Diff, "+ "+s.volume+":/mine\n")
	require.NotContains(t, u.Drift.Diff, "/new")
	content, err := os.ReadFile(filepath.Join(s.root, "mine"))
	require.NoError(t, err)
	require.Equal(t, "mine", string(content))
	require.False(t, s.box.Inspect(t).State.Running, "it is not to find what is half back")

	again := s.undo(e, activities.Decision{})
	require.Equal(t, u.Drift, again.Drift)
	u = s.undo(e, activities.Decision{Force: u.Drift.Digest})
	require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	require.Empty(t, before.Changes(s.holds()))
	require.True(t, s.box.Inspect(t).State.Running)
}

func TestAContainerThatWasStoppedSinceStaysSo(t *testing.T) {
	t.Parallel()
	s := newScene(t, false)
	before := s.holds()
	e := s.did(change)
	now := 0
	require.NoError(t, s.box.ContainerStop(t.Context(), s.box.Name, dockertypes.StopOptions{Timeout: &now}))
	u := s.undo(e, activities.Decision{})
	require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	require.Empty(t, before.Changes(s.holds()))
	require.False(t, s.box.Inspect(t).State.Running)
}

// TestVolumesOfALostContainerComeBack: of an orphan, whose container was removed with the layers of
// the step.
func TestVolumesOfALostContainerComeBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, true)
	before := s.holds()
	e := s.did(change)
	require.NoError(t, s.box.ContainerRemove(t.Context(), s.box.ID, dockertypes.RemoveOptions{Force: true}))
	require.NoError(t, os.WriteFile(filepath.Join(s.root, "a"), []byte("theirs"), 0o600))
	u := s.undo(e, activities.Decision{Orphan: true})
	require.Equal(t, activities.Drifted, u.Outcome)
	assert.Contains(t, u.Drift.Diff, s.volume+":/a (content")
	u = s.undo(e, activities.Decision{Orphan: true, Force: u.Drift.Digest})
	assert.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	assert.Contains(t, u.Observed, "its volumes hold what they held before")
	assert.Empty(t, before.Changes(s.holds()))
}
