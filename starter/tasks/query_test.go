package tasks

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// failsOnce is a server that answers its first query with an error.
type failsOnce struct {
	client.Client
	with  error
	asked int
}

func (c *failsOnce) QueryWorkflow(context.Context, string, string, string, ...any) (converter.EncodedValue, error) {
	c.asked++
	if c.asked == 1 {
		return nil, c.with
	}
	payload, err := converter.GetDefaultDataConverter().ToPayloads(protocol.State{Name: "seen"})
	return client.NewValue(payload), err
}

func TestAQueryThatFailsInPassingIsAskedAgain(t *testing.T) {
	for why, with := range map[string]error{
		"it meets the end of a workflow task": serviceerror.NewQueryFailed(
			"[TMPRL1100] invalid state transition: attempt to handleInitiatedEvent, CommandType: Activity"),
		"its worker was stopped": serviceerror.NewCanceled("context canceled"),
	} {
		server := &failsOnce{with: with}
		s, err := (&Client{Client: server}).QueryState(t.Context(), "a", "")
		require.NoError(t, err, why)
		require.Equal(t, "seen", s.Name, why)
		require.Equal(t, 2, server.asked, why)
	}
}
