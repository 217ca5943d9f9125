package container_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
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
				_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "echo x >>/srv/a"}), "")
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
