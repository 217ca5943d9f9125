package tasks

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

// forgetful is a server that has deleted one workflow since it listed it.
type forgetful struct{ client.Client }

func (forgetful) DescribeWorkflowExecution(_ context.Context, id,
	_ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	switch id {
	case "deleted":
		return nil, serviceerror.NewNotFound("no such workflow")
	case "broken":
		return nil, serviceerror.NewInternal("no answer")
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{}, nil
}

func TestAListLeavesOutWhatIsDeletedMeanwhile(t *testing.T) {
	c := &Client{Client: forgetful{}}
	left, err := c.addPresent(t.Context(), []Listed{{ID: "a"}, {ID: "deleted"}, {ID: "b"}}, false)
	require.NoError(t, err)
	require.Equal(t, []Listed{{ID: "a"}, {ID: "b"}}, left)
	_, err = c.addPresent(t.Context(), []Listed{{ID: "a"}, {ID: "broken"}}, false)
	require.ErrorContains(t, err, "task broken: no answer")
}

// TestABriefListAsksNoWorker has a task that waits at a gate: the server is not asked about workers,
// which it does not answer for.
func TestABriefListAsksNoWorker(t *testing.T) {
	c := &Client{Client: forgetful{}}
	at := []Listed{{ID: "a", Gate: "one"}, {ID: "b", Parked: "two", Pending: 3}}
	left, err := c.addPresent(t.Context(), at, true)
	require.NoError(t, err)
	require.Equal(t, at, left)
	require.Panics(t, func() { _ = c.addWaiting(t.Context(), &at[0]) }, "it would be asked")
}
