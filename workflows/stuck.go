package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// getStuck has the run stay.
func (t *agentTask) getStuck(ctx workflow.Context, problem error) {
	t.executor.draining, t.executor.paused = false, false
	why := fmt.Sprintf("it cannot go on, because what the next run would need is too large: %v; roll back a part of it, or cancel it", problem)
	if t.executor.stuck == "" && !t.wasStuck {
		t.notes = append(t.notes, "it was stuck: "+problem.Error())
		t.sendAlert(ctx, compensations.StepReport{State: string(protocol.Stuck), Reason: why})
	}
	t.executor.stuck, t.wasStuck = why, true
	t.alerts.resume(ctx)
	t.details.markStale()
}

// stuckMark is StuckMark; empty unless the task is stuck.
func (t *agentTask) stuckMark() string {
	if t.executor.stuck == "" {
		return ""
	}
	return protocol.StuckMark
}

// checkNotStuck refuses a request that would add to a session that is stuck.
func (t *agentTask) checkNotStuck() error {
	if t.executor.stuck != "" {
		return protocol.RefuseRequestf(protocol.SessionBusy, "%s", t.executor.stuck)
	}
	return nil
}

// isLong reports whether the run should be continued by another one. One that is stuck stays, until much less is left to undo.
func (t *agentTask) isLong(ctx workflow.Context) bool {
	if t.phase == protocol.Unwinding && t.stuckAt > 0 {
		pending, _ := t.saga.Pending()
		return runIsLong(ctx) && pending <= t.stuckAt-max(1, t.stuckAt/10)
	}
	return runIsLong(ctx) && t.executor.stuck == ""
}
