package compensations_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// joinedLedger returns a ledger of n steps and one more that needs them all.
func joinedLedger(n int) []activities.Entry {
	join := activities.Entry{Version: 1, Seq: n + 1, Step: "join", Action: "Do", UndoType: "Undo", Token: "join"}
	var entries []activities.Entry
	for i := range n {
		id := fmt.Sprintf("s%04d", i)
		join.Needs = append(join.Needs, id)
		entries = append(entries,
			activities.Entry{Version: 1, Seq: i + 1, Step: id, Action: "Do", UndoType: "Undo", Token: id})
	}
	return append(entries, join)
}

// A server fails a workflow task that leaves more than 2,000 activities pending, again and again.
func TestASkipThatParksThousandsAlertsInBatchesAndEveryParkOnce(t *testing.T) {
	const n = 2100
	var saga *compensations.Saga
	calls, running, most, told := 0, 0, 0, map[string]int{}
	paused := false
	options := compensations.Options{Identity: "chain", Pause: func() bool { return paused }}
	options.Alert = func(ctx workflow.Context, undos []compensations.StepReport) {
		calls++
		running++
		most = max(most, running)
		require.LessOrEqual(t, len(undos), 50)
		for _, u := range undos {
			told[u.Step]++
		}
		_ = workflow.Sleep(ctx, time.Minute) // the time that telling takes
		for _, u := range undos {
			do := compensations.Accept
			if u.Step == "join" {
				do = compensations.Skip
			}
			require.NoError(t, saga.Resolve(compensations.Resolution{Step: u.Step, Digest: u.Digest, Do: do}))
		}
		running--
		paused = paused || calls == 15
	}
	flow := func(ctx workflow.Context) error {
		saga = compensations.New(ctx, options)
		saga.Adopt(joinedLedger(n))
		require.Equal(t, compensations.Open, saga.Unwind(ctx, cause).Status)
		require.Zero(t, running, "nothing is pending where a run ends")
		require.Less(t, len(told), n, "the rest of the alerts is for the next run")
		carry := saga.Carry()
		paused, calls = false, 15
		saga = compensations.Resume(ctx, options, carry)
		saga.Unwind(ctx, cause)
		return nil
	}
	w := &world{undo: parkFirstUndo("join")}
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterWorkflow(flow)
	registerUndo(env, w)
	env.SetTestTimeout(2 * time.Minute)
	env.ExecuteWorkflow(flow)
	require.NoError(t, env.GetWorkflowError())
	require.LessOrEqual(t, most, 10)
	require.Len(t, told, n+1)
	for step, times := range told {
		require.Equal(t, 1, times, step)
	}
}
