package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// A reset run never goes forward. Every forward carries the id of the run that first scheduled it, and the worker refuses it in
// another run (activities.ResetRun). A run also checks for itself before it opens a gate, commits or unwinds, and whenever it waits for
// steps, people or the agent of a session: nothing that they do could change how it ends.

// pastReset begins the ids of the changes by which a reset run notices that it is past the point that it was reset to.
const pastReset = "unwind-past-the-reset-at-"

// isReset reports whether the run is past the point that it was reset to. Until there it has to do what the original run did, and
// nothing that a workflow sees says where that ends. So a reset run asks for the version of a change, by another id in each workflow
// task: what is replayed without a version of it has none, and what is not replayed is past that point and gets one, which later
// replays find. A run that was not reset asks for none.
func isReset(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	if info.WorkflowExecution.RunID == compensations.OriginalRun(ctx) {
		return false
	}
	change := fmt.Sprint(pastReset, info.GetCurrentHistoryLength())
	return workflow.GetVersion(ctx, change, workflow.DefaultVersion, 1) == 1
}

// wasReset returns the cause to unwind if this run was reset from another; nil if it was not.
func wasReset(ctx workflow.Context) *compensations.Cause {
	if !isReset(ctx) {
		return nil
	}
	return &compensations.Cause{Kind: compensations.WasReset, Text: fmt.Sprintf("run %s was reset from %s; a reset run only unwinds",
		workflow.GetInfo(ctx).WorkflowExecution.RunID, compensations.OriginalRun(ctx))}
}

// takeOverLedger adds what the original run had registered after the reset point to the ledger. It returns false if that can
// never be known.
func (t *agentTask) takeOverLedger(ctx workflow.Context, reset *compensations.Cause) bool {
	ledger, err := readLedger(ctx, "read the ledger of the run that was reset", protocol.LedgerRequest{
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
	t.saga.Merge(ledger.ToCarry())
	if ledger.Completed {
		t.holdReset(ctx, ledger)
	}
	return !ledger.Unknown
}

// holdReset holds the records of a task that was reset after it had completed. Where some are released, everything stays as it is.
func (t *agentTask) holdReset(ctx workflow.Context, original protocol.Ledger) {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := t.troubles.holdRecords(calm, t.saga.Entries()); isType(err, activities.Refused) && original.IsWhole() {
		t.notes = append(t.notes, "everything stays as the task had left it: "+compensations.Reason(err))
		t.pivot.committed += len(t.saga.Entries())
		t.saga.CommitEntries(func(activities.Entry) bool { return true })
	}
}
