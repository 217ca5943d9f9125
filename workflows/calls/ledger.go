package calls

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// ReadLedger reads the ledger of a closed run. Cancelling ctx does not stop it.
func ReadLedger(ctx workflow.Context, summary string, r protocol.LedgerRequest) (protocol.Ledger, error) {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	var ledger protocol.Ledger
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(calm, Options(summary)), protocol.LedgerActivity,
		r).Get(calm, &ledger)
	return ledger, err
}

// Options are the options of activities that belong to no world. These may take long, and they
// heartbeat, so that the loss of a worker shows soon: a dead task waits to be unwound.
func Options(summary string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		StartToCloseTimeout: 5 * time.Minute, HeartbeatTimeout: 30 * time.Second, Summary: summary,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	}
}
