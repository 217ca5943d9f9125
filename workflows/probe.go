package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// maxProbes bounds how often a step is tried again because a look at the world said that it had not happened.
const maxProbes = 3

// isUnknown holds for errors that do not say whether the forward has acted.
func isUnknown(err error) bool {
	var timeout *temporal.TimeoutError
	return isType(err, activities.UnknownOutcome) || errors.As(err, &timeout)
}

// probe looks whether a forward whose outcome is unknown has happened, and tells it in the step's notes. It is true where
// it had not, and its own retries were not used up: then it may run again. What cannot be known is undone like all else.
func (t *agentTask) probe(ctx workflow.Context, s *stepRun, e activities.Entry, unknown error) bool {
	if workflow.GetVersion(ctx, "probe", workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return false
	}
	policy := e.Policy.WithDefaults()
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: e.Place.Queue, StartToCloseTimeout: time.Minute, ScheduleToStartTimeout: time.Minute, ScheduleToCloseTimeout: 5 * time.Minute,
		HeartbeatTimeout: policy.Heartbeat, Summary: "probe " + s.step.ID,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second},
	})
	var seen activities.Observation
	if err := workflow.ExecuteActivity(ctx, e.Action+".observe", e).Get(ctx, &seen); err != nil {
		s.note("probe: whether it happened cannot be known: " + compensations.Reason(err))
		return false
	}
	switch seen.State {
	case activities.AsLeft:
		s.note("probe: it had happened")
	case activities.AsBefore:
		s.note("probe: it had not happened")
		return isType(unknown, activities.UnknownOutcome)
	case activities.Elsewise, activities.Unseen:
		s.note("probe: whether it happened cannot be known")
	}
	return false
}
