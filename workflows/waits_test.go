package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// waitsFor is a step that says for an hour that it is too early, and then does something.
func waitsFor(r *run, step string) func(context.Context, string, int, activities.Forward) (activities.Result, error) {
	began := r.env.Now()
	return func(_ context.Context, s string, _ int, _ activities.Forward) (activities.Result, error) {
		if left := began.Add(time.Hour).Sub(r.env.Now()); s == step && left > 0 {
			return activities.Result{}, temporal.NewApplicationErrorWithOptions("waiting until later", string(activities.NotYet),
				temporal.ApplicationErrorOptions{NonRetryable: true, NextRetryDelay: left})
		}
		return activities.Result{Summary: "did " + s}, nil
	}
}

func TestAStepThatIsTooEarlyWaitsWithoutAnAttempt(t *testing.T) {
	w := &world{steps: chain("a", "b")}
	w.steps[0].Retry.Attempts = 1
	r := newRun(t, w)
	w.do = waitsFor(r, "a")
	began := r.env.Now()
	r.runAfter(30*time.Minute, func() {
		v := r.state().Steps[0]
		require.Equal(t, protocol.Running, v.State)
		require.Equal(t, "waiting until later", v.Waiting)
	})
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, []string{"do a", "do a", "do b"}, w.calls)
	require.InDelta(t, time.Hour, r.env.Now().Sub(began), float64(time.Minute))
	require.Empty(t, r.state().Steps[0].Waiting)
}

func TestACancelCutsAWaitShort(t *testing.T) {
	w := &world{steps: chain("a", "b", "c")}
	r := newRun(t, w)
	w.do = waitsFor(r, "b")
	began := r.env.Now()
	r.runAfter(time.Minute, r.env.CancelWorkflow)
	report, err := r.report()
	require.Error(t, err)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"do a", "do b", "undo b", "undo a"}, w.calls)
	require.Less(t, r.env.Now().Sub(began), 10*time.Minute)
}

// A rollback of a part of the task does not wait until a wait is over, and the wait goes on after it.
func TestARollbackDoesNotWaitForAWait(t *testing.T) {
	w := &world{steps: chain("a", "b", "c")}
	for i := range w.steps {
		w.steps[i].Needs = nil
	}
	stepByID(w.steps, "c").Needs = []string{"b"}
	onFailure(w.steps, "c", task.FailRollbackStep)
	r := newRun(t, w)
	wait := waitsFor(r, "a")
	began := r.env.Now()
	var undone time.Duration
	w.undo = func(string, int, activities.Decision) (activities.Undone, error) {
		undone = r.env.Now().Sub(began)
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	w.do = func(ctx context.Context, s string, n int, f activities.Forward) (activities.Result, error) {
		if s == "c" {
			return activities.Result{}, errNo
		}
		return wait(ctx, s, n, f)
	}
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, compensations.Partly, report.Status)
	require.Less(t, undone, 10*time.Minute)
	require.Contains(t, outcomes(report), "a done ")
	require.GreaterOrEqual(t, r.env.Now().Sub(began), time.Hour)
}
