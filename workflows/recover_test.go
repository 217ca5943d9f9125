package workflows_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

var wholeTask = recovery.Part{}

// recover finds the dead run of the task and recovers it.
func (l *live) recover() recovery.Run {
	l.Helper()
	dead, err := l.server().Find(l.Context(), l.run.GetID())
	require.NoError(l, err)
	run, err := l.server().Recover(l.Context(), dead, "eve")
	require.NoError(l, err)
	return run
}

// terminate ends a workflow with nothing undone.
func (l *live) terminate(id string) {
	l.Helper()
	require.NoError(l, l.client.TerminateWorkflow(l.Context(), id, "", "a test"))
}

// awaitReport waits for a workflow that repairs another one, and returns its report.
func (l *live) awaitReport(run recovery.Run) (r compensations.Report) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), 90*time.Second)
	defer cancel()
	require.NoError(l, l.client.GetWorkflow(ctx, run.WorkflowID, "").Get(ctx, &r))
	return r
}

// requireMissedSoon requires that the death of a worker during an activity is noticed long before the activity times out.
func (l *live) requireMissedSoon(run recovery.Run, activity string) {
	l.Helper()
	history := l.client.GetWorkflowHistory(l.Context(), run.WorkflowID, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(l, err)
		if a := event.GetActivityTaskScheduledEventAttributes(); a.GetActivityType().GetName() == activity {
			require.NotZero(l, a.GetHeartbeatTimeout().AsDuration())
			return
		}
	}
	require.Fail(l, "no "+activity+" was scheduled")
}

func TestATerminatedTaskIsRecovered(t *testing.T) {
	l := startLive(t, &world{steps: chain("a", "b", "c"), do: blockAt("b", never)})
	l.awaitCalls("do b", 1)
	_, err := l.server().Find(t.Context(), l.run.GetID())
	require.Equal(t, recovery.Alive, recovery.WhyOf(err), "a living run is not recovered")
	l.terminate(l.run.GetID())
	run := l.recover()
	report := l.awaitReport(run)
	l.requireMissedSoon(run, workflows.LedgerActivity)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, compensations.Ended, report.Cause.Kind)
	require.Contains(t, report.Cause.Text, "terminated")
	require.Equal(t, []string{"do a", "do b", "undo b", "undo a"}, l.calls())

	_, err = l.server().Find(t.Context(), l.run.GetID())
	require.Equal(t, recovery.Taken, recovery.WhyOf(err), "it is recovered once")
	require.Len(t, l.calls(), 4)
}

// A server ends a run whose history exceeds its limit, which is 50 MB by default.
func TestARunThatTheServerEndsIsRecovered(t *testing.T) {
	w := &world{steps: chain("a", "b", "c"), do: blockAt("b", never)}
	l := newLive(t, servertest.Client(t), w)
	stop := l.startWorker()
	l.start()
	l.awaitCalls("do b", 1)
	stop() // so that no worker continues the task as new
	note := make([]byte, 1900<<10)
	var told error
	for range 40 {
		if told = l.client.SignalWorkflow(t.Context(), l.run.GetID(), "", "note", note); told != nil {
			break
		}
	}
	require.Error(t, told, "76 MB are more than a server takes")
	history := l.client.GetWorkflowHistory(t.Context(), l.run.GetID(), l.run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	last, err := history.Next() // only this event: the whole history is as large as a server allows
	require.NoError(t, err)
	require.Contains(t, last.GetWorkflowExecutionTerminatedEventAttributes().GetReason(), "size exceeds limit", told)

	l.startWorker()
	report := l.awaitReport(l.recover())
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, compensations.Ended, report.Cause.Kind)
	require.Equal(t, []string{"do a", "do b", "undo b", "undo a"}, l.calls())
}

