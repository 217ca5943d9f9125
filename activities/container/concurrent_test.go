package container_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestManyAppliesThenManyUndosAtOnce(t *testing.T) {
	t.Parallel()
	b, state := containertest.Start(t), t.TempDir()
	stages := []*stage{newStage(t, state), newStage(t, state), newStage(t, state)}
	before := containertest.Files(t, b)
	e, with := stages[0].entry(t), step(t, map[string]any{"container": b.Name, "command": "echo x >>/srv/a; cat /srv/a"})

	results := make([]activities.Result, len(stages))
	atOnce(len(stages), func(i int) {
		var err error
		results[i], err = stages[i].action.Apply(t.Context(), e, with, "")
		assert.NoError(t, err)
	})
	for _, r := range results {
		assert.Equal(t, "x\n", r.Outputs["stdout"])
	}

	undone := make([]activities.Undone, len(stages))
	atOnce(len(stages), func(i int) {
		var err error
		undone[i], err = stages[i].action.Undo(t.Context(), e, activities.Decision{})
		assert.NoError(t, err)
	})
	for _, u := range undone {
		assert.Equal(t, undone[0], u)
		assert.Equal(t, activities.Compensated, u.Outcome)
	}
	assert.Equal(t, before, containertest.Files(t, b))
	assert.Empty(t, containertest.Left(t, e.Token))
}

func TestApplyAndUndoAtOnce(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	before := containertest.Files(t, b)
	for range 3 {
		e := s.entry(t)
		atOnce(2, func(i int) {
			if i == 0 {
				_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "echo x >>/srv/a"}),
					"")
				if err != nil {
					assert.Equal(t, activities.Fenced, activities.TypeOf(err), "%v", err)
				}
				return
			}
			u, err := s.action.Undo(t.Context(), e, activities.Decision{})
			assert.True(t, err == nil && u.Outcome.Clean(), "%+v, %v", u, err)
		})
		require.Equal(t, before, containertest.Files(t, b))
		assert.Empty(t, containertest.Left(t, e.Token))
		assert.Empty(t, containertest.Checkpoints(t, e.Token))
	}
}

func atOnce(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

func TestStepsOfTwoTasksAreInAContainerOneAfterTheOther(t *testing.T) {
	for name, stageOf := range map[string]func(*testing.T) *stage{
		"commit": func(t *testing.T) *stage { return newStage(t, t.TempDir()) },
		"layers": func(t *testing.T) *stage { return layersStage(t, t.TempDir()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := containertest.Start(t), stageOf(t)
			container.LeasePatience(s.action, 300*time.Millisecond)
			before := containertest.Files(t, b)
			of := func(task string) context.Context {
				return activities.WithOwner(t.Context(), activities.Owner{Workflow: task})
			}
			busy := func(err error, task string) {
				t.Helper()
				require.Equal(t, activities.ActionFailed, activities.TypeOf(err), "it is tried again: %v", err)
				require.ErrorContains(t, err, "container "+b.Name+": step it of task "+task+" is at work there")
			}
			begin := func(task string, e activities.Entry) chan error {
				failed := inBackground(func() error {
					_, err := s.action.Apply(of(task), e, step(t, map[string]any{"container": b.Name, "command": slow}), "")
					return err
				})
				began(t, s.state, e.Token, 1)
				return failed
			}
			one, two, three := s.entry(t), s.entry(t), s.entry(t)
			write := step(t, map[string]any{"container": b.Name, "command": "echo two >/srv/two"})
			failed := begin("first", one)
			_, err := s.action.Apply(of("second"), two, write, "")
			busy(err, "first")
			_, err = s.action.Apply(of("second"), s.entry(t), step(t, map[string]any{"container": b.Name, "command": "true"}),
				"")
			if name == "layers" { // it has a checkpoint too
				busy(err, "first")
			} else {
				require.NoError(t, err, "who only reads is not in the way")
			}
			b.Run(t, "touch /tmp/go")
			require.NoError(t, <-failed)
			_, err = s.action.Apply(of("second"), two, write, "")
			require.NoError(t, err)
			_, err = s.action.Undo(t.Context(), one, activities.Decision{})
			require.Equal(t, activities.ActionFailed, activities.TypeOf(err),
				"what the second task has done is not taken away: %v", err)
			require.ErrorContains(t, err, "step it of task second came later and may still be undone")

			b.Run(t, "rm /tmp/go")
			failed = begin("third", three)
			_, err = s.action.Undo(t.Context(), two, activities.Decision{})
			busy(err, "third")
			u, err := s.action.Undo(t.Context(), three, activities.Decision{}) // it has the lease, and gives it back
			require.NoError(t, err)
			require.True(t, u.Outcome.Clean(), "%+v", u)
			require.Error(t, <-failed)
			for _, e := range []activities.Entry{two, one} {
				u, err := s.action.Undo(t.Context(), e, activities.Decision{})
				require.NoError(t, err)
				require.True(t, u.Outcome.Clean(), "%+v", u)
			}
			assert.Equal(t, before, containertest.Files(t, b))
		})
	}
}

func TestAStepThatWasAtWorkInAContainerThatIsGoneIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	container.LeasePatience(s.action, 300*time.Millisecond)
	require.NoError(t, container.HoldLease(t.Context(), s.action, b.Name, b.ID, s.entry(t)))
	e, write := s.entry(t), step(t, map[string]any{"container": b.Name, "command": "echo two >/srv/two"})
	_, err := s.action.Apply(t.Context(), e, write, "")
	require.ErrorContains(t, err, "is at work there")
	require.ErrorContains(t, err, "`starter orphans undo ")

	require.NoError(t, b.ContainerRemove(t.Context(), b.ID, dockertypes.RemoveOptions{Force: true}))
	again := containertest.Start(t)
	require.NoError(t, again.ContainerRename(t.Context(), again.ID, b.Name))
	_, err = s.action.Apply(t.Context(), e, write, "")
	require.NoError(t, err)
}

