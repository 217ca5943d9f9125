package tasks

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/workflows"
)

// tornOnce is a server whose first query meets the completion of a workflow task.
type tornOnce struct {
	client.Client
	asked int
}

func (c *tornOnce) QueryWorkflow(context.Context, string, string, string, ...any) (converter.EncodedValue, error) {
	c.asked++
	if c.asked == 1 {
		return nil, serviceerror.NewQueryFailed("[TMPRL1100] invalid state transition: attempt to handleInitiatedEvent, CommandType: Activity")
	}
	payload, err := converter.GetDefaultDataConverter().ToPayloads(workflows.State{Name: "seen"})
	return client.NewValue(payload), err
}

func TestAQueryThatMeetsTheEndOfAWorkflowTaskIsAskedAgain(t *testing.T) {
	server := &tornOnce{}
	s, err := (&Client{Client: server}).QueryState(t.Context(), "a", "")
	require.NoError(t, err)
	require.Equal(t, "seen", s.Name)
	require.Equal(t, 2, server.asked)
}