func TestATerminatedUnwindAndItsTerminatedRecoveryUndoOnce(t *testing.T) {
	w := &world{steps: chain("a", "b", "c", "d"), do: refusing("d")}
	letGo := make(chan struct{})
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if (step == "c" || step == "b") && n == 1 {
			<-letGo
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := startLive(t, w)
	l.awaitCalls("undo c", 1)
	l.terminate(l.run.GetID())
	first := l.recover()
	l.awaitCalls("undo c", 2) // the interrupted undo is repeated, which the world makes harmless
	l.awaitCalls("undo b", 1)
	l.terminate(first.WorkflowID)
	second := l.recover()
	require.NotEqual(t, first.WorkflowID, second.WorkflowID)
	close(letGo)
	report := l.awaitReport(second)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo c", "undo b", "undo b", "undo a"}, l.calls())
	require.Equal(t, []string{"d settled restored", "c settled restored", "a settled restored", "b settled restored"}, outcomes(report),
		"what was settled is not undone again, and told")
}

func TestADeadRunThatWasResetIsUnwoundByTheReset(t *testing.T) {
	l := startLive(t, &world{steps: chain("a", "b", "c"), do: blockAt("c", never)})
	l.awaitCalls("do c", 1)
	l.terminate(l.run.GetID())
	var point int64
	for _, e := range l.events(t.Context(), l.run.GetRunID()) {
		if e.EventType == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			point = e.EventId
			break
		}
	}
	_, err := l.client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: l.run.GetID(), RunId: l.run.GetRunID()},
		Reason: "a test", RequestId: t.Name(), WorkflowTaskFinishEventId: point,
	})
	require.NoError(t, err)
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, compensations.WasReset, report.Cause.Kind)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"do a", "do b", "do c", "undo c", "undo b", "undo a"}, l.calls())
	_, err = l.server().Find(t.Context(), l.run.GetID())
	require.Equal(t, recovery.Ended, recovery.WhyOf(err))
}

func TestAResetOfARecoveredRunChangesNothing(t *testing.T) {
	l := startLive(t, &world{steps: chain("a", "b"), do: blockAt("b", never)})
	l.awaitCalls("do b", 1)
	l.terminate(l.run.GetID())
	l.awaitReport(l.recover())
	_, err := l.client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: l.run.GetID(), RunId: l.run.GetRunID()},
		Reason: "a test", RequestId: t.Name(), WorkflowTaskFinishEventId: 4,
	})
	require.NoError(t, err)
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"do a", "do b"}, l.calls()[:2], "a reset never goes forward")
	require.NotContains(t, l.calls()[2:], "do a")
}

func TestAResetOfAnUnwoundRunDoesNotGoForward(t *testing.T) {
	l := startLive(t, &world{steps: chain("a", "b"), do: refusing("b")})
	_, err := l.report()
	require.Error(t, err)
	before := []string{"do a", "do b", "undo b", "undo a"}
	require.Equal(t, before, l.calls())
	_, err = l.client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: l.run.GetID(), RunId: l.run.GetRunID()},
		Reason: "a test", RequestId: t.Name(), WorkflowTaskFinishEventId: 4,
	})
	require.NoError(t, err)
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, compensations.WasReset, report.Cause.Kind)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, before, l.calls())
}

func TestAStuckTaskIsTakenOver(t *testing.T) {
	w := &world{steps: chain("a", "b"), do: refusing("b")}
	w.undo = func(_ string, n int, _ activities.Decision) (activities.Undone, error) {
		if n == 1 {
			return activities.Undone{Outcome: activities.Unknown, Observed: "cannot be seen"}, nil
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := startLive(t, w)
	l.awaitState(parked)
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(l.alerts) == 1 && l.alerts[0].Step == "b" && l.alerts[0].State == compensations.Parked
	}, 20*time.Second, 10*time.Millisecond, "somebody is told")
	_, err := l.server().TakeOver(t.Context(), l.run.GetID(), "eve", converter.GetDefaultDataConverter())
	require.NoError(t, err)
	run := l.recover()
	require.Eventually(t, func() bool { return w.times("undo a") == 1 || parked(l.stateOf(run.WorkflowID)) }, 40*time.Second, 20*time.Millisecond)
	s := l.stateOf(run.WorkflowID)
	for ; !parked(s) && s.Phase != workflows.Closed; s = l.stateOf(run.WorkflowID) {
		require.NoError(t, t.Context().Err())
	}
	if parked(s) { // a parks once too
		l.resolveIn(run.WorkflowID, compensations.Retry)
	}
	require.Equal(t, compensations.Unwound, l.awaitReport(run).Status)
	require.Equal(t, []string{"do a", "do b", "undo b", "undo b", "undo a", "undo a"}, l.calls())
}

