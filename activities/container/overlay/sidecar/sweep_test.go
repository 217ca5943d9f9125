package sidecar

import (
	"context"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shelf is an engine that has made containers and never started them.
type shelf struct {
	Engine

	made    []container.Summary
	removed []string
}

func (s *shelf) ContainerList(context.Context, container.ListOptions) ([]container.Summary, error) {
	return s.made, nil
}

func (s *shelf) ContainerRemove(_ context.Context, id string, _ container.RemoveOptions) error {
	s.removed = append(s.removed, id)
	return nil
}

func TestWhatADeadWorkerMadeAndNeverStartedIsRemoved(t *testing.T) {
	t.Parallel()
	e := &shelf{made: []container.Summary{{ID: "mine", Created: 1000}, {ID: "another's", Created: 995}, {ID: "left", Created: 900}}}
	require.NoError(t, starting{engine: e, home: "here"}.sweep(t.Context(), "mine"))
	assert.Equal(t, []string{"left"}, e.removed)
}
