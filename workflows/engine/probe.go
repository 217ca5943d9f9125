package engine

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/payload"
)

// maxProbes bounds how often a step is retried because a probe found that it had not happened.
const maxProbes = 3

// probeStep asks the world whether a forward with an unknown outcome has happened, and adds the answer to the step's notes. It
// returns true if it had not happened and the forward has retries left, so that it may run again. If that cannot be known, the
// step is undone like any other.
func probeStep(ctx workflow.Context, s *Step, e activities.Entry, unknown error) (hasNotHappened bool) {
	policy := e.Policy.WithDefaults()
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: e.Place.Queue, StartToCloseTimeout: time.Minute, ScheduleToStartTimeout: time.Minute, ScheduleToCloseTimeout: 5 * time.Minute,
		HeartbeatTimeout: policy.Heartbeat, Summary: "probe " + s.Step.ID,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second},
	})
	var seen activities.Observation
	if err := workflow.ExecuteActivity(ctx, e.Action+".observe", e).Get(ctx, &seen); err != nil {
		s.AddNotes("probe: whether it happened cannot be known: " + compensations.Reason(err))
		return false
	}
	switch seen.State {
	case activities.AsLeft:
		s.AddNotes("probe: it had happened")
	case activities.AsBefore:
		s.AddNotes("probe: it had not happened")
		return calls.IsType(unknown, activities.UnknownOutcome)
	case activities.Elsewise, activities.Unseen:
		note := "probe: whether it happened cannot be known"
		if seen.Detail != "" {
			note += ": " + payload.Clip(seen.Detail, payload.MaxWhy)
		}
		s.AddNotes(note)
	}
	return false
}
