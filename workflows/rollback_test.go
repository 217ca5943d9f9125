package workflows_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

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
	_, err = l.server().Rollback(t.Context(), done, recovery.Part{To: "nowhere"}, "eve", "",
		converter.GetDefaultDataConverter())
	require.Equal(t, recovery.NoSuchPart, recovery.WhyOf(err))
	back, err := l.server().Rollback(t.Context(), done, recovery.Part{To: "half"}, "eve", "it was wrong",
		converter.GetDefaultDataConverter())
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
	require.JSONEq(t, fmt.Sprintf(`{"of": "b %s", "and": "c %s"}`, forwards[1].Entry.Token, forwards[4].Entry.Token),
		string(forwards[5].Step.With),
		"what was not rolled back is as it was, what was is new")

	done, err = l.server().FindDone(t.Context(), redo.WorkflowID)
	require.NoError(t, err)
	again, err := l.server().Rollback(t.Context(), done, wholeTask, "eve", "", converter.GetDefaultDataConverter())
	require.NoError(t, err)
	require.Equal(t, compensations.Unwound, l.awaitReport(again).Status)
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "do c", "do d", "undo d", "undo c"},
		l.calls())
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
	back, err := l.server().Rollback(t.Context(), done, recovery.Part{Step: "b"}, "eve", "",
		converter.GetDefaultDataConverter())
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

// A recovery or a rollback may wait for a person for longer than the namespace keeps the history
// that it unwinds.
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
				back, err := l.server().Rollback(t.Context(), done, recovery.Part{Step: "b"}, "eve", "",
					converter.GetDefaultDataConverter())
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
			require.Eventually(t, func() bool { return parked(l.stateOf(first.WorkflowID)) }, 40*time.Second,
				20*time.Millisecond)
			_, err := l.client.WorkflowService().DeleteWorkflowExecution(t.Context(),
				&workflowservice.DeleteWorkflowExecutionRequest{
					Namespace:         "default",
					WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: l.run.GetID(), RunId: l.run.GetRunID()},
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

func TestAStepThatIsRejectedWhileAnotherIsRolledBackIsRolledBackToo(t *testing.T) {
	steps := addGate(chain("a", "g", "h"), "g", time.Hour)
	steps[1].Needs = nil
	steps[0].OnFailure = task.OnFailure{Do: task.FailRollbackStep}
	steps[1].OnFailure = task.OnFailure{Do: task.FailRollbackStep}
	letGo := make(chan struct{})
	w := &world{steps: steps,
		do: func(_ context.Context, s string, _ int, _ activities.Forward) (activities.Result, error) {
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
	l.sendSignal(protocol.SignalReject, protocol.Decision{Step: g.Step, Digest: g.Digest, Who: "ann"})
	l.awaitState(func(s protocol.State) bool { return len(s.Gates) == 0 && s.Phase != "" })
	l.resolve(compensations.Retry)
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, compensations.Partly, report.Status)
	calls := l.calls()
	require.ElementsMatch(t, []string{"plan g", "do a"}, calls[:2])
	require.Equal(t, []string{"undo a", "undo a", "undo g"}, calls[2:])
}
