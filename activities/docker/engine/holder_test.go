package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// silent is an engine that does not answer.
type silent struct{ Client }

func (silent) ContainerInspect(context.Context, string) (container.InspectResponse, error) {
	return container.InspectResponse{}, errors.New("no answer")
}

func TestTheHolderOfANameOnAnEngineThatDoesNotAnswer(t *testing.T) {
	holder, err := FindHolder(t.Context(), silent{}, "web")
	require.ErrorContains(t, err, "looking for container web: no answer")
	assert.Empty(t, holder)
}
