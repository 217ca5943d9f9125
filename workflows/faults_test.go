package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows"
)

// The sticky cache hides what replay would show: the whole package runs a second time without it
// (UNWIND_TEST_NO_STICKY_CACHE=1).
func TestMain(m *testing.M) {
	if os.Getenv("UNWIND_TEST_NO_STICKY_CACHE") != "" {
		worker.SetStickyWorkflowCacheSize(0)
	}
	os.Exit(m.Run())
}

// never is a channel that lets nobody go.
var never = make(chan struct{})

func TestTheHistoryAloneHoldsTheLedgerAtEveryForward(t *testing.T) {
	w := &world{steps: chain("a", "b", "c", "d")}
	var l *live
	started := make(chan struct{})
	w.do = func(ctx context.Context, s string, _ int, f activities.Forward) (activities.Result, error) {
		<-started
		entries, err := activities.EntriesIn(l.events(ctx, ""), converter.GetDefaultDataConverter())
		require.NoError(t, err)
		require.Len(t, entries, f.Entry.Seq, "every forward so far, and this one")
		require.Equal(t, f.Entry, entries[len(entries)-1])
		if s == "d" {
			return activities.Result{}, activities.Errorf(activities.CheckFailed, "no")
		}
		return activities.Result{}, nil
	}
	l = startLive(t, w)
	close(started)
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, 4, report.Outcomes["restored"])
	entries, err := activities.EntriesIn(l.events(t.Context(), ""), converter.GetDefaultDataConverter())
	require.NoError(t, err)
	for i, s := range report.Steps {
		require.Equal(t, s.Step, entries[i].Step)
	}
}

func TestCancelReachesARunningStepWhichIsUndoneToo(t *testing.T) {
	l := startLive(t, &world{steps: chain("a", "b", "c"), do: hangAt("b", never)})
	l.called("do b", 1)
	for range 2 {
		require.NoError(t, l.client.CancelWorkflow(t.Context(), l.run.GetID(), ""))
	}
	report, err := l.report()
	require.True(t, temporal.IsCanceledError(err))
	require.Equal(t, []string{"do a", "do b", "undo b", "undo a"}, l.calls())
	require.Equal(t, compensations.Unwound, report.Status)
}

func TestAWorkerRestartInAStepAtAGateAndInAnUnwindLosesNothing(t *testing.T) {
	w := &world{steps: gated(chain("a", "b", "c"), "b", time.Hour)}
	letGo := make(chan struct{})
	w.do = func(ctx context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		switch {
		case s == "a" && n == 1:
			return activities.Result{}, hang(ctx, never) // the worker stops under it
		case s == "c":
			return activities.Result{}, activities.Errorf(activities.CheckFailed, "no")
		}
		return activities.Result{}, nil
	}
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "b" && n == 1 {
			<-letGo
			return activities.Undone{}, errors.New("the worker is gone")
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := newLive(t, servertest.Client(t), w)
	stop := l.startWorker()
	l.start()
	l.called("do a", 1)
	stop()
	stop = l.startWorker()
	l.until(atGate)
	stop()
	stop = l.startWorker()
	l.approve()
	l.called("undo b", 1)
	close(letGo)
	stop()
	l.startWorker()
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"do a", "do a", "plan b", "do b", "do c", "undo c", "undo b", "undo b", "undo a"}, l.calls())
}

func TestAServerRestartInAStepAtAGateAndInAnUnwindLosesNothing(t *testing.T) {
	w := &world{steps: gated(chain("a", "b", "c"), "b", time.Hour)}
	inStep, inUndo := make(chan struct{}), make(chan struct{})
	w.do = func(ctx context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		switch {
		case s == "a" && n == 1:
			return activities.Result{}, hang(ctx, inStep)
		case s == "c":
			return activities.Result{}, activities.Errorf(activities.CheckFailed, "no")
		}
		return activities.Result{}, nil
	}
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "b" && n == 1 {
			<-inUndo
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l, restart := startOnOwnServer(t, w)
	l.called("do a", 1)
	restart()
	close(inStep)
	l.until(atGate)
	restart()
	l.approve()
	l.called("undo b", 1)
	restart()
	close(inUndo)
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, compensations.Unwound, report.Status)
	// An activity may run again when its completion was lost with the server; no step and no undo is skipped or reordered.
	require.Equal(t, []string{"do a", "plan b", "do b", "do c", "undo c", "undo b", "undo a"}, dedup(l.calls()))
}

