package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
)

// A run that is long hands the task to the next one. Where it cannot, because that would be too large for a payload even with short texts,
// it is stuck: it stays, starts no step, and says why. A person is alerted. What makes it smaller goes on, and it tries again after that:
// a session can roll back a part. It can be canceled, aborted or finished, and unwinds in this run, as far as it has to.

// Stuck is the state in an Alert of a task that cannot go on.
const Stuck compensations.UndoState = "stuck"

// getStuck has the run stay.
func (t *agentTask) getStuck(ctx workflow.Context, problem error) {
	t.executor.draining, t.executor.paused = false, false
	why := fmt.Sprintf("it cannot go on, because what the next run would need is too large: %v; roll back a part of it, or cancel it", problem)
	if t.executor.stuck == "" && !t.wasStuck {
		t.notes = append(t.notes, "it was stuck: "+problem.Error())
		t.sendAlert(ctx, compensations.StepReport{State: string(Stuck), Reason: why})
	}
	t.executor.stuck, t.wasStuck = why, true
	t.alerts.resume(ctx)
	t.details.markStale()
}

// StuckMark stands in the search attribute where otherwise the first parked step does, of a task that is stuck. No step has this id.
const StuckMark = "(stuck)"

// stuckMark is StuckMark; empty unless the task is stuck.
func (t *agentTask) stuckMark() string {
	if t.executor.stuck == "" {
		return ""
	}
	return StuckMark
}

// checkNotStuck refuses a request that would add to a session that is stuck.
func (t *agentTask) checkNotStuck() error {
	if t.executor.stuck != "" {
		return refuseRequestf(SessionBusy, "%s", t.executor.stuck)
	}
	return nil
}

// isLong reports whether the run should be continued by another one. One that is stuck stays, until much less is left to undo.
func (t *agentTask) isLong(ctx workflow.Context) bool {
	if t.phase == Unwinding && t.stuckAt > 0 {
		pending, _ := t.saga.Pending()
		return runIsLong(ctx) && pending <= t.stuckAt-max(1, t.stuckAt/10)
	}
	return runIsLong(ctx) && t.executor.stuck == ""
}
