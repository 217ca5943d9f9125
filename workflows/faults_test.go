package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// The sticky cache hides what a replay would show, so CI runs the whole package again without it
// (UNWIND_TEST_NO_STICKY_CACHE=1).
func TestMain(m *testing.M) {
	if os.Getenv("UNWIND_TEST_NO_STICKY_CACHE") != "" {
		worker.SetStickyWorkflowCacheSize(0)
	}
	os.Exit(testrun.RunWaiting(m))
}

// never is a channel that is never closed.
var never = make(chan struct{})

func TestTheHistoryAloneHoldsTheLedgerAtEveryForward(t *testing.T) {
	w := &world{steps: chain("a", "b", "c", "d")}
	var l *live
	started := make(chan struct{})
	w.do = func(ctx context.Context, s string, _ int, f activities.Forward) (activities.Result, error) {
		<-started
		trace, err := activities.TraceOf(l.events(ctx, ""), converter.GetDefaultDataConverter())
		require.NoError(t, err)
		require.Len(t, trace.Entries, f.Entry.Seq, "every forward so far, and this one")
		require.Equal(t, f.Entry, trace.Entries[len(trace.Entries)-1])
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
	trace, err := activities.TraceOf(l.events(t.Context(), ""), converter.GetDefaultDataConverter())
	require.NoError(t, err)
	for i, s := range report.Steps {
		require.Equal(t, s.Step, trace.Entries[i].Step)
	}
}

func TestCancelReachesARunningStepWhichIsUndoneToo(t *testing.T) {
	l := startLive(t, &world{steps: chain("a", "b", "c"), do: blockAt("b", never)})
	l.awaitCalls("do b", 1)
	for range 2 {
		require.NoError(t, l.client.CancelWorkflow(t.Context(), l.run.GetID(), ""))
	}
	report, err := l.report()
	require.True(t, temporal.IsCanceledError(err))
	require.Equal(t, []string{"do a", "do b", "undo b", "undo a"}, l.calls())
	require.Equal(t, compensations.Unwound, report.Status)
}

func TestAWorkerRestartInAStepAtAGateAndInAnUnwindLosesNothing(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b", "c"), "b", time.Hour)}
	letGo := make(chan struct{})
	w.do = func(ctx context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		switch {
		case s == "a" && n == 1:
			return activities.Result{}, block(ctx, never) // the worker stops meanwhile
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
	l.awaitCalls("do a", 1)
	stop()
	stop = l.startWorker()
	l.awaitState(atGate)
	stop()
	stop = l.startWorker()
	l.approve()
	l.awaitCalls("undo b", 1)
	close(letGo)
	stop()
	l.startWorker()
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"do a", "do a", "plan b", "do b", "do c", "undo c", "undo b", "undo b", "undo a"}, l.calls())
}

func TestAServerRestartInAStepAtAGateAndInAnUnwindLosesNothing(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b", "c"), "b", time.Hour)}
	inStep, inUndo := make(chan struct{}), make(chan struct{})
	w.do = func(ctx context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		switch {
		case s == "a" && n == 1:
			return activities.Result{}, block(ctx, inStep)
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
	server, c := ownServer(t, devserver.Options{DB: filepath.Join(t.TempDir(), "temporal.db")})
	restart := func() {
		server.Kill()
		require.NoError(t, server.Restart(t.Context()))
	}
	l := newLive(t, c, w)
	l.startWorker()
	l.start()
	l.awaitCalls("do a", 1)
	restart()
	close(inStep)
	l.awaitState(atGate)
	restart()
	l.approve()
	l.awaitCalls("undo b", 1)
	restart()
	close(inUndo)
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, compensations.Unwound, report.Status)
	// An activity may run again if its completion was lost with the server, but no step or undo is
	// skipped or reordered.
	require.Equal(t, []string{"do a", "plan b", "do b", "do c", "undo c", "undo b", "undo a"}, dropRepeats(l.calls()))
}

// dropRepeats drops calls that repeat the previous one.
func dropRepeats(calls []string) []string {
	var out []string
	for _, c := range calls {
		if len(out) == 0 || out[len(out)-1] != c {
			out = append(out, c)
		}
	}
	return out
}

// resetTo resets the newest run to the n-th completed workflow task, as the Temporal UI does.
func (l *live) resetTo(n int) { l.reset(n) }

// resetWithoutSignals is resetTo without reapplying the signals that came later.
func (l *live) resetWithoutSignals(n int) { l.reset(n, enumspb.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL) }

func (l *live) reset(n int, without ...enumspb.ResetReapplyExcludeType) {
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
		WorkflowTaskFinishEventId: completed[n].EventId, ResetReapplyExcludeTypes: without,
	})
	require.NoError(l, err)
}

