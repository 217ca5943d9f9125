package activities_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
)

// slowObserver is an action whose Observe ends when two heartbeats of its own attempt have been
// received.
type slowObserver struct {
	echo
	heard chan int32 // receives the attempt of each heartbeat
}

func (p slowObserver) Observe(ctx context.Context, _ activities.Entry) (activities.Observation, error) {
	for beats := 0; beats < 2; {
		select {
		case attempt := <-p.heard:
			if attempt == activity.GetInfo(ctx).Attempt {
				beats++
			}
		case <-ctx.Done():
			return activities.Observation{}, ctx.Err()
		}
	}
	return activities.Observation{State: activities.AsLeft}, nil
}

func TestACallThatTakesLongKeepsBeating(t *testing.T) {
	p := slowObserver{heard: make(chan int32, 100)}
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(2 * time.Minute)
	env.SetOnActivityHeartbeatListener(func(info *activity.Info, _ converter.EncodedValues) { p.heard <- info.Attempt })
	activities.NewRegistry(activities.World{
		Name: "echo", Actions: []activities.Action{p}, Journal: func(context.Context) (string, error) { return "j", nil },
	}).Register(env, activities.Host{})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx,
			workflow.ActivityOptions{StartToCloseTimeout: time.Minute, HeartbeatTimeout: 3 * time.Second})
		return workflow.ExecuteActivity(ctx, "echo.say.observe", forwardOfThisRun(`{}`).Entry).Get(ctx, nil)
	})
	require.NoError(t, env.GetWorkflowError())
}
