package lineage

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// portless is an engine with one container, created but never started, whose port is taken.
type portless struct{ engine.Client }

func (portless) ContainerInspect(_ context.Context, id string) (container.InspectResponse, error) {
	return container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{
		ID: id, Name: "/web", State: &container.State{Status: container.StateCreated},
	}}, nil
}

func (portless) ContainerStart(context.Context, string, container.StartOptions) error {
	return errors.New("port is already allocated")
}

// removing is an engine that is asked for an image which it is about to remove for somebody else.
type removing struct{ engine.Client }

func (removing) ImageInspect(context.Context, string, ...client.ImageInspectOption) (image.InspectResponse, error) {
	return image.InspectResponse{}, errors.New("Error response from daemon: layer does not exist")
}

func TestAnImageThatSomebodyElseIsRemovingIsLeftToThem(t *testing.T) {
	l, err := Open(t.TempDir(), removing{})
	require.NoError(t, err)
	require.NoError(t, l.DropImage(t.Context(), "sha256:"+strings.Repeat("a", 64)))
}

func TestOnlyWhoAsksForASuccessorNeedsItToRun(t *testing.T) {
	l, err := Open(t.TempDir(), portless{})
	require.NoError(t, err)
	old, fresh := strings.Repeat("a", 64), strings.Repeat("b", 64)
	_, err = l.Claim(old, Successor{ID: fresh, Name: "web", Start: true, Token: "t"})
	require.NoError(t, err)

	_, err = l.Walk(t.Context(), old, func(s Successor) bool { return s.Token == "t" })
	require.ErrorContains(t, err, "starting the new container web: port is already allocated", "it is tried again")
	id, err := l.Standing(t.Context(), old)
	require.NoError(t, err)
	assert.Equal(t, fresh, id)
}

func TestASuccessorThatEndsAtOnceHasNotBeenStopped(t *testing.T) {
	began := time.Now()
	state := func(status container.ContainerState, ran time.Duration) container.InspectResponse {
		return container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{State: &container.State{
			Status: status, Running: status == container.StateRunning,
			StartedAt: began.Format(time.RFC3339Nano), FinishedAt: began.Add(ran).Format(time.RFC3339Nano),
		}}}
	}
	for want, all := range map[bool][]container.InspectResponse{
		true:  {state(container.StateCreated, 0), state(container.StateExited, time.Second)},
		false: {state(container.StateRunning, time.Second), state(container.StateExited, time.Minute)},
	} {
		for _, now := range all {
			assert.Equal(t, want, Successor{Start: true}.HasFailed(now), "%+v", now.State)
			assert.False(t, Successor{}.HasFailed(now), "it was not to run: %+v", now.State)
		}
	}
}

func TestWhatARollbackHasSeenIsNotedOnce(t *testing.T) {
	l, err := Open(t.TempDir(), portless{})
	require.NoError(t, err)
	id, first := strings.Repeat("c", 64), Seen{Differs: []string{"+ /a"}}
	_, noted, err := l.Seen(id)
	require.NoError(t, err)
	require.False(t, noted)
	for _, s := range []Seen{first, {}} {
		kept, err := l.NoteSeen(id, s)
		require.NoError(t, err)
		assert.Equal(t, first, kept)
	}
	kept, noted, err := l.Seen(id)
	require.NoError(t, err)
	assert.True(t, noted)
	assert.Equal(t, first, kept)
}