func TestAResetInTheMiddleOfAStepOnlyUnwindsTheUnionOfBothLedgers(t *testing.T) {
	l := startLive(t, &world{steps: chain("a", "b", "c", "d"), do: blockAt("c", never)})
	l.awaitCalls("do c", 1)
	l.resetTo(1) // a is scheduled by then, b and c are not
	report, err := l.report()
	requireType(t, err, protocol.TaskReset)
	// The forward of c is still running when it is undone: that is what the fence of its world is for.
	calls := l.calls()
	require.Equal(t, []string{"do a", "do b", "do c", "undo c", "undo b", "undo a"}, calls)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, 3, report.Outcomes["restored"])
}

// The reset point is before the plan, before the gate opened, or while it was open.
func TestAResetAtAGateNeverRunsTheGatedStepOnAnOldApproval(t *testing.T) {
	for point := range 4 {
		t.Run(fmt.Sprint("workflow task ", point), func(t *testing.T) {
			w := &world{steps: addGate(chain("a", "b", "c"), "b", time.Hour), do: blockAt("c", never)}
			l := startLive(t, w)
			l.approve()
			l.awaitCalls("do c", 1)
			l.resetTo(point)
			_, err := l.report()
			requireType(t, err, protocol.TaskReset)
			require.Equal(t, []string{"do a", "plan b", "do b", "do c", "undo c", "undo b", "undo a"}, l.calls())
		})
	}
}

// sendIgnored makes a workflow task that ends while the gate is open.
func (l *live) sendIgnored() {
	g := l.awaitState(atGate).Gates[0]
	l.sendSignal(protocol.SignalApprove, protocol.Decision{Step: g.Step, Digest: "sha256:another"})
	l.awaitState(func(s protocol.State) bool { return atGate(s) && len(s.Ignored) == 1 })
}

// Nobody can decide at the gate of a run that was reset: its approval would only be refused.
func TestAResetOfARunThatWaitsUnwindsAtOnce(t *testing.T) {
	t.Run("at a gate", func(t *testing.T) {
		l := startLive(t, &world{steps: addGate(chain("a", "b", "c"), "b", time.Hour), do: blockAt("c", never)})
		l.sendIgnored()
		l.approve()
		l.awaitCalls("do c", 1)
		l.resetWithoutSignals(3)
		report, err := l.report()
		requireType(t, err, protocol.TaskReset)
		require.Equal(t, compensations.Unwound, report.Status)
		require.Equal(t, []string{"do a", "plan b", "do b", "do c", "undo c", "undo b", "undo a"}, l.calls())
	})
	t.Run("for the agent of a session", func(t *testing.T) {
		l := newLive(t, servertest.Client(t), &world{})
		s := l.openSession()
		_, err := s.Step(t.Context(), "", steps("a", "b").Steps...)
		require.NoError(t, err)
		l.resetTo(-1)
		report, err := l.report()
		requireType(t, err, protocol.TaskReset)
		require.Equal(t, compensations.Unwound, report.Status)
		require.Equal(t, []string{"do a", "do b", "undo b", "undo a"}, l.calls())
	})
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
	l.awaitPark("b", 1) // then its workflow task is in the history; a query may show one that is not
	l.resetTo(-1)
	l.resolve(compensations.Retry) // in the new run: parked again, as its history says
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
	requireType(t, err, protocol.TaskReset)
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
	_, err = l.client.ExecuteWorkflow(t.Context(), l.options(), protocol.AgentTaskType, map[string]string{"name": "again"})
	require.True(t, temporal.IsWorkflowExecutionAlreadyStartedError(err), "%v", err)
	require.Equal(t, []string{"do a"}, l.calls())
}

// However early the reset point, what the original run did is undone.
func TestAResetOfARunThatIsThenRefusedUnwindsWhatTheOriginalDid(t *testing.T) {
	w := &world{steps: chain("a", "b"), do: blockAt("b", never)}
	l := startLive(t, w)
	l.awaitCalls("do b", 1)
	w.mu.Lock()
	w.refuse = temporal.NewNonRetryableApplicationError("no such host", string(activities.Refused), nil)
	w.mu.Unlock()
	l.resetTo(0)
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, []string{"do a", "do b", "undo b", "undo a"}, l.calls())
	require.NotContains(t, report.Cause.Text, "nothing was touched")
}

func TestCancelOfATaskWithADeadlineIsACancellation(t *testing.T) {
	l := startLive(t, &world{steps: chain("a", "b"), do: blockAt("b", never), deadline: time.Hour})
	l.awaitCalls("do b", 1)
	require.NoError(t, l.client.CancelWorkflow(t.Context(), l.run.GetID(), ""))
	report, err := l.report()
	require.True(t, temporal.IsCanceledError(err))
	require.Equal(t, compensations.Canceled, report.Cause.Kind)
}

