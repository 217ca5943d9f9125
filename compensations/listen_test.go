package compensations_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
)

// listeningWorkflow has one step, whose undo is parked, and a saga that listens.
type listeningWorkflow struct {
	*testing.T
	env  *testsuite.TestWorkflowEnvironment
	saga *compensations.Saga
}

func newListening(t *testing.T,
	end func(ctx workflow.Context, saga *compensations.Saga) (compensations.Report, error)) (*listeningWorkflow, func()) {
	var suite testsuite.WorkflowTestSuite
	l := &listeningWorkflow{T: t, env: suite.NewTestWorkflowEnvironment()}
	l.env.SetTestTimeout(time.Minute)
	l.env.RegisterActivityWithOptions((&world{undo: parkFirstUndo("a")}).Undo, activity.RegisterOptions{Name: "Undo"})
	flow := func(ctx workflow.Context) (compensations.Report, error) {
		l.saga = compensations.New(ctx, compensations.Options{})
		l.saga.Listen(ctx)
		l.saga.Register(ctx, compensations.Step{ID: "a", Action: "Do", Undo: "Undo"})
		return end(ctx, l.saga)
	}
	l.env.RegisterWorkflow(flow)
	return l, func() { l.env.ExecuteWorkflow(flow) }
}

// sendResolution sends a resolution with the digest of the park.
func (l *listeningWorkflow) sendResolution(do compensations.Do) {
	s := l.saga.Report().Steps[0]
	require.Equal(l, string(compensations.Parked), s.State)
	l.env.SignalWorkflow(compensations.SignalResolve,
		compensations.Resolution{Step: "a", Digest: s.Digest, Do: do, Who: "eve"})
}

func TestASagaListensInACanceledWorkflow(t *testing.T) {
	l, run := newListening(t, func(ctx workflow.Context, saga *compensations.Saga) (compensations.Report, error) {
		_ = workflow.Sleep(ctx, time.Hour)
		r := saga.Unwind(ctx, compensations.Cause{Kind: compensations.Canceled, Text: "enough"})
		return r, r.Err("Broken")
	})
	l.env.RegisterDelayedCallback(l.env.CancelWorkflow, time.Minute)
	l.env.RegisterDelayedCallback(func() {
		l.env.SignalWorkflow(compensations.SignalResolve, "this cannot be read")
		for range 100 {
			l.env.SignalWorkflow(compensations.SignalResolve, compensations.Resolution{Step: "another"})
		}
		l.sendResolution(compensations.Retry)
	}, 2*time.Minute)
	run()
	require.True(t, temporal.IsCanceledError(l.env.GetWorkflowError()))
	report, ok := compensations.ReportOf(l.env.GetWorkflowError())
	require.True(t, ok)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"retry by eve"}, report.Steps[0].Notes)
	require.Len(t, report.Notes, 51)
	require.Contains(t, report.Notes[0], "ignored signal: resolve: the payload is not {step, digest, do, who, why}")
	require.Equal(t, `ignored signal: resolve: step "another" is not in the ledger`, report.Notes[1])
	require.Equal(t, "and 51 more ignored signals", report.Notes[50])
}

// empty encodes a signal without any payload, as a client can send it.
type empty struct{ converter.DataConverter }

func (e empty) ToPayloads(values ...any) (*commonpb.Payloads, error) {
	if len(values) == 1 && values[0] == (empty{}) {
		return nil, nil
	}
	return e.DataConverter.ToPayloads(values...)
}

func TestASignalWithoutAPayloadIsNotTakenForTheOneBefore(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetDataConverter(empty{converter.GetDefaultDataConverter()})
	env.RegisterDelayedCallback(func() {
		env.SignalWorkflow(compensations.SignalResolve, compensations.Resolution{Step: "another"})
		env.SignalWorkflow(compensations.SignalResolve, empty{})
	}, time.Minute)
	var notes []string
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		_ = workflow.Sleep(ctx, 2*time.Minute) // so that both are taken at once
		saga := compensations.New(ctx, compensations.Options{})
		saga.Listen(ctx)
		err := workflow.Sleep(ctx, time.Minute)
		notes = saga.Report().Notes
		return err
	})
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, notes, 2)
	require.Contains(t, notes[0], `step "another"`)
	require.Contains(t, notes[1], "the payload is not {step, digest, do, who, why}")
}