func (w *world) times(call string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count[call]
}

func (l *live) stateOf(id string) (s workflows.State) {
	if v, err := l.client.QueryWorkflow(l.Context(), id, "", workflows.QueryState); err == nil {
		require.NoError(l, v.Get(&s))
	}
	return s
}

func (l *live) resolveIn(id string, do compensations.Do) {
	for _, step := range l.stateOf(id).Report.Steps {
		if step.State == string(compensations.Parked) {
			require.NoError(l, l.client.SignalWorkflow(l.Context(), id, "", compensations.SignalResolve,
				compensations.Resolution{Step: step.Step, Digest: step.Digest, Do: do, Who: "eve"}))
		}
	}
}

func TestACommittedTaskIsRolledBackRedoneAndRolledBackAgain(t *testing.T) {
	steps := chain("a", "b", "c", "d")
	steps[2].Savepoint = "half"
	w := &world{steps: steps}
	var forwards []activities.Forward
	w.do = func(_ context.Context, s string, _ int, f activities.Forward) (activities.Result, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		forwards = append(forwards, f)
		return activities.Result{Outputs: map[string]any{"id": s + " " + f.Entry.Token}}, nil
	}
	var decisions []activities.Decision
	w.undo = func(_ string, _ int, d activities.Decision) (activities.Undone, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		decisions = append(decisions, d)
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	steps[3].With = json.RawMessage(`{"of": "${{ steps.b.outputs.id }}", "and": "${{ steps.c.outputs.id }}"}`)
	l := startLive(t, w)
	_, err := l.report()
	require.NoError(t, err)

	done, err := l.server().FindDone(t.Context(), l.run.GetID())
	require.NoError(t, err)
	_, err = l.server().Rollback(t.Context(), done, recovery.Part{To: "nowhere"}, "eve", "", converter.GetDefaultDataConverter())
	require.Equal(t, recovery.NoSuchPart, recovery.WhyOf(err))
	back, err := l.server().Rollback(t.Context(), done, recovery.Part{To: "half"}, "eve", "it was wrong", converter.GetDefaultDataConverter())
	require.NoError(t, err)
	report := l.awaitReport(back)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"c settled restored", "d settled restored"}, outcomes(report))
	require.True(t, decisions[0].Redoable, "what a rollback takes away is kept")
	require.True(t, decisions[0].Done, "and the history knows that the step was done")

	found, err := l.server().FindRollback(t.Context(), back.WorkflowID)
	require.NoError(t, err)
	redo, err := l.server().Redo(t.Context(), found, "eve", converter.GetDefaultDataConverter())
	require.NoError(t, err)
	report = l.awaitReport(redo)
	require.Equal(t, compensations.Redone, report.Status)
	require.Len(t, forwards, 6)
	for i, again := range forwards[4:] {
		first := forwards[2+i]
		require.Equal(t, first.Entry.Step, again.Entry.Step)
		require.Equal(t, first.Entry.Token, again.Entry.Redoes)
		require.NotEqual(t, first.Entry.Token, again.Entry.Token)
	}
	require.JSONEq(t, fmt.Sprintf(`{"of": "b %s", "and": "c %s"}`, forwards[1].Entry.Token, forwards[4].Entry.Token), string(forwards[5].Step.With),
		"what was not rolled back is as it was, what was is new")

	done, err = l.server().FindDone(t.Context(), redo.WorkflowID)
	require.NoError(t, err)
	again, err := l.server().Rollback(t.Context(), done, wholeTask, "eve", "", converter.GetDefaultDataConverter())
	require.NoError(t, err)
	require.Equal(t, compensations.Unwound, l.awaitReport(again).Status)
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "do c", "do d", "undo d", "undo c"}, l.calls())
}

