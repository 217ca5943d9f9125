package engine

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// takeOverLedger adds what the original run had registered after the reset point to the ledger. It
// returns false if that can never be known.
func (t *Task) takeOverLedger(ctx workflow.Context, reset *compensations.Cause) bool {
	ledger, err := calls.ReadLedger(ctx, "read the ledger of the run that was reset", protocol.LedgerRequest{
		WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID, RunID: compensations.OriginalRun(ctx),
	})
	if err != nil { // final: its history is gone
		t.notes = append(t.notes,
			fmt.Sprintf(
				"%s; the ledger of the original could not be read, so steps that it started after the reset point are not "+
					"undone: %s",
				reset.Text, compensations.Reason(err)))
		return false
	}
	isThere := map[string]bool{}
	for _, e := range ledger.Entries {
		isThere[e.Token] = true
	}
	t.Saga.CommitEntries(func(e activities.Entry) bool { return e.Seq <= ledger.Pivot && !isThere[e.Token] })
	t.Pivot.committed = max(t.Pivot.committed, ledger.Committed)
	t.Saga.Merge(ledger.ToCarry())
	if ledger.Completed {
		t.holdReset(ctx, ledger)
	}
	return !ledger.Unknown
}

// holdReset holds the records of a task that was reset after it had completed. Where some are
// released, everything stays as it is.
func (t *Task) holdReset(ctx workflow.Context, original protocol.Ledger) {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := t.HoldRecords(calm, t.Saga.Entries()); calls.IsType(err, activities.Refused) && original.IsWhole() {
		t.notes = append(t.notes, "everything stays as the task had left it: "+compensations.Reason(err))
		t.Pivot.committed += len(t.Saga.Entries())
		t.Saga.CommitEntries(func(activities.Entry) bool { return true })
	}
}
