package repair

import (
	"encoding/json"
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Recover unwinds a run that ended without unwinding: it was terminated, it timed out, or the
// server ended it. It completes with the report that the run would have closed with. LedgerActivity
// refuses it a run that is not dead, or not its own to recover, so anybody may start it.
func Recover(ctx workflow.Context, input, carry converter.RawValue) (compensations.Report, error) {
	var r protocol.RecoverRequest
	calls.DecodeInput("its argument", input, &r)
	t, err := engine.New(ctx, carry,
		engine.Variant{Repairs: true, ContinueAsNew: func(ctx workflow.Context, next json.RawMessage) error {
			return workflow.NewContinueAsNewError(ctx, protocol.RecoverType, r, next)
		}})
	if err != nil {
		return compensations.Report{}, err
	}
	return t.Run(ctx, func(ctx workflow.Context) error {
		ledger, err := calls.ReadLedger(ctx, "read the ledger of the dead run",
			protocol.LedgerRequest{WorkflowID: r.WorkflowID, RunID: r.RunID})
		if err != nil {
			if !calls.IsType(err, protocol.NotYours) {
				t.MarkUnknown() // nobody knows what is left
			}
			return err
		}
		t.TakeUp(ctx, ledger)
		cause := &compensations.Cause{Kind: compensations.Ended,
			Text: fmt.Sprintf("run %s of %s ended without unwinding: %s", r.RunID, r.WorkflowID, r.Ended)}
		t.Ending.Cause = cause
		// the task had ended before: what unwound it may have died before it held the records
		if ledger.Redoable || ledger.Completed {
			calm, done := workflow.NewDisconnectedContext(ctx)
			defer done()
			if err := t.HoldRecords(calm, ledger.Entries); calls.IsType(err, activities.Refused) && ledger.IsWhole() {
				cause.Text += "; " + compensations.Reason(err)
				return nil
			}
		}
		t.Saga.Merge(ledger.ToCarry())
		return nil
	})
}
