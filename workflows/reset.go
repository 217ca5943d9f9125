package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// A reset never goes forward. Every forward carries the id of the run that first scheduled it, and the worker refuses it
// in another run (activities.ResetRun). A run also checks by itself before it opens a gate, commits or unwinds.

// wasReset is the cause where this run was reset from another.
func wasReset(ctx workflow.Context) *compensations.Cause {
	// A side effect, since what was recorded before the reset point holds the id of the run that recorded it.
	var own string
	err := workflow.SideEffect(ctx, func(ctx workflow.Context) any {
		return workflow.GetInfo(ctx).WorkflowExecution.RunID
	}).Get(&own)
	original := compensations.OriginalRun(ctx)
	if err == nil && own == original {
		return nil
	}
	return &compensations.Cause{Kind: compensations.WasReset, Text: fmt.Sprintf("run %s was reset from %s; a reset run only unwinds", own, original)}
}

// takeOverLedger adds to the ledger what the original run had registered after the reset point. It is false where that can
// never be known.
func (t *agentTask) takeOverLedger(ctx workflow.Context, reset *compensations.Cause) bool {
	ledger, err := readLedger(ctx, "read the ledger of the run that was reset", LedgerRequest{
		WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID, RunID: compensations.OriginalRun(ctx),
	})
	if err != nil { // final: its history is gone
		t.notes = append(t.notes, fmt.Sprintf("%s; the ledger of the original could not be read, so steps that it started after the reset point are not undone: %s",
			reset.Text, compensations.Reason(err)))
		return false
	}
	isThere := map[string]bool{}
	for _, e := range ledger.Entries {
		isThere[e.Token] = true
	}
	t.saga.CommitEntries(func(e activities.Entry) bool { return e.Seq <= ledger.Pivot && !isThere[e.Token] })
	t.pivot.committed = max(t.pivot.committed, ledger.Committed)
	t.saga.Merge(ledger.carry())
	return !ledger.Unknown
}
