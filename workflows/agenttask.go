package workflows

import (
	"encoding/json"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
)

// AgentTask runs one task. Its argument is the task document as people write it, as JSON. It completes with a Report when
// every step is done; else it unwinds, and closes as Failed or Canceled with the Report in the details. A long one
// continues as new, with what it carries over as the second argument.
func AgentTask(ctx workflow.Context, doc json.RawMessage, carry *Carry) (compensations.Report, error) {
	t, err := newTask(ctx, carry, func(ctx workflow.Context, next json.RawMessage) error {
		return workflow.NewContinueAsNewError(ctx, AgentTaskType, json.RawMessage(nil), next)
	})
	if err != nil {
		return compensations.Report{}, err
	}
	return t.run(ctx, func(ctx workflow.Context) error {
		if err := checkStart(ctx); err != nil {
			return err
		}
		compiled, err := compile(ctx, doc)
		if err != nil {
			return err
		}
		t.adopt(ctx, compiled)
		return nil
	})
}

// run brings a task from its preparation, which only its first run needs, to its end.
func (t *agentTask) run(ctx workflow.Context, prepare func(workflow.Context) error) (compensations.Report, error) {
	if t.phase == Compiling {
		if err := prepare(ctx); err != nil {
			t.repairs, t.cause = false, &compensations.Cause{Kind: kindOf(ctx, err), Text: compensations.Reason(err)}
		} else if t.cause == nil {
			t.phase = Forward
		}
	}
	if t.phase == Forward {
		t.publishAgent(ctx)
		t.cause = t.goForward(ctx)
	}
	reset := wasReset(ctx) // also before it continues as new: the next run could not tell
	switch {
	case t.cause == nil && reset == nil && t.continues:
		return compensations.Report{}, t.continueAsNew(ctx)
	case t.cause == nil && reset == nil && t.commit(ctx):
		return t.close(ctx, t.committed(), nil)
	case t.cause != nil && reset == nil: // it is unwound
	case t.cause == nil:
		t.cause = reset
		t.settleDown(ctx)
	}
	return t.unwind(ctx, reset)
}

// unwind takes back what is on the ledger.
func (t *agentTask) unwind(ctx workflow.Context, reset *compensations.Cause) (compensations.Report, error) {
	begins := t.phase != Unwinding
	t.phase, t.continues = Unwinding, false
	if reset != nil && !t.takeOver(ctx, reset) {
		t.unknown = true
	}
	if begins {
		if len(t.saga.Entries()) == 0 && t.kept == 0 && !t.unknown && t.saga.Past().Count == 0 {
			t.cause.Text = "nothing was touched: " + t.cause.Text
		} else {
			t.publishPending(ctx)
		}
	}
	undone := slices.Clone(t.saga.Entries())
	report := t.saga.Unwind(ctx, *t.cause)
	t.commitAnyway(ctx, undone)
	if report.Status == compensations.Open {
		return report, t.continueAsNew(ctx)
	}
	switch {
	case t.unknown:
		report.Status = compensations.Remains
	case report.Status == compensations.Unwound && t.kept > 0:
		report.Status = compensations.Partly
	}
	return t.close(ctx, report, t.cause)
}
