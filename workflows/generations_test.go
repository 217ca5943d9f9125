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

// rollBackPart rolls back a part of a task and waits for the end.
func (l *live) rollBackPart(id string, part recovery.Part) (recovery.Run, error) {
	done, err := l.server().FindDone(l.Context(), id)
	require.NoError(l, err)
	back, err := l.server().Rollback(l.Context(), done, part, "eve", "", converter.GetDefaultDataConverter())
	if err == nil {
		require.Equal(l, compensations.Unwound, l.awaitReport(back).Status)
	}
	return back, err
}

// redo redoes what a rollback has undone and waits for the end.
func (l *live) redo(rollback string) (recovery.Run, error) {
	found, err := l.server().FindRollback(l.Context(), rollback)
	require.NoError(l, err)
	redo, err := l.server().Redo(l.Context(), found, "eve", converter.GetDefaultDataConverter())
	if err == nil {
		require.Equal(l, compensations.Redone, l.awaitReport(redo).Status)
	}
	return redo, err
}

// awaitListed waits until the server lists a rollback: rollbacks of parts are found by that list,
// which is a little behind.
func (l *live) awaitListed(rollback recovery.Run) {
	query := &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: l.server().Namespace, Query: fmt.Sprintf("WorkflowId = '%s'", rollback.WorkflowID),
	}
	require.Eventually(l, func() bool {
		found, err := l.server().Client.ListWorkflow(l.Context(), query)
		return err == nil && len(found.GetExecutions()) > 0
	}, 2*time.Minute, 20*time.Millisecond)
}

func TestAPartRolledBackAndRedoneIsUndoneOnce(t *testing.T) {
	w := &world{steps: chain("a", "b", "c")}
	l := startLive(t, w)
	_, err := l.report()
	require.NoError(t, err)
	task := l.run.GetID()
	part, err := l.rollBackPart(task, recovery.Part{Step: "c"})
	require.NoError(t, err)
	l.awaitListed(part)
	again, err := l.redo(part.WorkflowID)
	require.NoError(t, err)

	calls := len(l.calls())
	_, err = l.rollBackPart(task, wholeTask)
	require.Equal(t, recovery.Order, recovery.WhyOf(err), "%v", err)
	require.ErrorContains(t, err, "roll "+again.WorkflowID+" back first")
	require.Len(t, l.calls(), calls, "nothing is touched")

	_, err = l.rollBackPart(again.WorkflowID, wholeTask)
	require.NoError(t, err)
	whole, err := l.rollBackPart(task, wholeTask)
	require.NoError(t, err)
	require.Equal(t, []string{"undo c", "undo b", "undo a"}, l.calls()[calls:])
	_, err = l.rollBackPart(task, recovery.Part{Step: "b"})
	require.Equal(t, recovery.Ended, recovery.WhyOf(err), "%v", err)
	_, err = l.redo(whole.WorkflowID)
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b"}, l.calls()[calls+3:], "c was undone before that")
}

func TestOverlappingRollbacksAreRedoneLastInFirstOut(t *testing.T) {
	w := &world{steps: chain("a", "b")}
	l := startLive(t, w)
	_, err := l.report()
	require.NoError(t, err)
	task := l.run.GetID()
	first, err := l.rollBackPart(task, recovery.Part{Step: "b"})
	require.NoError(t, err)
	l.awaitListed(first)
	second, err := l.rollBackPart(task, wholeTask)
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

// The step at the savepoint was rolled back before, but the rollback and its recovery still know
// its place in the ledger.
func TestATaskIsRolledBackToASavepointWhoseStepWasRolledBackBefore(t *testing.T) {
	letGo := make(chan struct{})
	w := &world{steps: chain("a", "b", "c", "d")}
	stepByID(w.steps, "b").Savepoint = "sp"
	stepByID(w.steps, "c").Needs = []string{"a"} // so that rolling back b spares c and d
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
	first, err := l.rollBackPart(task, recovery.Part{Step: "b"})
	require.NoError(t, err)
	l.awaitListed(first)

	done, err := l.server().FindDone(t.Context(), task)
	require.NoError(t, err)
	back, err := l.server().Rollback(t.Context(), done, recovery.Part{To: "sp"}, "eve", "",
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
	require.Equal(t, []string{"undo b", "undo d", "undo c", "undo c"}, sortRange(l.calls(), 1, 4)[4:], "a stays done")

	l.awaitListed(back)
	_, err = l.rollBackPart(task, recovery.Part{Step: "c"})
	require.Equal(t, recovery.Ended, recovery.WhyOf(err), "%v", err)
	_, err = l.redo(back.WorkflowID)
	require.NoError(t, err)
	_, err = l.redo(first.WorkflowID)
	require.NoError(t, err)
	require.Equal(t, []string{"do c", "do d", "do b"}, l.calls()[8:])
}
