package repair

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Sweep starts Recover for each run that has ended without unwinding. A Schedule starts it.
func Sweep(ctx workflow.Context) (protocol.SweepResult, error) {
	var swept protocol.SweepResult
	options := calls.Options("look for runs that ended without unwinding")
	options.ScheduleToCloseTimeout = 30 * time.Minute
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), protocol.SweepActivity).Get(ctx, &swept)
	return swept, err
}

// Retain releases the records that a host no longer has to keep. A Schedule starts it for each
// host.
func Retain(ctx workflow.Context, r protocol.RetainRequest) (protocol.RetentionResult, error) {
	var retained protocol.RetentionResult
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: r.Queue, Summary: "release what is over",
		StartToCloseTimeout: time.Hour, ScheduleToStartTimeout: 10 * time.Minute, ScheduleToCloseTimeout: 3 * time.Hour,
		HeartbeatTimeout: time.Minute,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2,
			MaximumInterval: time.Minute},
	}), protocol.RetainActivity, r).Get(ctx, &retained)
	return retained, err
}