func inBackground(do func() error) chan error {
	failed := make(chan error, 1)
	go func() { failed <- do() }()
	return failed
}

// Two tasks whose steps alternate in a container both fail: neither needs a person.
func TestTwoTasksThatFailInOneContainerAreBothUndone(t *testing.T) {
	for name, stageOf := range map[string]func(*testing.T) *stage{
		"commit": func(t *testing.T) *stage { return newStage(t, t.TempDir()) },
		"layers": func(t *testing.T) *stage { return layersStage(t, t.TempDir()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := containertest.Start(t), stageOf(t)
			before := containertest.Files(t, b)
			steps := map[string][]activities.Entry{}
			for n, task := range []string{"one", "two", "one", "two", "one"} {
				e := s.entry(t)
				ctx := activities.WithOwner(t.Context(), activities.Owner{Workflow: task})
				command := fmt.Sprintf("echo %s >>/srv/both; echo %d >/srv/%s", task, n, task)
				_, err := s.action.Apply(ctx, e, step(t, map[string]any{"container": b.Name, "command": command}), "")
				require.NoError(t, err)
				steps[task] = append(steps[task], e)
			}
			var both sync.WaitGroup
			for task, entries := range steps {
				both.Go(func() {
					for _, e := range slices.Backward(entries) {
						assert.EventuallyWithT(t, func(c *assert.CollectT) {
							u, err := s.action.Undo(t.Context(), e, activities.Decision{})
							if err != nil {
								assert.Equal(t, activities.ActionFailed, activities.TypeOf(err), "it is tried again: %v", err)
								assert.ErrorContains(t, err, "came later and may still be undone")
							}
							require.NoError(c, err)
							assert.True(t, u.Outcome.Clean(), "task %s: %+v", task, u)
						}, time.Minute, 10*time.Millisecond)
					}
				})
			}
			both.Wait()
			assert.Equal(t, before, containertest.Files(t, b))
		})
	}
}

// TestALaterStepThatIsUndoneMeanwhileIsNoDrift undoes the later step when the undo of the earlier
// one has looked. It is not parallel: what it does at a point, it would do for others.
func TestALaterStepThatIsUndoneMeanwhileIsNoDrift(t *testing.T) {
	testrun.NeedRoot(t, "layers over containers")
	b, s := containertest.Start(t), layersStage(t, t.TempDir())
	before := containertest.Files(t, b)
	apply := func(task string) activities.Entry {
		e := s.entry(t)
		_, err := s.action.Apply(activities.WithOwner(t.Context(), activities.Owner{Workflow: task}), e,
			step(t, map[string]any{"container": b.Name, "command": "echo " + task + " >/srv/a"}), "")
		require.NoError(t, err)
		return e
	}
	earlier, later := apply("one"), apply("two")
	looked := false
	point.Hook(func(label string) {
		if label != "container.exec:left-ended" || looked {
			return
		}
		looked = true
		u, err := s.action.Undo(t.Context(), later, activities.Decision{})
		assert.NoError(t, err)
		assert.True(t, u.Outcome.Clean(), "%+v", u)
	})
	defer point.Hook(nil)
	u, err := s.action.Undo(t.Context(), earlier, activities.Decision{})
	require.NoError(t, err)
	require.True(t, u.Outcome.Clean(), "%+v", u)
	require.True(t, looked)
	require.Equal(t, before, containertest.Files(t, b))
}

// A later step is waited for while it may be undone, and no longer than an undo has patience.
func TestDriftIsToldOnceNoLaterStepMayBeUndone(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(*testing.T, *stage, activities.Entry){
		"its task commits": func(t *testing.T, s *stage, later activities.Entry) {
			_, err := s.action.(activities.Committer).Commit(t.Context(),
				activities.Commitment{Place: later.Place, Tokens: []string{later.Token}})
			require.NoError(t, err)
		},
		"retention knows that it has": func(t *testing.T, s *stage, later activities.Entry) {
			require.NoError(t, s.world.Records.Commit(t.Context(), later.Token, time.Now()))
		},
		"patience ends": func(_ *testing.T, s *stage, _ activities.Entry) { container.LaterPatience(s.action, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := containertest.Start(t), newStage(t, t.TempDir())
			apply := func(task, command string) activities.Entry {
				e := s.entry(t)
				ctx := activities.WithOwner(t.Context(), activities.Owner{Workflow: task})
				_, err := s.action.Apply(ctx, e, step(t, map[string]any{"container": b.Name, "command": command}), "")
				require.NoError(t, err)
				return e
			}
			one, two := apply("one", "echo one >/srv/a"), apply("two", "echo two >/srv/a")
			_, err := s.action.Undo(t.Context(), one, activities.Decision{})
			require.ErrorContains(t, err, "step it of task two came later and may still be undone")
			settle(t, s, two)
			u, err := s.action.Undo(t.Context(), one, activities.Decision{})
			require.NoError(t, err)
			require.Equal(t, activities.Drifted, u.Outcome)
		})
	}
}
