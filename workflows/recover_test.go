package workflows_test

import (
	"context"
	"fmt"
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
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
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

// requireMissedSoon requires that the death of a worker during an activity is noticed long before
// the activity times out.
func (l *live) requireMissedSoon(run recovery.Run, activity string) {
	l.Helper()
	history := l.client.GetWorkflowHistory(l.Context(), run.WorkflowID, "", false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
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
	l.requireMissedSoon(run, protocol.LedgerActivity)
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
	history := l.client.GetWorkflowHistory(t.Context(), l.run.GetID(), l.run.GetRunID(), false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
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
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo c", "undo b", "undo b", "undo a"},
		l.calls())
	require.Equal(t, []string{"d settled restored", "c settled restored", "a settled restored", "b settled restored"},
		outcomes(report),
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
		Namespace:         "default",
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: l.run.GetID(), RunId: l.run.GetRunID()},
		Reason:            "a test", RequestId: t.Name(), WorkflowTaskFinishEventId: point,
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
		Namespace:         "default",
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: l.run.GetID(), RunId: l.run.GetRunID()},
		Reason:            "a test", RequestId: t.Name(), WorkflowTaskFinishEventId: 4,
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
		Namespace:         "default",
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: l.run.GetID(), RunId: l.run.GetRunID()},
		Reason:            "a test", RequestId: t.Name(), WorkflowTaskFinishEventId: 4,
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
	require.Eventually(t, func() bool { return w.times("undo a") == 1 || parked(l.stateOf(run.WorkflowID)) },
		40*time.Second, 20*time.Millisecond)
	s := l.stateOf(run.WorkflowID)
	for ; !parked(s) && s.Phase != protocol.Closed; s = l.stateOf(run.WorkflowID) {
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

func (l *live) stateOf(id string) (s protocol.State) {
	if v, err := l.client.QueryWorkflow(l.Context(), id, "", protocol.QueryState); err == nil {
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
	require.Contains(t, strings.Join(report.Notes, "\n"), "will look again at 1 undo")
	l.awaitCalls("undo a", 2)
	late := l.awaitReport(
		recovery.Run{Chain: protocol.Chain{WorkflowID: fmt.Sprintf("late-sweep-%s-%s-1", l.run.GetID(), l.run.GetRunID())}})
	require.Equal(t, []string{"a settled compensated"}, outcomes(late))
	require.Equal(t, []string{"do a", "do b", "undo b", "undo a", "undo a"}, l.calls())
}

func TestARecoveryReportsTheDeadRunsUndosAndChecksThemAgain(t *testing.T) {
	w := &world{steps: chain("a", "b", "c"), do: refusing("c")}
	letGo := make(chan struct{})
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		switch {
		case step == "c":
			return activities.Undone{Outcome: activities.Residue, Observed: "an invoice stays", Losses: []string{"an invoice"}},
				nil
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
	require.ElementsMatch(t, []string{"c settled residue", "b settled nothing-to-undo", "a settled restored"},
		outcomes(report))
	l.awaitCalls("undo b", 2)
}

// Anybody who may start workflows can start one of ours by hand, under any id.
func TestWorkflowsStartedByHandUndoNothingOfALiveTask(t *testing.T) {
	l := startLive(t, &world{steps: addGate(chain("a", "b"), "b", time.Hour)})
	l.awaitState(atGate)
	chain := protocol.Chain{WorkflowID: l.run.GetID(), RunID: l.run.GetRunID(), FirstRunID: l.run.GetRunID()}
	byHand := map[string]any{
		protocol.RecoverType:  protocol.RecoverRequest{Chain: chain, Ended: "terminated"},
		protocol.RollbackType: protocol.RollbackRequest{Chain: chain},
		protocol.RedoType:     protocol.RedoRequest{Task: chain, Rollback: chain},
	}
	for name, request := range byHand {
		for _, id := range []string{"forged-" + name + chain.RunID, map[string]string{
			protocol.RecoverType:  protocol.RecoverID(chain),
			protocol.RollbackType: protocol.RollbackID(protocol.RollbackRequest{Chain: chain}),
			protocol.RedoType:     protocol.RedoID(chain),
		}[name]} {
			r, err := l.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: l.queue}, name,
				request)
			require.NoError(t, err)
			err = r.Get(t.Context(), nil)
			requireType(t, err, protocol.TaskFailed)
			require.ErrorContains(t, err, "nothing was touched", id)
		}
	}
	require.Equal(t, []string{"do a", "plan b"}, l.calls())
	// The recovery under the right id does not block anything: it has died, and is recovered itself.
	l.terminate(l.run.GetID())
	require.Equal(t, compensations.Unwound, l.awaitReport(l.recover()).Status)
	require.Equal(t, []string{"do a", "plan b", "undo b", "undo a"}, l.calls())
}
