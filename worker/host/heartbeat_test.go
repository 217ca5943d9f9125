package host

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// keeper is activities.Records under a name that its method Records leaves free.
type keeper interface{ activities.Records }

// slowJournal has listed its records when a heartbeat has been heard.
type slowJournal struct {
	keeper

	heard chan struct{}
}

func (j slowJournal) Records(ctx context.Context) ([]activities.Record, []error, error) {
	select {
	case <-j.heard:
		return nil, nil, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// TestRetentionBeatsWhileAJournalIsListed: or else the list of a journal with very many records
// would time out each time.
func TestRetentionBeatsWhileAJournalIsListed(t *testing.T) {
	const waitLimit = 5 * time.Minute // a journal that hears nothing lists until then
	options := servertest.Shared(t).ClientOptions()
	c, err := client.Dial(options)
	require.NoError(t, err)
	defer c.Close()
	j := slowJournal{heard: make(chan struct{}, 100)}
	b := builtin{server: recovery.Server{Client: c, Namespace: options.Namespace}, passes: passesOf(Config{}),
		registry: activities.NewRegistry(activities.World{
			Name: "slow", Records: j, Journal: func(context.Context) (string, error) { return "slow", nil },
		})}
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(waitLimit)
	// a second of the SDK's is short on a busy machine
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: waitLimit})
	env.SetOnActivityHeartbeatListener(func(*activity.Info, converter.EncodedValues) { j.heard <- struct{}{} })
	env.RegisterActivityWithOptions(b.retain, activity.RegisterOptions{Name: protocol.RetainActivity})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx,
			workflow.ActivityOptions{StartToCloseTimeout: waitLimit, HeartbeatTimeout: 300 * time.Millisecond})
		return workflow.ExecuteActivity(ctx, protocol.RetainActivity, protocol.RetainRequest{}).Get(ctx, nil)
	})
	require.NoError(t, env.GetWorkflowError())
}
