package container_test

import (
	"sync"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestManyAppliesThenManyUndosAtOnce(t *testing.T) {
	t.Parallel()
	b, state := startBox(t), t.TempDir()
	stages := []*stage{newStage(t, state), newStage(t, state), newStage(t, state)}
	before := files(t, b)
	e, with := stages[0].entry(t), step(t, map[string]any{"container": b.name, "command": "echo x >>/srv/a; cat /srv/a"})

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
	assert.Equal(t, before, files(t, b))
	assert.Empty(t, leftOver(t, b, e.Token))
}

func TestApplyAndUndoAtOnce(t *testing.T) {
	t.Parallel()
	b, s := startBox(t), newStage(t, t.TempDir())
	before := files(t, b)
	for range 3 {
		e := s.entry(t)
		atOnce(2, func(i int) {
			if i == 0 {
				_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.name, "command": "echo x >>/srv/a"}), "")
				if err != nil {
					assert.Equal(t, activities.Fenced, activities.TypeOf(err), "%v", err)
				}
				return
			}
			u, err := s.action.Undo(t.Context(), e, activities.Decision{})
			assert.True(t, err == nil && u.Outcome.Clean(), "%+v, %v", u, err)
		})
		require.Equal(t, before, files(t, b))
		assert.Empty(t, leftOver(t, b, e.Token))
		assert.Empty(t, checkpoints(t, e.Token))
	}
}

func atOnce(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// leftOver lists the containers that a token has left under names of its own.
func leftOver(t testing.TB, b *box, token string) []string {
	t.Helper()
	found, err := b.ContainerList(t.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("name", token))})
	require.NoError(t, err)
	var names []string
	for _, c := range found {
		names = append(names, c.Names...)
	}
	return names
}