func TestATerminatedRollbackIsRecoveredAsARollback(t *testing.T) {
	w := &world{steps: chain("a", "b", "c")}
	letGo := make(chan struct{})
	var redoable []bool
	w.undo = func(step string, n int, d activities.Decision) (activities.Undone, error) {
		w.mu.Lock()
		redoable = append(redoable, d.Redoable)
		w.mu.Unlock()
		if step == "c" && n == 1 {
			<-letGo
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := startLive(t, w)
	_, err := l.report()
	require.NoError(t, err)
	done, err := l.server().FindDone(t.Context(), l.run.GetID())
	require.NoError(t, err)
	back, err := l.server().Rollback(t.Context(), done, recovery.Part{Step: "b"}, "eve", "", converter.GetDefaultDataConverter())
	require.NoError(t, err)
	l.awaitCalls("undo c", 1)
	l.terminate(back.WorkflowID)
	dead, err := l.server().Find(t.Context(), back.WorkflowID)
	require.NoError(t, err)
	run, err := l.server().Recover(t.Context(), dead, "eve")
	require.NoError(t, err)
	close(letGo)
	require.Equal(t, compensations.Unwound, l.awaitReport(run).Status)
	require.Equal(t, []string{"do a", "do b", "do c", "undo c", "undo c", "undo b"}, l.calls())
	require.NotContains(t, redoable, false)
}

// A recovery or a rollback may wait for a person for longer than the namespace keeps the history that it unwinds.
func TestRecoveryAndRollbackOutliveTheHistoryTheyUnwind(t *testing.T) {
	unsure := func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "c" && n == 1 {
			return activities.Undone{Outcome: activities.Unknown, Observed: "cannot be seen"}, nil
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	for name, c := range map[string]struct {
		begin func(*testing.T, *live) recovery.Run
		calls []string
	}{
		"recovery": {
			begin: func(_ *testing.T, l *live) recovery.Run {
				l.awaitCalls("do c", 1)
				l.terminate(l.run.GetID())
				return l.recover()
			},
			calls: []string{"do a", "do b", "do c", "undo c", "undo c", "undo b", "undo a"},
		},
		"rollback": {
			begin: func(t *testing.T, l *live) recovery.Run {
				_, err := l.report()
				require.NoError(t, err)
				done, err := l.server().FindDone(t.Context(), l.run.GetID())
				require.NoError(t, err)
				back, err := l.server().Rollback(t.Context(), done, recovery.Part{Step: "b"}, "eve", "", converter.GetDefaultDataConverter())
				require.NoError(t, err)
				return back
			},
			calls: []string{"do a", "do b", "do c", "undo c", "undo c", "undo b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{steps: chain("a", "b", "c"), undo: unsure}
			if name == "recovery" {
				w.do = blockAt("c", never)
			}
			l := startLive(t, w)
			first := c.begin(t, l)
			require.Eventually(t, func() bool { return parked(l.stateOf(first.WorkflowID)) }, 40*time.Second, 20*time.Millisecond)
			_, err := l.client.WorkflowService().DeleteWorkflowExecution(t.Context(), &workflowservice.DeleteWorkflowExecutionRequest{
				Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: l.run.GetID(), RunId: l.run.GetRunID()},
			})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				_, err := l.server().Describe(t.Context(), l.run.GetID(), "")
				return recovery.WhyOf(err) == recovery.Unknown
			}, 3*time.Minute, 100*time.Millisecond) // a server deletes a run only when it has checkpointed its queues, every half minute
			l.terminate(first.WorkflowID)
			dead, err := l.server().Find(t.Context(), first.WorkflowID)
			require.NoError(t, err)
			second, err := l.server().Recover(t.Context(), dead, "eve")
			require.NoError(t, err)
			require.Equal(t, compensations.Unwound, l.awaitReport(second).Status)
			require.Equal(t, c.calls, l.calls())
		})
	}
}

func TestAnUncertainUndoIsCheckedAgainAfterTheEnd(t *testing.T) {
	w := &world{steps: chain("a", "b"), do: refusing("b")}
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "a" && n == 1 {
			return activities.Undone{Outcome: activities.Nothing, LookAgain: time.Second}, nil
		}
		return activities.Undone{Outcome: activities.Compensated}, nil
	}
	l := startLive(t, w)
	report, err := l.report()
	require.Error(t, err)
	require.Contains(t, strings.Join(report.Notes, "\n"), "1 undos are looked at again later: workflow late-sweep-")
	l.awaitCalls("undo a", 2)
	late := l.awaitReport(recovery.Run{Chain: workflows.Chain{WorkflowID: fmt.Sprintf("late-sweep-%s-%s-1", l.run.GetID(), l.run.GetRunID())}})
	require.Equal(t, []string{"a settled compensated"}, outcomes(late))
	require.Equal(t, []string{"do a", "do b", "undo b", "undo a", "undo a"}, l.calls())
}

