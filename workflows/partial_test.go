package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// stepByID returns a step, to be changed.
func stepByID(steps []task.Step, id string) *task.Step {
	return &steps[slices.IndexFunc(steps, func(s task.Step) bool { return s.ID == id })]
}

// onFailure sets the on_failure of a step.
func onFailure(steps []task.Step, id string, do task.FailureMode) {
	stepByID(steps, id).OnFailure.Do = do
}

// unwindTo makes a failure of a step unwind to a savepoint.
func unwindTo(steps []task.Step, id, savepoint string, times int) {
	stepByID(steps, id).OnFailure = task.OnFailure{Do: task.FailUnwindTo, To: savepoint, Times: times}
}

var errNo = temporal.NewNonRetryableApplicationError("no", string(activities.CheckFailed), nil)

// failFirstCalls fails the first calls of each step, times of it, without a retry.
func failFirstCalls(times map[string]int) func(context.Context, string, int, activities.Forward) (activities.Result,
	error) {
	return func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		if n <= times[s] {
			return activities.Result{}, errNo
		}
		return activities.Result{}, nil
	}
}

// finishLate makes a step end a minute after it began, by failing its first attempt.
func finishLate(steps []task.Step, id string) {
	stepByID(steps, id).Retry = task.Retry{Attempts: 2, Backoff: time.Minute, Max: time.Minute}
}

var errAgain = errors.New("not yet")

// sortRange sorts the calls between two indexes, which are concurrent.
func sortRange(calls []string, from, to int) []string {
	sorted := slices.Clone(calls)
	slices.Sort(sorted[from:min(to, len(sorted))])
	return sorted
}

// parkFirstUndo makes the first undo of a step end with an unknown outcome.
func parkFirstUndo(step string) func(string, int, activities.Decision) (activities.Undone, error) {
	return func(s string, n int, _ activities.Decision) (activities.Undone, error) {
		if s == step && n == 1 {
			return activities.Undone{Outcome: activities.Unknown, Observed: "cannot be seen"}, nil
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
}

// notesOf returns the notes in all rows of a step.
func notesOf(r compensations.Report, step string) []string {
	var notes []string
	for _, s := range r.Steps {
		if s.Step == step {
			notes = append(notes, s.Notes...)
		}
	}
	return notes
}

// notesByTry returns the notes in all rows of a step, each after the try that its row is about.
func notesByTry(r compensations.Report, step string) []string {
	var notes []string
	for _, s := range r.Steps {
		if s.Step == step {
			for _, note := range s.Notes {
				notes = append(notes, fmt.Sprintf("%d: %s", s.Try, note))
			}
		}
	}
	return notes
}

// twoBranches builds b and then c, and d and then e, on a. b fails, and so do the steps in failing;
// d is done a minute later.
func twoBranches(failing ...string) *world {
	w := &world{steps: chain("a", "b", "c", "d", "e")}
	stepByID(w.steps, "d").Needs = []string{"a"}
	onFailure(w.steps, "b", task.FailRollbackStep)
	finishLate(w.steps, "d")
	w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		switch {
		case s == "d" && n == 1:
			return activities.Result{}, errAgain
		case s == "b" || slices.Contains(failing, s):
			return activities.Result{}, errNo
		}
		return activities.Result{}, nil
	}
	return w
}

func TestARolledBackStepLeavesOutItsDependentsOnly(t *testing.T) {
	w := twoBranches()
	report, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b", "do d", "do d", "undo b", "do e"}, sortRange(w.calls, 1, 3))
	require.Equal(t, compensations.Partly, report.Status)
	require.Equal(t, []string{"a done ", "b settled restored", "c left-out ", "d done ", "e done "}, outcomes(report))
	require.Equal(t, []string{"rolled back, as its on_failure says: CheckFailed: no"}, notesOf(report, "b"))
	require.Equal(t, "CheckFailed: no", report.Steps[1].Summary)
	require.Equal(t, []string{"left out: it needs b"}, notesOf(report, "c"))
}

func TestALeftOutStepLeavesOutItsDependents(t *testing.T) {
	w := &world{steps: chain("a", "b", "c", "d"), do: failing("b")}
	onFailure(w.steps, "b", task.FailRollbackStep)
	report, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b", "undo b"}, w.calls)
	require.Equal(t, []string{"a done ", "b settled restored", "c left-out ", "d left-out "}, outcomes(report))
}

func TestAStepThatIsRejectedAtItsGateIsRolledBackToo(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b", "c", "d"), "b", time.Hour)}
	stepByID(w.steps, "d").Needs = []string{"a"}
	onFailure(w.steps, "b", task.FailRollbackStep)
	r := newRun(t, w)
	r.runAfter(time.Minute, func() { r.decide(protocol.SignalReject) })
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do d", "plan b", "undo b"}, sortRange(w.calls, 1, 3))
	require.Equal(t, []string{"a done ", "b settled restored", "c left-out ", "d done "}, outcomes(report))
	require.Equal(t, compensations.Partly, report.Status)
}

func TestAStepThatFailsAfterOneWasRolledBackUnwindsTheRest(t *testing.T) {
	w := &world{steps: chain("a", "b", "c")}
	stepByID(w.steps, "c").Needs = []string{"a"}
	onFailure(w.steps, "b", task.FailRollbackStep)
	w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		switch {
		case s == "c" && n == 1:
			return activities.Result{}, errAgain
		case s == "b", s == "c":
			return activities.Result{}, errNo
		}
		return activities.Result{}, nil
	}
	finishLate(w.steps, "c")
	r := newRun(t, w)
	report, err := r.report()
	r.failsAs(err, protocol.TaskFailed)
	// c ends the task before b's turn comes: a rollback waits until no step is running.
	require.Equal(t, []string{"do a", "do b", "do c", "do c", "undo c", "undo b", "undo a"}, sortRange(w.calls, 1, 4))
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, "c", report.Cause.Step)

	w = twoBranches("e")
	report, err = newRun(t, w).report()
	require.Error(t, err)
	require.Equal(t, []string{"do a", "do b", "do d", "do d", "undo b", "do e", "undo e", "undo d", "undo a"},
		sortRange(w.calls, 1, 3))
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, 4, report.Outcomes["restored"])
}

