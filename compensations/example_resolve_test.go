package compensations_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// Order reserves and charges, and then fails. The undo of its charge needs a person.
func Order(ctx workflow.Context) (compensations.Report, error) {
	saga := compensations.New(ctx, compensations.Options{})
	if err := workflow.SetQueryHandler(ctx, "report",
		func() (compensations.Report, error) { return saga.Report(), nil }); err != nil {
		return compensations.Report{}, err
	}
	saga.Listen(ctx)

	saga.Register(ctx, compensations.Step{ID: "reserve", Undo: "Release"})
	saga.Register(ctx, compensations.Step{ID: "charge", Undo: "Refund", Needs: []string{"reserve"}})
	// ... the forwards run here, each with its entry, and the last one fails:
	report := saga.Unwind(ctx, compensations.Cause{Kind: compensations.Failure, Step: "charge", Text: "no answer"})
	return report, report.Err("OrderFailed")
}

// Release is an undo.
func Release(context.Context, activities.Backward) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Restored, Observed: "it is in stock again"}, nil
}

// Refund is an undo that needs a person: a retry does not help.
func Refund(context.Context, activities.Backward) (activities.Undone, error) {
	return activities.Undone{}, temporal.NewNonRetryableApplicationError("the account is closed", "AccountClosed", nil)
}

// An undo that fails is parked: what it needs waits, and a person resolves it by a signal with the
// digest that was shown.
func Example_resolve() {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterWorkflow(Order)
	env.RegisterActivity(Release)
	env.RegisterActivity(Refund)
	env.RegisterDelayedCallback(func() {
		var now compensations.Report
		if v, err := env.QueryWorkflow("report"); err != nil || v.Get(&now) != nil {
			fmt.Println("no report", err)
		}
		for _, s := range now.Steps {
			fmt.Printf("%s is %s: %q\n", s.Step, s.State, s.Reason)
		}
		env.SignalWorkflow(compensations.SignalResolve, compensations.Resolution{
			Step: "charge", Digest: "sha256:of something else", Do: compensations.Accept,
		})
		env.SignalWorkflow(compensations.SignalResolve, compensations.Resolution{
			Step: "charge", Digest: now.Steps[1].Digest, Do: compensations.Accept, Who: "ann", Why: "paid in cash",
		})
	}, time.Hour)
	env.ExecuteWorkflow(Order)

	report, _ := compensations.ReportOf(env.GetWorkflowError())
	fmt.Println(report.Status)
	for _, s := range report.Steps {
		fmt.Println(s.Step, s.State, s.Outcome, s.Notes)
	}
	for _, note := range report.Notes {
		fmt.Println(note[:len("ignored signal: resolve")])
	}
	// Output:
	// reserve is pending: ""
	// charge is parked: "AccountClosed: the account is closed"
	// unwound-with-remains
	// reserve settled restored []
	// charge accepted failed [accept by ann: paid in cash]
	// ignored signal: resolve
}
