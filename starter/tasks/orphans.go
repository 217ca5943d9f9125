package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Orphans has a host look for records that no history knows, or do something about one of them.
func (c *Client) Orphans(ctx context.Context, queue string, r protocol.OrphansRequest) (found protocol.OrphansResult,
	err error) {
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: newID("orphans"), TaskQueue: queue, WorkflowExecutionTimeout: 3 * time.Hour,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
	}, protocol.OrphansType, r)
	if err != nil {
		return found, fmt.Errorf("start %s: %w", protocol.OrphansType, err)
	}
	err = run.Get(ctx, &found)
	if timeout, ok := errors.AsType[*temporal.TimeoutError](err); ok &&
		timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START {
		return found, fmt.Errorf("no worker serves the queue %s: start the one of that host", r.Queue)
	}
	if refused, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		if refused.Type() == string(activities.Refused) {
			return found, usage.Errorf("%s", refused.Message())
		}
		return found, fmt.Errorf("%s: %s", refused.Type(), refused.Message())
	}
	return found, err
}