func TestATaskContinuesAfterAFailureAndUndoesThatStepWhenItFailsLater(t *testing.T) {
	w := &world{steps: chain("a", "b", "c"), do: failing("b")}
	onFailure(w.steps, "b", task.FailContinue)
	report, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b", "do c"}, w.calls)
	require.Equal(t, compensations.Partly, report.Status)
	require.Equal(t, []string{"a done ", "b failed ", "c done "}, outcomes(report))
	require.Equal(t, "CheckFailed: no", report.Steps[1].Summary)
	require.Equal(t, []string{"the task goes on: on_failure is continue"}, notesOf(report, "b"))

	w = &world{steps: chain("a", "b", "c"), do: failFirstCalls(map[string]int{"b": 9, "c": 9})}
	onFailure(w.steps, "b", task.FailContinue)
	report, err = newRun(t, w).report()
	require.Error(t, err)
	require.Equal(t, []string{"do a", "do b", "do c", "undo c", "undo b", "undo a"}, w.calls)
	require.Equal(t, compensations.Unwound, report.Status)
}

func TestIndependentBranchesAreUndoneOneByOneUnlessTheFileSaysParallel(t *testing.T) {
	// b and c need a, d needs b and c.
	for _, mode := range []task.UnwindMode{task.UnwindLIFO, task.UnwindParallel} {
		t.Run("unwind: "+string(mode), func(t *testing.T) {
			w := &world{steps: chain("a", "b", "c", "d"), do: failing("d")}
			stepByID(w.steps, "c").Needs, stepByID(w.steps, "d").Needs = []string{"a"}, []string{"b", "c"}
			w.compiled.Unwind = mode
			var mu sync.Mutex
			running, most := 0, 0
			both := make(chan struct{})
			w.undo = func(step string, _ int, _ activities.Decision) (activities.Undone, error) {
				mu.Lock()
				running++
				if most = max(most, running); running == 2 {
					close(both)
				}
				mu.Unlock()
				if mode == task.UnwindParallel && (step == "b" || step == "c") {
					<-both // one alone would wait for ever
				}
				mu.Lock()
				running--
				mu.Unlock()
				return activities.Undone{Outcome: activities.Restored}, nil
			}
			report, err := newRun(t, w).report()
			require.Error(t, err)
			calls := sortRange(w.calls, 1, 3)
			require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d"}, calls[:5])
			require.Equal(t, "undo a", calls[7])
			require.Equal(t, 4, report.Outcomes["restored"])
			if mode == task.UnwindParallel {
				require.Equal(t, 2, most)
				return
			}
			require.Equal(t, 1, most)
		})
	}
}

