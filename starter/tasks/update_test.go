package tasks

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
)

// busyClient breaks off updates as a busy server does: two when they are sent, and one while its
// result is waited for.
type busyClient struct {
	client.Client

	asked []string
	stop  context.CancelFunc
}

func brokenOff() error {
	return client.NewWorkflowUpdateServiceTimeoutOrCanceledError(context.Canceled)
}

func (c *busyClient) UpdateWorkflow(_ context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	c.asked = append(c.asked, o.UpdateID)
	if c.stop != nil {
		c.stop()
	}
	if len(c.asked) <= 2 {
		return nil, brokenOff()
	}
	return answer{isLast: len(c.asked) > 3}, nil
}

type answer struct {
	client.WorkflowUpdateHandle

	isLast bool
}

func (a answer) Get(_ context.Context, v any) error {
	if !a.isLast {
		return brokenOff()
	}
	*v.(*string) = "done"
	return nil
}

func TestAnUpdateThatTheServerBreaksOffIsWaitedForOn(t *testing.T) {
	busy := &busyClient{}
	var result string
	require.NoError(t, (&Client{Client: busy}).update(t.Context(), client.UpdateWorkflowOptions{}, &result))
	require.Equal(t, "done", result)
	require.Len(t, busy.asked, 4)
	require.NotEmpty(t, busy.asked[0])
	for _, id := range busy.asked {
		require.Equal(t, busy.asked[0], id, "it is the same update")
	}
	require.NotEqual(t, busy.asked[0], func() string {
		other := &busyClient{}
		require.NoError(t, (&Client{Client: other}).update(t.Context(), client.UpdateWorkflowOptions{}, &result))
		return other.asked[0]
	}())

	ctx, stop := context.WithCancel(t.Context())
	gone := &busyClient{stop: stop}
	require.Error(t, (&Client{Client: gone}).update(ctx, client.UpdateWorkflowOptions{}, &result))
	require.Len(t, gone.asked, 1, "whoever has gone asks no more")
}