// longChain returns a chain of n steps.
func longChain(n int) []task.Step {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("s%04d", i)
	}
	return chain(ids...)
}

// runsOf lists the runs of a chain, the last first.
func (l *live) runsOf(id string) (runs []string) {
	for run := ""; ; {
		d, err := l.client.DescribeWorkflowExecution(l.Context(), id, run)
		require.NoError(l, err)
		runs = append(runs, d.WorkflowExecutionInfo.Execution.RunId)
		first := l.client.GetWorkflowHistory(l.Context(), id, runs[len(runs)-1], false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		e, err := first.Next()
		require.NoError(l, err)
		if run = e.GetWorkflowExecutionStartedEventAttributes().ContinuedExecutionRunId; run == "" {
			return runs
		}
	}
}

func TestALongTaskContinuesAsNewBothWaysAndIsRecoveredInTheMiddle(t *testing.T) {
	c, n := newImpatientServer(t, 1000)
	w := &world{steps: longChain(n), do: refusing(fmt.Sprintf("s%04d", n-1))}
	reached, letGo := make(chan struct{}), make(chan struct{})
	half := fmt.Sprintf("s%04d", n/4)
	w.undo = func(step string, times int, _ activities.Decision) (activities.Undone, error) {
		if step == half && times == 1 {
			close(reached)
			<-letGo
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := newLive(t, c, w)
	l.startWorker()
	l.start()
	select {
	case <-reached:
	case <-time.After(3 * time.Minute):
		t.Fatalf("the unwinding has not come half way: %+v", l.state().Phase)
	}
	require.GreaterOrEqual(t, len(l.runsOf(l.run.GetID())), 3, "it continued as new forward and back")
	_, err := l.server().Find(t.Context(), l.run.GetID())
	require.Equal(t, recovery.Alive, recovery.WhyOf(err), "a living chain has closed runs, and is not recovered")
	l.terminate(l.run.GetID())
	run := l.recover()
	close(letGo)
	report := l.awaitReport(run)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, n, report.Outcomes["restored"])

	var want []string
	for _, s := range w.steps {
		want = append(want, "do "+s.ID)
	}
	for _, s := range slices.Backward(w.steps) {
		want = append(want, "undo "+s.ID)
		if s.ID == half { // it was running when the run was terminated
			want = append(want, "undo "+s.ID)
		}
	}
	calls := l.calls()
	for i := range min(len(want), len(calls)) {
		require.Equal(t, want[i], calls[i], "call %d", i)
	}
	require.Len(t, calls, len(want))
}

func TestAResetOfAnEarlierRunOfAChainUnwindsTheWholeChain(t *testing.T) {
	c, n := newImpatientServer(t, 720)
	for name, choose := range map[string]func(ids []int64) int64{
		"early in the run":      func(ids []int64) int64 { return ids[10] },
		"at the end of the run": func(ids []int64) int64 { return ids[len(ids)-1] },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLive(t, c, &world{steps: longChain(n)})
			l.startWorker()
			l.start()
			_, err := l.report()
			require.NoError(t, err)
			runs := l.runsOf(l.run.GetID())
			require.Len(t, runs, 2)
			var tasks []int64
			for _, e := range l.events(t.Context(), runs[1]) {
				if e.EventType == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
					tasks = append(tasks, e.EventId)
				}
			}
			_, err = l.client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
				Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: l.run.GetID(), RunId: runs[1]},
				Reason: "a test", RequestId: t.Name(), WorkflowTaskFinishEventId: choose(tasks),
			})
			require.NoError(t, err)
			report, err := l.report()
			require.Error(t, err)
			require.Equal(t, compensations.WasReset, report.Cause.Kind)
			calls := l.calls()
			require.Len(t, calls, 2*n, "each done once and undone once")
			for i := range n {
				require.Equal(t, fmt.Sprintf("undo s%04d", n-1-i), calls[n+i])
			}
		})
	}
}

