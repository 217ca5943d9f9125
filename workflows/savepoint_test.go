package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

func TestATaskUnwindsToASavepointAndRepeatsItAsANewGeneration(t *testing.T) {
	w := &world{steps: chain("a", "b", "c", "d")}
	stepByID(w.steps, "b").Savepoint = "sp"
	unwindTo(w.steps, "d", "sp", 1)
	var entries []activities.Entry
	w.do = func(_ context.Context, s string, n int, f activities.Forward) (activities.Result, error) {
		entries = append(entries, f.Entry)
		if s == "d" && n == 1 {
			return activities.Result{}, errNo
		}
		return activities.Result{}, nil
	}
	report, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo b", "do b", "do c", "do d"},
		w.calls)
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, []string{
		"a done ", "b settled restored", "b done ", "c settled restored", "c done ", "d settled restored", "d done ",
	}, outcomes(report))
	require.Equal(t, []string{"unwound to savepoint sp, 1 of 1: CheckFailed: no"}, notesOf(report, "d"))
	tokens := map[string]bool{}
	for i, e := range entries {
		require.Equal(t, i+1, e.Seq)
		tokens[e.Token] = true
	}
	require.Len(t, tokens, 7, "each generation has a token of its own")
	require.Equal(t, "sp", entries[4].Savepoint)
}

func TestATaskUnwindsAfterItsLastReturnToASavepoint(t *testing.T) {
	w := &world{steps: chain("a", "b", "c"), do: failing("c")}
	stepByID(w.steps, "b").Savepoint = "sp"
	unwindTo(w.steps, "c", "sp", 2)
	r := newRun(t, w)
	report, err := r.report()
	r.failsAs(err, protocol.TaskFailed)
	require.Equal(t, []string{
		"do a", "do b", "do c", "undo c", "undo b", "do b", "do c", "undo c", "undo b", "do b", "do c", "undo c", "undo b",
		"undo a",
	}, w.calls)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, 7, report.Outcomes["restored"])
}

func TestASavepointMayBeOnTheFirstOrTheFailingStep(t *testing.T) {
	w := &world{steps: chain("a", "b"), do: failFirstCalls(map[string]int{"b": 1})}
	stepByID(w.steps, "a").Savepoint = "start"
	unwindTo(w.steps, "b", "start", 1)
	report, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b", "undo b", "undo a", "do a", "do b"}, w.calls)
	require.Equal(t, compensations.Committed, report.Status)

	w = &world{steps: chain("a", "b"), do: failFirstCalls(map[string]int{"b": 1})}
	stepByID(w.steps, "b").Savepoint = "here"
	unwindTo(w.steps, "b", "here", 1)
	_, err = newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b", "undo b", "do b"}, w.calls)
}

func TestAnUnregisteredStepUnwindsNothingBeforeItsSavepoint(t *testing.T) {
	w := &world{steps: chain("a", "b")}
	stepByID(w.steps, "b").Savepoint = "here"
	stepByID(w.steps, "b").With = []byte(`{"from": "${{ steps.a.outputs.nothing }}"}`)
	unwindTo(w.steps, "b", "here", 1)
	report, err := newRun(t, w).report()
	require.Error(t, err)
	require.Equal(t, []string{"do a", "undo a"}, w.calls, "a is done once")
	require.Equal(t, compensations.Unwound, report.Status)
}

func TestAGateBehindASavepointIsClosedAndAskedAgain(t *testing.T) {
	// g waits at its gate while d, beside it, fails.
	w := &world{steps: addGate(chain("a", "b", "g", "d"), "g", time.Hour)}
	stepByID(w.steps, "d").Needs = []string{"b"}
	stepByID(w.steps, "b").Savepoint = "sp"
	unwindTo(w.steps, "d", "sp", 1)
	finishLate(w.steps, "d")
	w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		switch {
		case s == "d" && n == 1:
			return activities.Result{}, errAgain
		case s == "d" && n == 2:
			return activities.Result{}, errNo
		}
		return activities.Result{}, nil
	}
	r := newRun(t, w)
	var first protocol.GateView
	r.runAfter(30*time.Second, func() { first = r.state().Gates[0] })
	r.runAfter(2*time.Minute, func() {
		again := r.state().Gates[0]
		require.Equal(t, "g", again.Step)
		require.NotEqual(t, first.Digest, again.Digest)
		r.env.SignalWorkflow(protocol.SignalApprove, protocol.Decision{Step: "g", Digest: first.Digest, Who: "late"})
	})
	r.runAfter(3*time.Minute, func() { r.decide(protocol.SignalApprove) })
	report, err := r.report()
	require.NoError(t, err)
	calls := sortRange(sortRange(w.calls, 2, 4), 9, 11)
	require.Equal(t, []string{
		"do a", "do b", "do d", "plan g", "do d", "undo d", "undo g", "undo b", "do b", "do d", "plan g", "do g",
	}, calls)
	require.Equal(t, compensations.Committed, report.Status)
	require.Len(t, report.Notes, 1)
	require.Contains(t, report.Notes[0], "ignored signal: approve: digest "+first.Digest.Short())
}

func TestASkippedUndoAfterASavepointIsNotRepeated(t *testing.T) {
	w := &world{steps: chain("a", "b", "c"), do: failing("c"), undo: parkFirstUndo("c")}
	stepByID(w.steps, "b").Savepoint = "sp"
	unwindTo(w.steps, "c", "sp", 3)
	r := newRun(t, w)
	r.runAfter(time.Minute, func() { r.resolveParked(compensations.Skip) })
	r.runAfter(2*time.Minute, func() {
		require.Equal(t, []string{"do a", "do b", "do c", "undo c"}, w.calls, "b waits for c, that builds on it")
		r.resolveParked(compensations.Retry)
	})
	report, err := r.report()
	r.failsAs(err, protocol.TaskFailed)
	require.Equal(t, []string{"do a", "do b", "do c", "undo c", "undo b", "undo a"}, w.calls)
	require.Contains(t, report.Cause.Text, "step c is not undone, so nothing is done again from savepoint sp on")
	require.Equal(t, compensations.Remains, report.Status)
}

func TestARepeatedStepCountsAsDone(t *testing.T) {
	w := &world{steps: chain("a", "b", "c"), do: failFirstCalls(map[string]int{"b": 1, "c": 1})}
	stepByID(w.steps, "b").Savepoint = "sp"
	onFailure(w.steps, "b", task.FailContinue)
	unwindTo(w.steps, "c", "sp", 1)
	report, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b", "do c", "undo c", "undo b", "do b", "do c"}, w.calls)
	require.Equal(t, compensations.Committed, report.Status, "every step is done")
}

func TestASavepointOutlivesTheRollbackOfItsStep(t *testing.T) {
	// b has the savepoint, fails and is rolled back; c and d, beside it, come after it; d goes back to
	// it.
	w := &world{steps: chain("a", "b", "c", "d")}
	w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		switch {
		case s == "c" && n == 1:
			return activities.Result{}, errAgain
		case s == "b", s == "d" && n == 1:
			return activities.Result{}, errNo
		}
		return activities.Result{}, nil
	}
	finishLate(w.steps, "c")
	stepByID(w.steps, "c").Needs = []string{"a"}
	stepByID(w.steps, "b").Savepoint = "sp"
	onFailure(w.steps, "b", task.FailRollbackStep)
	unwindTo(w.steps, "d", "sp", 1)
	_, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b", "do c", "do c", "undo b", "do d", "undo d", "undo c", "do c", "do d"},
		sortRange(w.calls, 1, 3))
}
