package compensations_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// Ship is a workflow that undoes what it did when one of its steps fails.
func Ship(ctx workflow.Context) (compensations.Report, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute,
		WaitForCancellation: true,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 2},
	})
	saga := compensations.New(ctx, compensations.Options{})
	before := []string{}
	for _, step := range []string{"reserve", "charge", "label"} {
		forward := saga.Forward(ctx, compensations.Step{ID: step, Action: "ship.do", Undo: "ship.undo", Needs: before})
		if err := workflow.ExecuteActivity(ctx, "ship.do", forward).Get(ctx, nil); err != nil {
			cause := compensations.Cause{Kind: compensations.Failure, Step: step, Text: compensations.Reason(err)}
			return saga.Unwind(ctx, cause), nil
		}
		before = []string{step}
	}
	return compensations.Report{Status: compensations.Committed}, nil
}

// Do is a forward. The last one acts, and then reports an error nevertheless.
func Do(_ context.Context, f activities.Forward) error {
	fmt.Println("do", f.Entry.Step)
	if f.Entry.Step == "label" {
		return errors.New("the printer does not answer")
	}
	return nil
}

// Undo undoes what was done under the entry's token.
func Undo(_ context.Context, b activities.Backward) (activities.Undone, error) {
	fmt.Println("undo", b.Entry.Step)
	return activities.Undone{Outcome: activities.Restored, Observed: "as before"}, nil
}

// Each step is registered before it runs. When one fails, it is undone too, and then all steps
// before it, the last one first.
func Example() {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterWorkflow(Ship)
	env.RegisterActivityWithOptions(Do, activity.RegisterOptions{Name: "ship.do"})
	env.RegisterActivityWithOptions(Undo, activity.RegisterOptions{Name: "ship.undo"})
	env.ExecuteWorkflow(Ship)

	var report compensations.Report
	if err := env.GetWorkflowResult(&report); err != nil {
		fmt.Println(err)
	}
	fmt.Println(report.Status, "after", report.Cause.Step, report.Cause.Kind)
	// Output:
	// do reserve
	// do charge
	// do label
	// do label
	// undo label
	// undo charge
	// undo reserve
	// unwound after label failed
}
