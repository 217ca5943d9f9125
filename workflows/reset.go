package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/packed"
)

// A reset never goes forward. Every forward carries the id of the run that first scheduled it, and the worker refuses it
// in another run (activities.ResetRun). Before it opens a gate, commits or unwinds, a run looks for itself.

// originalRun is the id of the run that this one was reset from; its own where it was not.
func originalRun(ctx workflow.Context) string {
	info := workflow.GetInfo(ctx)
	if info.OriginalRunID == "" { // the test environment tells none
		return info.WorkflowExecution.RunID
	}
	return info.OriginalRunID
}

// wasReset is the cause where this run was reset from another.
func wasReset(ctx workflow.Context) *compensations.Cause {
	// A side effect, since what was recorded before the reset point holds the id of the run that recorded it.
	var own string
	err := workflow.SideEffect(ctx, func(ctx workflow.Context) any {
		return workflow.GetInfo(ctx).WorkflowExecution.RunID
	}).Get(&own)
	original := originalRun(ctx)
	if err == nil && own == original {
		return nil
	}
	return &compensations.Cause{Kind: compensations.WasReset, Text: fmt.Sprintf("run %s was reset from %s; a reset run only unwinds", own, original)}
}

// takeOver adds to the ledger what the original run had registered after the reset point. It is false where that can
// never be known.
func (t *agentTask) takeOver(ctx workflow.Context, reset *compensations.Cause) bool {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	calm = workflow.WithActivityOptions(calm, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute,
		Summary:             "read the ledger of the run that was reset",
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	})
	var ledger Ledger
	err := workflow.ExecuteActivity(calm, LedgerActivity, LedgerRequest{
		WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID, RunID: originalRun(ctx),
	}).Get(calm, &ledger)
	if err != nil { // final: its history is gone
		t.notes = append(t.notes, fmt.Sprintf("%s; the ledger of the original could not be read, so steps that it started after the reset point are not undone: %s",
			reset.Text, compensations.Reason(err)))
		return false
	}
	t.saga.Adopt(ledger.Entries)
	return true
}

// Ledger is the result of LedgerActivity. A long one is packed.
type Ledger struct {
	Entries []activities.Entry `json:"entries"`
}

type bareLedger Ledger

// MarshalJSON packs a long ledger.
func (l Ledger) MarshalJSON() ([]byte, error) { return packed.Marshal(bareLedger(l)) }

// UnmarshalJSON reads what MarshalJSON has written.
func (l *Ledger) UnmarshalJSON(raw []byte) error { return packed.Unmarshal(raw, (*bareLedger)(l)) }
