package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/workflows/task"
)

// goneAfter is how long a host must have been away for its retention schedule to be removed. Its
// worker makes it again when it starts.
const goneAfter = 14 * 24 * time.Hour

// dropSchedulesOfGoneHosts removes the retention schedules of hosts of a queue that no worker
// serves, and whose records nobody has looked at for that long. One that an operator has paused
// stays.
func dropSchedulesOfGoneHosts(ctx context.Context, c client.Client, namespace, queue string,
	after time.Duration) (dropped []string, err error) {
	all, err := c.ScheduleClient().List(ctx, client.ScheduleListOptions{PageSize: sweepPage})
	if err != nil {
		return nil, fmt.Errorf("list the schedules: %w", err)
	}
	for all.HasNext() {
		s, err := all.Next()
		if err != nil {
			return dropped, fmt.Errorf("list the schedules: %w", err)
		}
		name, isRetention := strings.CutPrefix(s.ID, RetainSchedule(queue, ""))
		if !isRetention || s.Paused {
			continue
		}
		gone, err := isGone(ctx, c, namespace, s.ID, task.HostQueue(queue, name), after)
		if err != nil {
			return dropped, err
		}
		if !gone {
			continue
		}
		err = c.ScheduleClient().GetHandle(ctx, s.ID).Delete(ctx)
		if _, already := errors.AsType[*serviceerror.NotFound](err); err != nil && !already {
			return dropped, fmt.Errorf("remove schedule %s: %w", s.ID, err)
		}
		dropped = append(dropped, s.ID)
	}
	return dropped, nil
}

// isGone reports whether no worker polls the queue of a host, and retention has not ended well
// there since.
func isGone(ctx context.Context, c client.Client, namespace, schedule, hostQueue string, after time.Duration) (bool,
	error) {
	queue, err := c.DescribeTaskQueue(ctx, hostQueue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
	if err != nil || len(queue.GetPollers()) > 0 {
		return false, err
	}
	since := time.Now().Add(-after)
	made, err := c.ScheduleClient().GetHandle(ctx, schedule).Describe(ctx)
	if err != nil || made.Info.CreatedAt.After(since) {
		return false, err
	}
	served, err := c.CountWorkflow(ctx,
		&workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace, Query: fmt.Sprintf(
			"TemporalScheduledById = '%s' AND ExecutionStatus = 'Completed' AND CloseTime > '%s'",
			strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(schedule), since.UTC().Format(time.RFC3339))})
	return err == nil && served.GetCount() == 0, err
}
