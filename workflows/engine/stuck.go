package engine

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// getStuck has the run stay.
func (t *Task) getStuck(ctx workflow.Context, problem error) {
	t.executor.draining, t.executor.paused = false, false
	why := fmt.Sprintf(
		"it cannot go on, because what the next run would need is too large: %v; roll back a part of it, or cancel it",
		problem)
	if t.executor.stuck == "" && !t.wasStuck {
		t.notes = append(t.notes, "it was stuck: "+problem.Error())
		t.SendAlert(ctx, compensations.StepReport{State: string(protocol.Stuck), Reason: why})
	}
	t.executor.stuck, t.wasStuck = why, true
	t.alerts.resume(ctx)
	t.details.markStale()
}

// stuckMark is StuckMark; empty unless the task is stuck.
func (t *Task) stuckMark() string {
	if t.executor.stuck == "" {
		return ""
	}
	return protocol.StuckMark
}
