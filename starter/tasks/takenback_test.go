package tasks

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// silent is a server with environments whose workers poll and do not answer.
type silent struct {
	client.Client
	names []string
}

func (s silent) ListWorkflow(context.Context,
	*workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	all := &workflowservice.ListWorkflowExecutionsResponse{}
	for _, name := range s.names {
		all.Executions = append(all.Executions, &workflowpb.WorkflowExecutionInfo{
			Execution: &commonpb.WorkflowExecution{WorkflowId: environment.WorkflowID(name)}})
	}
	return all, nil
}

func (silent) DescribeTaskQueue(context.Context, string,
	enumspb.TaskQueueType) (*workflowservice.DescribeTaskQueueResponse, error) {
	return &workflowservice.DescribeTaskQueueResponse{Pollers: []*taskqueuepb.PollerInfo{{}}}, nil
}

func (silent) QueryWorkflow(ctx context.Context, _, _, _ string, _ ...any) (converter.EncodedValue, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSilentEnvironmentsShareALimit: more of them than are asked at once take no longer than one.
func TestSilentEnvironmentsShareALimit(t *testing.T) {
	s := silent{}
	for i := range 3 * maxAsked {
		s.names = append(s.names, "shop-"+string(rune('a'+i/26))+string(rune('a'+i%26)))
	}
	limit := time.Second
	c := &Client{Client: s, SilenceLimit: limit}
	began := time.Now()
	found, err := c.takenBack(t.Context(), began)
	require.NoError(t, err)
	require.Less(t, time.Since(began), 2*limit)
	require.Len(t, found.unknown, len(s.names))
	for i, name := range s.names {
		require.Equal(t, "what rollbacks of environment "+name+" have taken back is not known: it has not answered in time",
			found.unknown[i])
	}
}
