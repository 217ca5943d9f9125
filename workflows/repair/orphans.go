package repair

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Orphans is about records in the journals of a host that no history knows, so that no other
// workflow can undo them.
func Orphans(ctx workflow.Context, r protocol.OrphansRequest) (protocol.OrphansResult, error) {
	var found protocol.OrphansResult
	summary := "look for orphans"
	switch {
	case r.Undo:
		summary = "undo the orphan " + r.Token
	case r.Token != "":
		summary = "look at the orphan " + r.Token
	}
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: r.Queue, Summary: payload.Clip(summary, activities.MaxSummary),
		StartToCloseTimeout: time.Hour, ScheduleToStartTimeout: 2 * time.Minute, HeartbeatTimeout: time.Minute,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute,
			MaximumAttempts: 5},
	}), protocol.OrphansActivity, r).Get(ctx, &found)
	return found, err
}
