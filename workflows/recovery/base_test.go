package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func TestACarryTellsWhichStepsAreDone(t *testing.T) {
	carry := protocol.Carry{Version: protocol.CarryVersion}
	carry.Steps = map[string]protocol.StepCarry{"kept": {State: protocol.Done}, "gated": {}}
	carry.Past = []protocol.StepView{
		{ID: "noted", State: protocol.Done}, {ID: "failed", State: protocol.StepFailed},
		{ID: "left", State: protocol.RolledBack},
	}
	// held was planned before the pivot and still waits: what a pivot has committed is no longer on
	// the ledger.
	carry.Pivot = 2
	for i, step := range []string{"held", "pivot", "quiet", "noted", "failed", "left", "kept", "gated"} {
		if step != "pivot" {
			carry.Saga.Entries = append(carry.Saga.Entries, activities.Entry{Step: step, Token: step, Seq: i + 1})
		}
	}
	dc := converter.GetDefaultDataConverter()
	input, err := dc.ToPayloads(nil, carry)
	require.NoError(t, err)
	k, err := ledgerReader{dc: dc}.readStart(t.Context(),
		[]*historypb.HistoryEvent{{Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
			WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
				WorkflowType: &commonpb.WorkflowType{Name: protocol.AgentTaskType}, Input: input, ContinuedExecutionRunId: "before",
			},
		}}}, "id", 0)
	require.NoError(t, err)
	require.Equal(t,
		map[string]bool{"held": false, "quiet": true, "noted": true, "failed": false, "left": false, "kept": true,
			"gated": false}, k.done)
}
