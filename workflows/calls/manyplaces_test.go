package calls

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// TestWhatManyPlacesAreToldIsBounded: steps at more than 1,000 places, each of which takes an
// activity of its own. A server fails a workflow task that leaves more than 2,000 activities
// pending, again and again.
func TestWhatManyPlacesAreToldIsBounded(t *testing.T) {
	const n = 1005
	entries := make([]activities.Entry, n)
	for i := range entries {
		id := fmt.Sprintf("s%04d", i)
		entries[i] = activities.Entry{
			Version: 1, Seq: i + 1, Step: id, Token: id, Action: "fake.do", UndoType: "fake.do.undo", Commits: true,
			Place: activities.Place{Queue: id, Host: id},
		}
	}
	for name, tell := range map[string]func(workflow.Context) error{
		"hold":    func(ctx workflow.Context) error { return (&Troubles{}).HoldRecords(ctx, entries) },
		"release": func(ctx workflow.Context) error { return ReleaseEntries(ctx, entries, 10*time.Minute) },
		"commit": func(ctx workflow.Context) error {
			saga := compensations.New(ctx, compensations.Options{})
			saga.Adopt(entries)
			return (&Committer{Saga: saga, Troubles: &Troubles{}}).CommitLedger(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			told := map[string]int{}
			tellToken := func(token string) {
				mu.Lock()
				defer mu.Unlock()
				told[token]++
			}
			var suite testsuite.WorkflowTestSuite
			env := suite.NewTestWorkflowEnvironment()
			env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute})
			env.RegisterWorkflowWithOptions(tell, workflow.RegisterOptions{Name: name})
			env.RegisterActivityWithOptions(func(_ context.Context, r protocol.HoldRequest) (protocol.Held, error) {
				require.Len(t, r.Tokens, 1)
				tellToken(r.Tokens[0])
				return protocol.Held{}, nil
			}, activity.RegisterOptions{Name: protocol.HoldActivity})
			env.RegisterActivityWithOptions(func(_ context.Context, e activities.Entry) error {
				tellToken(e.Token)
				return nil
			}, activity.RegisterOptions{Name: "fake.do.release"})
			env.RegisterActivityWithOptions(func(_ context.Context, c activities.Commitment) (activities.Committed, error) {
				require.Len(t, c.Tokens, 1)
				tellToken(c.Tokens[0])
				return activities.Committed{}, nil
			}, activity.RegisterOptions{Name: "fake.do" + activities.CommitSuffix})
			pending, most := 0, 0
			env.SetOnActivityStartedListener(func(*activity.Info, context.Context, converter.EncodedValues) {
				pending++
				most = max(most, pending)
			})
			env.SetOnActivityCompletedListener(func(*activity.Info, converter.EncodedValue, error) { pending-- })
			env.ExecuteWorkflow(name)
			require.NoError(t, env.GetWorkflowError())
			require.LessOrEqual(t, most, MaxInFlight)
			require.Len(t, told, n)
			for token, times := range told {
				require.Equal(t, 1, times, token)
			}
		})
	}
}
