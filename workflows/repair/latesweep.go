package repair

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// LateSweep repeats undos that found no effect while a request could still have been on its way. It
// first waits longer than the task itself would.
func LateSweep(ctx workflow.Context, input, carry converter.RawValue) (compensations.Report, error) {
	var r protocol.LateSweepRequest
	calls.DecodeInput("its argument", input, &r)
	t, err := engine.New(ctx, carry,
		engine.Variant{Repairs: true, Round: r.Round, ContinueAsNew: func(ctx workflow.Context, next json.RawMessage) error {
			return workflow.NewContinueAsNewError(ctx, protocol.LateSweepType,
				protocol.LateSweepRequest{Task: r.Task, Round: r.Round}, next)
		}})
	if err != nil {
		return compensations.Report{}, err
	}
	return t.Run(ctx, func(ctx workflow.Context) error {
		if parent := workflow.GetInfo(ctx).ParentWorkflowExecution; parent == nil || parent.ID != r.Task {
			return protocol.Refusef("%s: a late sweep is started by the task that it belongs to, and not by hand", r.Task)
		}
		calm, done := workflow.NewDisconnectedContext(ctx)
		defer done()
		var wait time.Duration
		var entries []activities.Entry
		for _, recheck := range r.Rechecks {
			wait = max(wait, recheck.After)
			entries = append(entries, recheck.Entry)
		}
		t.Saga.Adopt(entries)
		_ = workflow.NewTimerWithOptions(calm, wait, workflow.TimerOptions{Summary: "until it is sure"}).Get(calm, nil)
		t.Ending.Cause = &compensations.Cause{Kind: compensations.Late,
			Text: fmt.Sprintf("a late look at undos of %s, number %d", r.Task, r.Round)}
		return nil
	})
}
