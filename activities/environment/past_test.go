package environment

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// manyTasks is an environment that many tasks have changed.
type manyTasks struct{ Keeper }

func (manyTasks) Wrote(context.Context, string, string) (all []Wrote, unknown []string, err error) {
	for i := range maxPast + 80 {
		all = append(all, Wrote{Task: fmt.Sprint(i), Parts: []string{"db"}})
	}
	return all, nil, nil
}

func TestAPlanCountsTheTasksThatItDoesNotName(t *testing.T) {
	a := &rollback{&world{Config: Config{Keeper: manyTasks{}}}}
	p, err := a.goesPast(t.Context(), "shop", Checkpoint{ID: "cp-one"})
	require.NoError(t, err)
	require.Len(t, p.tasks, maxPast+80)
	require.Len(t, p.lines, maxPast+1)
	require.Equal(t, "- and the changes of 80 more tasks", p.lines[maxPast])
}