func TestCancelAtAGateIsNoRejection(t *testing.T) {
	l := startLive(t, &world{steps: addGate(chain("a", "b"), "b", time.Hour)})
	l.awaitState(atGate)
	require.NoError(t, l.client.CancelWorkflow(t.Context(), l.run.GetID(), ""))
	report, err := l.report()
	require.True(t, temporal.IsCanceledError(err))
	require.Equal(t, "settled", report.Steps[1].State)
	require.NotContains(t, report.Steps[1].Summary, "nobody approved")
}

func TestAnApprovalThatComesWithTheLimitIsTooLate(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b"), "b", 2*time.Second)}
	l := newLive(t, servertest.Client(t), w)
	stop := l.startWorker()
	l.start()
	g := l.awaitState(atGate).Gates[0]
	stop()
	require.Eventually(t, func() bool { // the timer has fired, and no worker has noticed
		for _, e := range l.events(t.Context(), "") {
			if e.GetTimerFiredEventAttributes() != nil {
				return true
			}
		}
		return false
	}, time.Minute, 50*time.Millisecond)
	l.sendSignal(protocol.SignalApprove, protocol.Decision{Step: "b", Digest: g.Digest})
	l.startWorker()
	_, err := l.report()
	requireType(t, err, protocol.TaskRejected)
	require.Equal(t, []string{"do a", "plan b", "undo b", "undo a"}, l.calls())
}

func TestManyStepsAtOnceStayWithinTheServersLimits(t *testing.T) {
	ids := make([]string, 120)
	for i := range ids {
		ids[i] = fmt.Sprint("s", i)
	}
	steps := chain(ids...)
	for i := range steps {
		steps[i].Needs = nil
		steps[i].With = fmt.Appendf(nil, `{"content": %q}`, strings.Repeat("x", 60<<10))
	}
	var running, most atomic.Int32
	w := &world{steps: steps}
	w.do = func(context.Context, string, int, activities.Forward) (activities.Result, error) {
		now := running.Add(1)
		for {
			if m := most.Load(); now <= m || most.CompareAndSwap(m, now) {
				break
			}
		}
		running.Add(-1)
		return activities.Result{}, nil
	}
	_, c := newPatientServer(t)
	l := newLive(t, c, w)
	l.startWorker()
	l.start()
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
	require.LessOrEqual(t, most.Load(), int32(40))
}

func TestTextsOfSignalsAndDriftAreBounded(t *testing.T) {
	ids := make([]string, 90)
	for i := range ids {
		ids[i] = fmt.Sprint("s", i)
	}
	steps := chain(slices.Concat(ids, []string{"last"})...)
	for i := range ids {
		steps[i].Needs, steps[i].Undo.Drift = nil, activities.DriftSkip
	}
	steps[90].Needs = ids
	w := &world{steps: addGate(steps, "last", time.Hour)}
	w.undo = func(step string, _ int, _ activities.Decision) (activities.Undone, error) {
		if step == "last" {
			return activities.Undone{Outcome: activities.Nothing}, nil
		}
		return activities.Undone{Outcome: activities.Drifted,
			Drift: &activities.Drift{Digest: "sha256:d", Diff: strings.Repeat("d", 30<<10)}}, nil
	}
	l := startLive(t, w)
	g := l.awaitState(atGate).Gates[0]
	long := strings.Repeat("because ", 50_000)
	l.sendSignal(protocol.SignalReject, protocol.Decision{Step: long, Why: long})
	l.sendSignal(protocol.SignalReject, protocol.Decision{Step: g.Step, Digest: g.Digest, Who: long, Why: long})
	report, err := l.report()
	requireType(t, err, protocol.TaskRejected)
	require.Equal(t, compensations.Remains, report.Status)
	require.Len(t, report.Steps, 91)
	require.Less(t, len(report.Cause.Text), 2000)
}

func TestStartOptionsThatWouldLoseTheUndoAreRefused(t *testing.T) {
	for name, change := range map[string]func(*client.StartWorkflowOptions){
		"execution timeout": func(o *client.StartWorkflowOptions) { o.WorkflowExecutionTimeout = time.Hour },
		"run timeout":       func(o *client.StartWorkflowOptions) { o.WorkflowRunTimeout = time.Hour },
		"retry policy": func(o *client.StartWorkflowOptions) {
			o.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: 3}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLive(t, servertest.Client(t), &world{steps: chain("a")})
			l.startWorker()
			options := l.options()
			change(&options)
			var err error
			l.run, err = l.client.ExecuteWorkflow(t.Context(), options, protocol.AgentTaskType, map[string]string{"name": "x"})
			require.NoError(t, err)
			_, err = l.report()
			require.ErrorContains(t, err, "nothing was touched: Refused: ")
			require.Empty(t, l.calls())
		})
	}
}
