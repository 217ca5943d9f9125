package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// How often the schedules start their workflows. A worker of a version with other intervals changes
// them.
const (
	sweepEvery  = 5 * time.Minute
	retainEvery = 10 * time.Minute
)

// catchUp is how late a start may come after the server was down: the next one does the same work.
const catchUp = time.Minute

// SweepSchedule is the ID of the Schedule that recovers dead runs on a shared queue: "unwind-sweep"
// for the default one.
func SweepSchedule(queue string) string { return queue + "-sweep" }

// RetainSchedule is the ID of the Schedule that releases records on a host: "unwind-retain-HOST"
// for the default queue.
func RetainSchedule(queue, host string) string { return queue + "-retain-" + host }

// ensureSchedules makes sure that dead runs are recovered and expired records released
// automatically.
func ensureSchedules(ctx context.Context, c client.Client, config Config) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, s := range []client.ScheduleOptions{
		scheduleOptions(SweepSchedule(config.Queue), sweepEvery, config.Queue, protocol.SweepType),
		scheduleOptions(RetainSchedule(config.Queue, config.Host), retainEvery, config.Queue, protocol.RetainType,
			protocol.RetainRequest{Queue: task.HostQueue(config.Queue, config.Host)}),
	} {
		if err := ensureSchedule(ctx, c.ScheduleClient(), s); err != nil {
			return fmt.Errorf(
				"schedule %s: %w; if this worker may not create schedules, set schedules to %q and let an operator create them",
				s.ID, err, off)
		}
	}
	return nil
}

func scheduleOptions(id string, every time.Duration, queue, workflowType string, args ...any) client.ScheduleOptions {
	return client.ScheduleOptions{
		ID:            id,
		Spec:          client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: every}}},
		Action:        &client.ScheduleWorkflowAction{ID: id, Workflow: workflowType, TaskQueue: queue, Args: args},
		Overlap:       enumspb.SCHEDULE_OVERLAP_POLICY_SKIP,
		CatchupWindow: catchUp,
	}
}

// ensureSchedule creates a schedule, or sets the interval of an existing one, which stays paused if
// it is.
func ensureSchedule(ctx context.Context, c client.ScheduleClient, want client.ScheduleOptions) error {
	_, err := c.Create(ctx, want)
	if !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return err
	}
	every := want.Spec.Intervals[0].Every
	return c.GetHandle(ctx, want.ID).Update(ctx, client.ScheduleUpdateOptions{
		DoUpdate: func(now client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			s := now.Description.Schedule
			if len(s.Spec.Intervals) == 1 && s.Spec.Intervals[0].Every == every {
				return nil, temporal.ErrSkipScheduleUpdate
			}
			s.Spec, s.Action = &want.Spec, want.Action
			return &client.ScheduleUpdate{Schedule: &s}, nil
		},
	})
}
