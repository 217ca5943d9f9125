package calls

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
)

// ReleaseEntries drops what planning left behind, even if the workflow was canceled meanwhile. The
// details show what fails.
func ReleaseEntries(ctx workflow.Context, entries []activities.Entry, patience time.Duration) error {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	t := &Troubles{}
	t.Changed = func() { workflow.SetCurrentDetails(calm, DescribeTroubles(t.Views(nil))) }
	slots := workflow.NewSemaphore(calm, MaxInFlight)
	var first error
	pending := len(entries)
	for _, e := range entries {
		_ = slots.Acquire(calm, 1)
		policy := e.Policy.WithDefaults()
		workflow.Go(calm, func(ctx workflow.Context) {
			err := t.persist(ctx, workflow.ActivityOptions{
				TaskQueue: e.Place.Queue, StartToCloseTimeout: policy.Attempt, ScheduleToCloseTimeout: patience,
				HeartbeatTimeout: policy.Heartbeat, Summary: "clear the plan of " + e.Step,
			}, e.Place, patience, e.Action+".release", e, nil)
			if err != nil && first == nil {
				first = err
			}
			pending--
			slots.Release(1)
		})
	}
	_ = workflow.Await(calm, func() bool { return pending == 0 })
	return first
}
