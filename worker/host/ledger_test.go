package host_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// askLedger tells what the worker reads out of a run's history.
func askLedger(ctx workflow.Context, r protocol.LedgerRequest) (ledger json.RawMessage, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	err = workflow.ExecuteActivity(ctx, protocol.LedgerActivity, r).Get(ctx, &ledger)
	return ledger, err
}

func TestTheLedgerOfAnEncodedHistoryIsRead(t *testing.T) {
	dc := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(),
		converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true}))
	a := slow{calls: make(chan int, 1)}
	a.calls <- 1 // the first call is over
	t.Cleanup(process(t, a, dc))
	options := servertest.Shared(t).ClientOptions()
	options.DataConverter = dc
	c, err := client.Dial(options)
	require.NoError(t, err)
	t.Cleanup(c.Close)

	task, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: t.Name()}, protocol.AgentTaskType,
		json.RawMessage(`{"name": "work", "steps": [{"id": "one", "uses": "slow.work"}]}`))
	require.NoError(t, err)
	require.NoError(t, task.Get(t.Context(), nil))
	// under an id that has a right to it
	asked, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: task.GetID(), TaskQueue: t.Name()},
		askLedger,
		protocol.LedgerRequest{WorkflowID: task.GetID(), RunID: task.GetRunID()})
	require.NoError(t, err)
	var ledger json.RawMessage
	require.NoError(t, asked.Get(t.Context(), &ledger))
	require.Contains(t, string(ledger), `"token":"`+activities.NewToken(task.GetRunID(), "one", 1))
}