func TestAnUndoIsParkedOrAcceptedAfterItsAttempts(t *testing.T) {
	down := func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "b" && n <= 2 {
			return activities.Undone{}, errors.New("down")
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	w := &world{steps: chain("a", "b"), do: failing("b"), undo: down}
	stepByID(w.steps, "b").Undo.Attempts = 2
	r := newRun(t, w)
	r.runAfter(10*time.Minute, func() {
		require.Equal(t, []string{"do a", "do b", "undo b", "undo b"}, w.calls)
		r.resolveParked(compensations.Retry)
	})
	report, _ := r.report()
	require.Equal(t, []string{"do a", "do b", "undo b", "undo b", "undo b", "undo a"}, w.calls)
	require.Equal(t, compensations.Unwound, report.Status)

	w = &world{steps: chain("a", "b"), do: failing("b"), undo: down}
	stepByID(w.steps, "b").Undo.Attempts, stepByID(w.steps, "b").Undo.Criticality = 2, activities.LowCritical
	report, _ = newRun(t, w).report()
	require.Equal(t, []string{"do a", "do b", "undo b", "undo b", "undo a"}, w.calls)
	require.Equal(t, []string{"a settled restored", "b accepted failed"}, outcomes(report))
	require.Equal(t, compensations.Remains, report.Status)
	require.Contains(t, notesOf(report, "b"), "accepted as it is: its criticality is low")
}

func TestAParkedUndoIsResolvedByAReset(t *testing.T) {
	w := &world{steps: chain("a", "b"), do: failing("b"), undo: parkFirstUndo("b")}
	r := newRun(t, w)
	r.env.RegisterActivityWithOptions(func(_ context.Context, b activities.Backward) (activities.Undone, error) {
		w.called("reset", b.Entry.Step)
		return activities.Undone{Outcome: activities.Compensated, Losses: []string{"what was in it"}}, nil
	}, activity.RegisterOptions{Name: "fake.do.reset"})
	r.runAfter(time.Minute, func() { r.resolveParked(compensations.Reset) })
	report, err := r.report()
	require.Error(t, err)
	require.Equal(t, []string{"do a", "do b", "undo b", "reset b", "undo a"}, w.calls)
	require.Equal(t, []string{"a settled restored", "b settled compensated"}, outcomes(report))
	require.Equal(t, []string{"what was in it"}, report.Steps[1].Losses)
	require.Equal(t, []string{"reset by eve"}, notesOf(report, "b"))
}

func TestAnUndoSkippedInARollbackIsReported(t *testing.T) {
	w := twoBranches()
	w.undo = parkFirstUndo("b")
	r := newRun(t, w)
	r.runAfter(2*time.Minute, func() { r.resolveParked(compensations.Skip) })
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b", "do d", "do d", "undo b", "do e"}, sortRange(w.calls, 1, 3))
	require.Equal(t, compensations.Partly, report.Status)
	require.Contains(t, outcomes(report), "b skipped unknown")
	require.Contains(t, notesOf(report, "b"), "skip by eve")
}

func TestASkippedUndoIsNotDoneLater(t *testing.T) {
	// The rollback of b is skipped; then d is rolled back; then e fails and the task unwinds.
	w := &world{steps: chain("a", "b", "d", "e"), do: failFirstCalls(map[string]int{"b": 9, "d": 9, "e": 9}),
		undo: parkFirstUndo("b")}
	stepByID(w.steps, "b").Needs, stepByID(w.steps, "d").Needs, stepByID(w.steps, "e").Needs = nil, []string{"a"},
		[]string{"a"}
	onFailure(w.steps, "b", task.FailRollbackStep)
	onFailure(w.steps, "d", task.FailRollbackStep)
	addGate(w.steps, "d", 2*time.Hour)
	addGate(w.steps, "e", 4*time.Hour)
	r := newRun(t, w)
	r.runAfter(time.Minute, func() { r.resolveParked(compensations.Skip) })
	report, err := r.report() // nobody decides at the gates
	r.failsAs(err, protocol.TaskRejected)
	calls := sortRange(sortRange(w.calls, 0, 2), 2, 5)
	require.Equal(t, 1, w.count["undo b"], "a person has left it: %v", calls)
	require.Equal(t, []string{"undo d", "undo e", "undo a"}, calls[len(calls)-3:])
	require.Equal(t, compensations.Remains, report.Status)
	require.Contains(t, outcomes(report), "b skipped unknown")
}

// The task is ended while a rollback waits for a person: everything else is unwound at once.
func TestCancelAndDeadlineInARollback(t *testing.T) {
	for _, kind := range []compensations.CauseKind{compensations.Canceled, compensations.Deadline} {
		t.Run(string(kind), func(t *testing.T) {
			w := twoBranches()
			w.undo = parkFirstUndo("b")
			r := newRun(t, w)
			if kind == compensations.Canceled {
				r.runAfter(2*time.Minute, r.env.CancelWorkflow)
			} else {
				w.deadline = 2 * time.Minute
			}
			r.runAfter(3*time.Minute, func() {
				require.Equal(t, []string{"do a", "do b", "do d", "do d", "undo b", "undo d"}, sortRange(w.calls, 1, 3))
				r.resolveParked(compensations.Retry)
			})
			report, err := r.report()
			require.Error(t, err)
			require.Equal(t, []string{"do a", "do b", "do d", "do d", "undo b", "undo d", "undo b", "undo a"},
				sortRange(w.calls, 1, 3))
			require.Equal(t, kind, report.Cause.Kind)
			require.Equal(t, compensations.Unwound, report.Status)
		})
	}
}

func TestAStepThatIsApprovedInARollbackRunsAfterIt(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b", "g"), "g", time.Hour), do: failing("b"), undo: parkFirstUndo("b")}
	stepByID(w.steps, "g").Needs = []string{"a"}
	onFailure(w.steps, "b", task.FailRollbackStep)
	r := newRun(t, w)
	r.runAfter(time.Minute, func() { r.decide(protocol.SignalApprove) })
	r.runAfter(2*time.Minute, func() { r.resolveParked(compensations.Retry) })
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b", "plan g", "undo b", "undo b", "do g"}, sortRange(w.calls, 1, 3))
	require.Equal(t, compensations.Partly, report.Status)
	require.Equal(t, []string{"approved by ann: I looked"}, notesOf(report, "g"))
}

// Two steps fail concurrently, and the rollback of the first one covers the other one too.
func TestTwoStepsThatFailTogether(t *testing.T) {
	for _, second := range []task.FailureMode{task.FailRollbackStep, task.FailUnwindTo} {
		t.Run(string(second), func(t *testing.T) {
			w := &world{steps: chain("a", "b", "x", "y")}
			stepByID(w.steps, "y").Needs = []string{"b"}
			stepByID(w.steps, "b").Savepoint = "sp"
			unwindTo(w.steps, "x", "sp", 1)
			onFailure(w.steps, "y", second)
			if second == task.FailUnwindTo {
				unwindTo(w.steps, "y", "sp", 1)
			}
			w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
				switch {
				case s == "y" && n == 1:
					return activities.Result{}, errAgain
				case s == "x" && n == 1, s == "y" && n == 2:
					return activities.Result{}, errNo
				}
				return activities.Result{}, nil
			}
			finishLate(w.steps, "y")
			report, err := newRun(t, w).report()
			require.NoError(t, err)
			require.Equal(t, []string{
				"do a", "do b", "do x", "do y", "do y", "undo y", "undo x", "undo b", "do b", "do x", "do y",
			}, sortRange(sortRange(w.calls, 2, 4), 9, 11), "both are undone and done again")
			require.Equal(t, compensations.Committed, report.Status)
		})
	}
}

// The details describe a running task, also while a part of it is unwound.
func TestTheStateOfARollback(t *testing.T) {
	w := twoBranches()
	w.undo = parkFirstUndo("b")
	r := newRun(t, w)
	r.runAfter(2*time.Minute, func() {
		s := r.state()
		require.Equal(t, protocol.Forward, s.Phase)
		require.Nil(t, s.Cause)
		require.Equal(t, []string{"b parked unknown"}, outcomes(*s.Report))
		r.resolveParked(compensations.Accept)
	})
	report, err := r.report()
	require.NoError(t, err)
	require.Contains(t, outcomes(report), "b accepted unknown")
	require.Equal(t, compensations.Partly, report.Status)
	require.Equal(t, []string{"undo b", "do e"}, w.calls[4:])
}
