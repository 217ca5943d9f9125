package workflows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// A late sweep waits long, so it may well be terminated meanwhile.
func TestATerminatedLateSweepIsRecovered(t *testing.T) {
	w := &world{steps: chain("a", "b"), do: refusing("b")}
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "a" && n == 1 {
			return activities.Undone{Outcome: activities.Nothing, LookAgain: time.Hour}, nil
		}
		return activities.Undone{Outcome: activities.Compensated}, nil
	}
	l := startLive(t, w)
	_, err := l.report()
	require.Error(t, err)
	id := fmt.Sprintf("late-sweep-%s-%s-1", l.run.GetID(), l.run.GetRunID())
	l.terminate(id)
	dead, err := l.server().Find(t.Context(), id)
	require.NoError(t, err)
	run, err := l.server().Recover(t.Context(), dead, "eve")
	require.NoError(t, err)
	require.Equal(t, []string{"a settled compensated"}, outcomes(l.awaitReport(run)))
	require.Equal(t, []string{"undo b", "undo a", "undo a"}, l.calls()[2:])
}

// A reset of a recovery, or of a rollback, continues with what is not undone yet.
func TestAResetOfAFinishedRecoveryUndoesOnlyItsOwn(t *testing.T) {
	l := startLive(t, &world{steps: chain("a", "b"), do: blockAt("b", never)})
	l.awaitCalls("do b", 1)
	l.terminate(l.run.GetID())
	first := l.recover()
	require.Equal(t, compensations.Unwound, l.awaitReport(first).Status)
	l.run = l.client.GetWorkflow(t.Context(), first.WorkflowID, "")
	l.resetTo(0)
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"do a", "do b"}, l.calls()[:2])
	require.NotContains(t, l.calls()[2:], "do a")
	require.NotContains(t, l.calls()[2:], "do b")
}

func TestRecoveryAndResetKeepWhatAPivotCommitted(t *testing.T) {
	for name, end := range map[string]func(*live) compensations.Report{
		"recovery": func(l *live) compensations.Report {
			l.terminate(l.run.GetID())
			return l.awaitReport(l.recover())
		},
		"reset": func(l *live) compensations.Report {
			l.resetTo(1) // a is scheduled by then, the pivot is not
			report, err := l.report()
			requireType(l.T, err, protocol.TaskReset)
			return report
		},
	} {
		t.Run(name, func(t *testing.T) {
			steps := chain("a", "b", "c")
			stepByID(steps, "b").Pivot = true
			l := startLive(t, &world{steps: steps, do: blockAt("c", never)})
			l.awaitCalls("do c", 1)
			report := end(l)
			require.Equal(t, []string{"do a", "do b", "do c", "undo c"}, l.calls())
			require.Equal(t, compensations.Partly, report.Status)
			require.Contains(t, report.Notes, "not undone, up to the pivot: 2 steps")
		})
	}
}
