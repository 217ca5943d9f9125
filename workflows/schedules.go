package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// Sweep starts Recover for each run that has ended without unwinding. A Schedule starts it.
func Sweep(ctx workflow.Context) (Swept, error) {
	var swept Swept
	options := activityOptions("look for runs that ended without unwinding")
	options.ScheduleToCloseTimeout = 30 * time.Minute
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), SweepActivity).Get(ctx, &swept)
	return swept, err
}

// Retain releases what a host keeps longer than it must. A Schedule starts it for each host.
func Retain(ctx workflow.Context, r RetainRequest) (Retained, error) {
	var retained Retained
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: r.Queue, Summary: "release what is over",
		StartToCloseTimeout: time.Hour, ScheduleToStartTimeout: 10 * time.Minute, ScheduleToCloseTimeout: 3 * time.Hour, HeartbeatTimeout: time.Minute,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	}), RetainActivity, r).Get(ctx, &retained)
	return retained, err
}
