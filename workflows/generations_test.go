package workflows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// rollsBack rolls a part of a task back, to its end.
func (l *live) rollsBack(id string, part recovery.Part) (recovery.Run, error) {
	done, err := l.server().FindDone(l.Context(), id)
	require.NoError(l, err)
	back, err := l.server().Rollback(l.Context(), done, part, "eve", "", converter.GetDefaultDataConverter())
	if err == nil {
		require.Equal(l, compensations.Unwound, l.ended(back).Status)
	}
	return back, err
}

// redo does again what a rollback has undone, to its end.
func (l *live) redo(rollback string) (recovery.Run, error) {
	found, err := l.server().FindRollback(l.Context(), rollback)
	require.NoError(l, err)
	redo, err := l.server().Redo(l.Context(), found, "eve", converter.GetDefaultDataConverter())
	if err == nil {
		require.Equal(l, compensations.Redone, l.ended(redo).Status)
	}
	return redo, err
}

// listed waits until the server's list, by which the rollbacks of parts are found, holds one: it is a little behind.
func (l *live) listed(rollback recovery.Run) {
	query := &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: l.server().Namespace, Query: fmt.Sprintf("WorkflowId = '%s'", rollback.WorkflowID),
	}
	require.Eventually(l, func() bool {
		found, err := l.server().Client.ListWorkflow(l.Context(), query)
		return err == nil && len(found.GetExecutions()) > 0
	}, 2*time.Minute, 20*time.Millisecond)
}

func TestWhatWasRolledBackInPartAndDoneAgainIsNeitherForgottenNorUndoneTwice(t *testing.T) {
	w := &world{steps: chain("a", "b", "c")}
	l := startLive(t, w)
	_, err := l.report()
	require.NoError(t, err)
	task := l.run.GetID()
	part, err := l.rollsBack(task, recovery.Part{Step: "c"})
	require.NoError(t, err)
	l.listed(part)
	again, err := l.redo(part.WorkflowID)
	require.NoError(t, err)

	calls := len(l.calls())
	_, err = l.rollsBack(task, wholeTask)
	require.Equal(t, recovery.Order, recovery.WhyOf(err), "%v", err)
	require.ErrorContains(t, err, "roll "+again.WorkflowID+" back first")
	require.Len(t, l.calls(), calls, "nothing is touched")

	_, err = l.rollsBack(again.WorkflowID, wholeTask)
	require.NoError(t, err)
	whole, err := l.rollsBack(task, wholeTask)
	require.NoError(t, err)
	require.Equal(t, []string{"undo c", "undo b", "undo a"}, l.calls()[calls:])
	_, err = l.rollsBack(task, recovery.Part{Step: "b"})
	require.Equal(t, recovery.Ended, recovery.WhyOf(err), "%v", err)
	_, err = l.redo(whole.WorkflowID)
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b"}, l.calls()[calls+3:], "c was undone before that")
}

func TestOverlappingRollbacksAreRedoneTheLastOneFirst(t *testing.T) {
	w := &world{steps: chain("a", "b")}
	l := startLive(t, w)
	_, err := l.report()
	require.NoError(t, err)
	task := l.run.GetID()
	first, err := l.rollsBack(task, recovery.Part{Step: "b"})
	require.NoError(t, err)
	l.listed(first)
	second, err := l.rollsBack(task, wholeTask)
	require.NoError(t, err)
	require.Equal(t, []string{"undo b", "undo a"}, l.calls()[2:])

	_, err = l.redo(first.WorkflowID)
	require.Equal(t, recovery.Order, recovery.WhyOf(err), "b needs a: %v", err)
	require.ErrorContains(t, err, "redo "+second.WorkflowID+" first")
	_, err = l.redo(second.WorkflowID)
	require.NoError(t, err)
	_, err = l.redo(first.WorkflowID)
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b"}, l.calls()[4:])
}

// The step at the savepoint was rolled back before: the place in the ledger is still known, to the rollback and to its recovery.
func TestATaskIsRolledBackToASavepointWhoseStepWasRolledBackBefore(t *testing.T) {
	letGo := make(chan struct{})
	w := &world{steps: chain("a", "b", "c", "d")}
	of(w.steps, "b").Savepoint = "sp"
	of(w.steps, "c").Needs = []string{"a"} // so that rolling back b leaves c and d
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "c" && n == 1 {
			<-letGo
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := startLive(t, w)
	_, err := l.report()
	require.NoError(t, err)
	task := l.run.GetID()
	first, err := l.rollsBack(task, recovery.Part{Step: "b"})
	require.NoError(t, err)
	l.listed(first)

	done, err := l.server().FindDone(t.Context(), task)
	require.NoError(t, err)
	back, err := l.server().Rollback(t.Context(), done, recovery.Part{To: "sp"}, "eve", "", converter.GetDefaultDataConverter())
	require.NoError(t, err)
	l.called("undo c", 1)
	l.terminate(back.WorkflowID)
	dead, err := l.server().Find(t.Context(), back.WorkflowID)
	require.NoError(t, err)
	run, err := l.server().Recover(t.Context(), dead, "eve")
	require.NoError(t, err)
	close(letGo)
	require.Equal(t, compensations.Unwound, l.ended(run).Status)
	require.Equal(t, []string{"undo b", "undo d", "undo c", "undo c"}, sortedAt(l.calls(), 1, 4)[4:], "a stays done")

	l.listed(back)
	_, err = l.rollsBack(task, recovery.Part{Step: "c"})
	require.Equal(t, recovery.Ended, recovery.WhyOf(err), "%v", err)
	_, err = l.redo(back.WorkflowID)
	require.NoError(t, err)
	_, err = l.redo(first.WorkflowID)
	require.NoError(t, err)
	require.Equal(t, []string{"do c", "do d", "do b"}, l.calls()[8:])
}
