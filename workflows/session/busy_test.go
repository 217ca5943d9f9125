package session_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// lateClient refuses updates as a server does whose worker comes too late, until it is ready.
type lateClient struct {
	client.Client

	refusals int
	asked    []string
}

func (c *lateClient) UpdateWorkflow(_ context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle,
	error) {
	c.asked = append(c.asked, o.UpdateID)
	if len(c.asked) <= c.refusals {
		return nil, serviceerror.NewWorkflowNotReady("the workflow task is in failed state")
	}
	return answered{}, nil
}

type answered struct{ client.WorkflowUpdateHandle }

func (answered) Get(_ context.Context, v any) error {
	v.(*protocol.Answer).Phase = protocol.Forward
	return nil
}

func TestARequestThatFindsTheWorkerLateIsSentAgain(t *testing.T) {
	c := &lateClient{refusals: 2}
	answer, err := session.Attach(c, "s").Note(t.Context(), "r", "hello")
	require.NoError(t, err)
	require.Equal(t, protocol.Forward, answer.Phase)
	require.Equal(t, []string{"r", "r", "r"}, c.asked)
}
