package compensations_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// Provision is canceled while its step runs.
func Provision(ctx workflow.Context) (compensations.Report, error) {
	saga := compensations.New(ctx, compensations.Options{})
	machine := saga.Forward(ctx, compensations.Step{ID: "machine", Action: "Create", Undo: "Destroy"})
	forward := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour,
		HeartbeatTimeout:    time.Minute,
		WaitForCancellation: true, // its undo must not begin before it has ended or is known to be lost
	})
	if err := workflow.ExecuteActivity(forward, "Create", machine).Get(ctx, nil); err != nil {
		cause := compensations.Cause{Kind: compensations.Failure, Step: "machine", Text: err.Error()}
		if ctx.Err() != nil {
			cause.Kind = compensations.Canceled
		}
		return saga.Unwind(ctx, cause), nil // the canceled context does not stop it
	}
	return compensations.Report{Status: compensations.Committed}, nil
}

// Create is a forward that has acted by the time it is canceled.
func Create(ctx context.Context, _ activities.Forward) error {
	fmt.Println("the machine is there, and its creation goes on")
	<-ctx.Done()
	return ctx.Err()
}

// Destroy is its undo.
func Destroy(context.Context, activities.Backward) (activities.Undone, error) {
	fmt.Println("the machine is destroyed")
	return activities.Undone{Outcome: activities.Compensated}, nil
}

// Cancelling a workflow does not stop its unwinding.
func Example_cancel() {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterWorkflow(Provision)
	env.RegisterActivity(Create)
	env.RegisterActivity(Destroy)
	env.RegisterDelayedCallback(env.CancelWorkflow, time.Second)
	env.ExecuteWorkflow(Provision)

	var report compensations.Report
	if err := env.GetWorkflowResult(&report); err != nil {
		fmt.Println(err)
	}
	fmt.Println(report.Status, "after it was", report.Cause.Kind)
	// Output:
	// the machine is there, and its creation goes on
	// the machine is destroyed
	// unwound after it was canceled
}
