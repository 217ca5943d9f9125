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

func TestPastItsPivotATaskUnwindsOnlyLaterSteps(t *testing.T) {
	w := &world{steps: chain("a", "p", "c", "d"), do: failing("d")}
	stepByID(w.steps, "p").Pivot = true
	r := newRun(t, w)
	report, err := r.report()
	r.failsAs(err, protocol.TaskFailed)
	require.Equal(t, []string{"do a", "do p", "do c", "do d", "undo d", "undo c"}, w.calls)
	require.Equal(t, compensations.Partly, report.Status)
	require.Equal(t, []string{"not undone, up to the pivot: 2 steps"}, report.Notes)
	require.Equal(t, []string{"a done ", "p done ", "c settled restored", "d settled restored"}, outcomes(report))
}

// Who plans a step is told that it will not be undone after the end of the task.
func TestAStepKnowsThatAPivotFollows(t *testing.T) {
	w := &world{steps: chain("a", "b", "p", "c")}
	stepByID(w.steps, "p").Pivot = true
	before := map[string]bool{}
	w.do = func(_ context.Context, step string, _ int, f activities.Forward) (activities.Result, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		before[step] = f.BeforePivot
		return activities.Result{}, nil
	}
	_, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"a": true, "b": true, "p": false, "c": false}, before)
}

func TestBeforeItsPivotIsDoneATaskUnwindsAll(t *testing.T) {
	for _, at := range []string{"b", "p"} {
		w := &world{steps: chain("a", "b", "p"), do: failing(at)}
		stepByID(w.steps, "p").Pivot = true
		report, err := newRun(t, w).report()
		require.Error(t, err)
		want := []string{"do a", "do b", "do p", "undo p", "undo b", "undo a"}
		if at == "b" {
			want = []string{"do a", "do b", "undo b", "undo a"}
		}
		require.Equal(t, want, w.calls)
		require.Equal(t, compensations.Unwound, report.Status)
		require.Empty(t, report.Notes)
	}
}

// slow is registered before the pivot and ends after it: if it is done, it is committed; if it
// failed, it is undone.
func TestAStepThatBeganBeforeThePivotAndEndsAfterIt(t *testing.T) {
	for name, ends := range map[string]error{"done": nil, "failed": errNo} {
		t.Run(name, func(t *testing.T) {
			w := &world{steps: chain("a", "slow", "p", "d")}
			stepByID(w.steps, "p").Needs, stepByID(w.steps, "p").Pivot = []string{"a"}, true
			stepByID(w.steps, "d").Needs = []string{"slow", "p"}
			finishLate(w.steps, "slow")
			w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
				switch {
				case s == "slow" && n == 1:
					return activities.Result{}, errAgain
				case s == "slow":
					return activities.Result{}, ends
				case s == "d":
					return activities.Result{}, errNo
				}
				return activities.Result{}, nil
			}
			report, err := newRun(t, w).report()
			require.Error(t, err)
			calls := sortRange(w.calls, 1, 3)
			require.Equal(t, compensations.Partly, report.Status)
			if ends == nil {
				require.Equal(t, []string{"do a", "do p", "do slow", "do slow", "do d", "undo d"}, calls)
				require.Equal(t, []string{"not undone, up to the pivot: 3 steps"}, report.Notes)
			} else {
				require.Equal(t, []string{"do a", "do p", "do slow", "do slow", "undo slow"}, calls)
				require.Equal(t, []string{"not undone, up to the pivot: 2 steps"}, report.Notes)
			}
		})
	}
}

func TestAFailedStepBeforeThePivotIsUndone(t *testing.T) {
	w := &world{steps: chain("a", "b", "p", "d"), do: failFirstCalls(map[string]int{"b": 9, "d": 9})}
	onFailure(w.steps, "b", task.FailContinue)
	stepByID(w.steps, "p").Pivot = true
	report, err := newRun(t, w).report()
	require.Error(t, err)
	require.Equal(t, []string{"do a", "do b", "do p", "do d", "undo d", "undo b"}, w.calls,
		"nothing that is done is unwound past a pivot")
	require.Equal(t, compensations.Partly, report.Status)
}

// A person has skipped the undo of b: the report says so, whichever run reaches the pivot.
func TestAPivotDoesNotCommitASkippedUndo(t *testing.T) {
	for _, in := range []func(int, *run){func(int, *run) {}, suggestAlways} {
		w := &world{steps: chain("a", "b", "d", "x", "p"), undo: parkFirstUndo("b")}
		stepByID(w.steps, "d").Needs = []string{"a"}
		stepByID(w.steps, "p").Pivot = true
		onFailure(w.steps, "b", task.FailRollbackStep)
		finishLate(w.steps, "d") // so that b has failed before x begins
		w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
			switch {
			case s == "d" && n == 1:
				return activities.Result{}, errAgain
			case s == "b":
				return activities.Result{}, errNo
			}
			return activities.Result{}, nil
		}
		l := &chained{T: t, world: w, in: func(n int, r *run) {
			in(n, r)
			r.runAfter(10*time.Minute, func() {
				if s := r.state(); s.Report != nil && parked(s) {
					r.resolveParked(compensations.Skip)
				}
			})
		}}
		report, err := l.report()
		require.NoError(t, err)
		require.Equal(t, compensations.Partly, report.Status)
		require.Contains(t, outcomes(report), "b skipped unknown")
		require.Contains(t, report.Notes, "not undone, up to the pivot: 4 steps")
	}
}