func TestAStepThatIsRejectedWhileAnotherIsRolledBackIsRolledBackToo(t *testing.T) {
	steps := addGate(chain("a", "g", "h"), "g", time.Hour)
	steps[1].Needs = nil
	steps[0].OnFailure = task.OnFailure{Do: task.FailRollbackStep}
	steps[1].OnFailure = task.OnFailure{Do: task.FailRollbackStep}
	letGo := make(chan struct{})
	w := &world{steps: steps, do: func(_ context.Context, s string, _ int, _ activities.Forward) (activities.Result, error) {
		if s == "a" {
			<-letGo
			return activities.Result{}, activities.Errorf(activities.CheckFailed, "no")
		}
		return activities.Result{}, nil
	}}
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "a" && n == 1 {
			return activities.Undone{Outcome: activities.Unknown, Observed: "cannot be seen"}, nil
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := startLive(t, w)
	g := l.awaitState(atGate).Gates[0]
	close(letGo)
	l.awaitState(parked)
	l.sendSignal(workflows.SignalReject, workflows.Decision{Step: g.Step, Digest: g.Digest, Who: "ann"})
	l.awaitState(func(s workflows.State) bool { return len(s.Gates) == 0 && s.Phase != "" })
	l.resolve(compensations.Retry)
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, compensations.Partly, report.Status)
	calls := l.calls()
	require.ElementsMatch(t, []string{"plan g", "do a"}, calls[:2])
	require.Equal(t, []string{"undo a", "undo a", "undo g"}, calls[2:])
}

func TestARecoveryReportsTheDeadRunsUndosAndChecksThemAgain(t *testing.T) {
	w := &world{steps: chain("a", "b", "c"), do: refusing("c")}
	letGo := make(chan struct{})
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		switch {
		case step == "c":
			return activities.Undone{Outcome: activities.Residue, Observed: "an invoice stays", Losses: []string{"an invoice"}}, nil
		case step == "b" && n == 1:
			return activities.Undone{Outcome: activities.Nothing, LookAgain: time.Second}, nil
		case step == "a" && n == 1:
			<-letGo
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := startLive(t, w)
	l.awaitCalls("undo a", 1)
	l.terminate(l.run.GetID())
	run := l.recover()
	close(letGo)
	report := l.awaitReport(run)
	require.Equal(t, compensations.Remains, report.Status)
	require.ElementsMatch(t, []string{"c settled residue", "b settled nothing-to-undo", "a settled restored"}, outcomes(report))
	l.awaitCalls("undo b", 2)
}

// Anybody who may start workflows can start one of ours by hand, under any id.
func TestWorkflowsStartedByHandUndoNothingOfALiveTask(t *testing.T) {
	l := startLive(t, &world{steps: addGate(chain("a", "b"), "b", time.Hour)})
	l.awaitState(atGate)
	chain := workflows.Chain{WorkflowID: l.run.GetID(), RunID: l.run.GetRunID(), FirstRunID: l.run.GetRunID()}
	byHand := map[string]any{
		workflows.RecoverType:  workflows.RecoverRequest{Chain: chain, Ended: "terminated"},
		workflows.RollbackType: workflows.RollbackRequest{Chain: chain},
		workflows.RedoType:     workflows.RedoRequest{Task: chain, Rollback: chain},
	}
	for name, request := range byHand {
		for _, id := range []string{"forged-" + name + chain.RunID, map[string]string{
			workflows.RecoverType: workflows.RecoverID(chain), workflows.RollbackType: workflows.RollbackID(workflows.RollbackRequest{Chain: chain}),
			workflows.RedoType: workflows.RedoID(chain),
		}[name]} {
			r, err := l.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: l.queue}, name, request)
			require.NoError(t, err)
			err = r.Get(t.Context(), nil)
			requireType(t, err, workflows.TaskFailed)
			require.ErrorContains(t, err, "nothing was touched", id)
		}
	}
	require.Equal(t, []string{"do a", "plan b"}, l.calls())
	// The recovery under the right id does not block anything: it has died, and is recovered itself.
	l.terminate(l.run.GetID())
	require.Equal(t, compensations.Unwound, l.awaitReport(l.recover()).Status)
	require.Equal(t, []string{"do a", "plan b", "undo b", "undo a"}, l.calls())
}
