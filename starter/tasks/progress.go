package tasks

import (
	"context"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
)

// Progress is how far the running steps of a task have come, by their ids: the last lines of each.
func (c *Client) Progress(ctx context.Context, id string) (map[string][]string, error) {
	d, err := c.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for _, a := range d.GetPendingActivities() {
		var p activities.Progress
		if a.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED && a.GetHeartbeatDetails() != nil &&
			converter.GetDefaultDataConverter().FromPayloads(a.GetHeartbeatDetails(), &p) == nil && p.Step != "" {
			all[p.Step] = p.Lines
		}
	}
	return all, nil
}