// dedup drops calls that repeat the one before.
func dedup(calls []string) []string {
	var out []string
	for _, c := range calls {
		if len(out) == 0 || out[len(out)-1] != c {
			out = append(out, c)
		}
	}
	return out
}

// resetTo resets the newest run to the n-th workflow task that completed, as the Temporal UI does.
func (l *live) resetTo(n int) {
	l.Helper()
	desc, err := l.client.DescribeWorkflowExecution(l.Context(), l.run.GetID(), "")
	require.NoError(l, err)
	runID := desc.WorkflowExecutionInfo.Execution.RunId
	var completed []*historypb.HistoryEvent
	for _, e := range l.events(l.Context(), runID) {
		if e.GetWorkflowTaskCompletedEventAttributes() != nil {
			completed = append(completed, e)
		}
	}
	if n < 0 {
		n += len(completed)
	}
	require.Less(l, n, len(completed))
	_, err = l.client.ResetWorkflowExecution(l.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: "default", Reason: "a person clicked Reset", RequestId: l.Name(),
		WorkflowExecution:         &commonpb.WorkflowExecution{WorkflowId: l.run.GetID(), RunId: runID},
		WorkflowTaskFinishEventId: completed[n].EventId,
	})
	require.NoError(l, err)
}

func TestAResetInTheMiddleOfAStepOnlyUnwindsTheUnionOfBothLedgers(t *testing.T) {
	l := startLive(t, &world{steps: chain("a", "b", "c", "d"), do: hangAt("c", never)})
	l.called("do c", 1)
	l.resetTo(1) // a is scheduled by then, b and c are not
	report, err := l.report()
	requireType(t, err, workflows.TaskReset)
	// The forward of c is still running when it is undone: the fence of its world is for that.
	calls := l.calls()
	require.Equal(t, []string{"do a", "do b", "do c", "undo c", "undo b", "undo a"}, calls)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, 3, report.Outcomes["restored"])
}

// Wherever the reset point is: before the plan, before the gate opened, while it was open.
func TestAResetAtAGateNeverRunsTheGatedStepOnAnOldApproval(t *testing.T) {
	for point := range 4 {
		t.Run(fmt.Sprint("workflow task ", point), func(t *testing.T) {
			w := &world{steps: gated(chain("a", "b", "c"), "b", time.Hour), do: hangAt("c", never)}
			l := startLive(t, w)
			l.approve()
			l.called("do c", 1)
			l.resetTo(point)
			_, err := l.report()
			requireType(t, err, workflows.TaskReset)
			require.Equal(t, []string{"do a", "plan b", "do b", "do c", "undo c", "undo b", "undo a"}, l.calls())
		})
	}
}

func TestAResetInTheMiddleOfAnUnwindFinishesIt(t *testing.T) {
	w := &world{steps: chain("a", "b", "c"), do: refusing("c")}
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "b" && n == 1 {
			return activities.Undone{Outcome: activities.Unknown, Observed: "cannot be seen"}, nil
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := startLive(t, w)
	l.until(parked)
	l.resetTo(-1)
	l.resolve(compensations.Retry) // of the new run: parked again, by what its history says
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"do a", "do b", "do c", "undo c", "undo b", "undo b", "undo a"}, l.calls())
}

func TestAResetAfterTheLastStepDoesNotCommit(t *testing.T) {
	l := startLive(t, &world{steps: chain("a", "b")})
	_, err := l.report()
	require.NoError(t, err)
	l.resetTo(-1)
	report, err := l.report()
	requireType(t, err, workflows.TaskReset)
	require.Equal(t, []string{"do a", "do b", "undo b", "undo a"}, l.calls())
	require.Equal(t, compensations.Unwound, report.Status)
}

func requireType(t *testing.T, err error, errorType string) {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, errorType, app.Type())
}

func TestTheSameIDCannotRunTwice(t *testing.T) {
	l := startLive(t, &world{steps: chain("a")})
	_, err := l.report()
	require.NoError(t, err)
	_, err = l.client.ExecuteWorkflow(t.Context(), l.options(), workflows.AgentTaskType, map[string]string{"name": "again"})
	require.True(t, temporal.IsWorkflowExecutionAlreadyStartedError(err), "%v", err)
	require.Equal(t, []string{"do a"}, l.calls())
}