func TestASignalAtTheLastMomentIsCarriedOver(t *testing.T) {
	var carried *compensations.Carry
	paused := false
	l, run := newListening(t, func(ctx workflow.Context, saga *compensations.Saga) (compensations.Report, error) {
		saga.Configure(ctx, compensations.Options{Pause: func() bool { return paused }})
		r := saga.Unwind(ctx, cause)
		carried = encodeCarry(t, saga)
		return r, nil
	})
	l.env.RegisterDelayedCallback(func() {
		// In the very workflow task that ends the run: after a zero delay no workflow code runs before
		// the signal.
		l.env.RegisterDelayedCallback(func() { paused = true }, 0)
		l.sendResolution(compensations.Skip)
	}, time.Minute)
	run()
	require.NoError(t, l.env.GetWorkflowError())
	require.Len(t, carried.Progress, 1)
	for _, left := range carried.Progress {
		require.Equal(t, compensations.Skipped, left.State)
	}
}

// A park of a paused part can be decided while there is no plan: at the last moment of a run, and
// before the next run resumes the part.
func TestAParkOfAPausedPartIsResolvedBetweenTwoRuns(t *testing.T) {
	for do, want := range map[compensations.Do]string{
		compensations.Skip: "a skipped unknown", compensations.Accept: "a accepted unknown",
		compensations.Retry: "a settled restored",
	} {
		t.Run(string(do), func(t *testing.T) {
			w := &world{undo: parkFirstUndo("a")}
			s := &script{world: w, steps: chain("a")}
			s.options.Pause = func() bool { return len(w.calls) > 0 }
			var shown compensations.StepReport
			var carried *compensations.Carry
			s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
				r := saga.UnwindSteps(ctx, cause, named("a"))
				shown = r.Steps[0]
				require.ErrorContains(t, saga.Resolve(compensations.Resolution{Step: "b", Digest: shown.Digest, Do: do}),
					`nothing is parked: no undo of step "b" waits for a person`)
				carried = encodeCarry(t, saga)
				return r
			}
			require.Equal(t, compensations.Open, s.run(t).Status)
			require.Equal(t, string(compensations.Parked), shown.State)

			s.from, s.steps, s.options.Pause = carried, nil, nil
			var again *compensations.Carry
			s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
				r := compensations.Resolution{Step: "a", Digest: shown.Digest, Do: do, Who: "eve"}
				require.ErrorContains(t, saga.Resolve(compensations.Resolution{Step: "a", Digest: "sha256:forged", Do: do}),
					"is not that of the present park")
				require.NoError(t, saga.Resolve(r))
				require.ErrorContains(t, saga.Resolve(r), "is not parked")
				again = encodeCarry(t, saga)
				return compensations.Report{}
			}
			s.run(t)
			s.from = again
			s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
				return saga.UnwindSteps(ctx, cause, named())
			}
			report := s.run(t)
			require.Equal(t, []string{want}, rows(report.Steps))
			require.Equal(t, []string{string(do) + " by eve"}, report.Steps[0].Notes)
			require.Equal(t, []string{"a parked"}, s.alerts, "nobody is asked again")
		})
	}
}

func TestAReportIsReadBackFromTheErrorOfItsWorkflow(t *testing.T) {
	for _, kind := range []compensations.CauseKind{compensations.Failure, compensations.Canceled} {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestWorkflowEnvironment()
		want := compensations.Report{Status: compensations.Unwound,
			Cause: &compensations.Cause{Kind: kind, Step: "a", Text: "no"}, Steps: []compensations.StepReport{{Step: "a"}}}
		env.ExecuteWorkflow(func(workflow.Context) error { return want.Err("Broken") })
		err := env.GetWorkflowError()
		require.Error(t, err)
		got, ok := compensations.ReportOf(fmt.Errorf("as a client gets it: %w", err))
		require.True(t, ok)
		require.Equal(t, want, got)
		var app *temporal.ApplicationError
		if kind == compensations.Failure {
			require.ErrorAs(t, err, &app)
			require.Equal(t, "Broken", app.Type())
			require.True(t, app.NonRetryable())
			require.Equal(t, "unwound: step a: no", app.Message())
		}
	}
	require.NoError(t, compensations.Report{Status: compensations.Committed}.Err("Broken"))
	for _, other := range []error{errors.New("another"), temporal.NewApplicationError("no details", "Other"), nil} {
		_, ok := compensations.ReportOf(other)
		require.False(t, ok, "%v", other)
	}
}
