package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// gateBesideWork has a gate, g, that is open while d and e run.
func gateBesideWork() *world {
	w := &world{steps: addGate(chain("a", "g", "d", "e"), "g", time.Hour)}
	stepByID(w.steps, "d").Needs = []string{"a"}
	finishLate(w.steps, "d")
	w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		if s == "d" && n == 1 {
			return activities.Result{}, errAgain
		}
		return activities.Result{}, nil
	}
	return w
}

func TestAGateStaysOpenAcrossRuns(t *testing.T) {
	var gate protocol.GateView
	l := &chained{T: t, world: gateBesideWork()}
	l.in = func(n int, r *run) {
		r.runAfter(30*time.Second, func() {
			g := r.state().Gates
			require.Len(t, g, 1)
			switch n {
			case 1:
				gate = g[0]
				r.env.SetContinueAsNewSuggested(true) // seen when d is done
			case 2:
				require.True(t, gate.Until.Equal(g[0].Until), "it waits no longer than it said")
				require.Equal(t, gate.Opening, g[0].Opening)
				r.env.SignalWorkflow(protocol.SignalApprove, protocol.Decision{Step: "g", Digest: gate.Digest, Who: "ann"})
			}
		})
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{"do a", "do d", "plan g", "do d", "do e", "do g"}, sortRange(l.world.calls, 1, 3))
	require.Equal(t, []string{"approved by ann"}, notesOf(report, "g"))
	require.Empty(t, report.Notes)
}

func TestAGatesLimitSpansAllRuns(t *testing.T) {
	l := &chained{T: t, world: gateBesideWork()}
	var began time.Time
	l.in = func(n int, r *run) {
		if n == 1 {
			r.runAfter(30*time.Second, func() {
				began = r.state().Gates[0].Since
				r.env.SetContinueAsNewSuggested(true)
			})
		}
	}
	_, err := l.report()
	l.last.failsAs(err, protocol.TaskRejected)
	require.ErrorContains(t, err, "nobody approved step g within 1h0m0s")
	require.Equal(t, 2, l.runs)
	require.WithinDuration(t, began.Add(time.Hour), l.last.env.Now(), time.Second)
}

func TestADecisionAtTheLastMomentHoldsInTheNextRun(t *testing.T) {
	for _, approved := range []bool{true, false} {
		l := &chained{T: t, world: gateBesideWork()}
		l.in = func(n int, r *run) {
			if n == 1 {
				r.runAfter(30*time.Second, func() { r.env.SetContinueAsNewSuggested(true) })
			}
		}
		l.pass = func(c *protocol.Carry) { // a signal that arrived with the last workflow task
			g := c.Steps["g"].Gate
			require.Nil(t, g.Decision)
			g.Decision, g.Approved = &protocol.Decision{Step: "g", Digest: g.View.Digest, Who: "ann"}, approved
			if approved {
				g.View.Assents = []activities.Assent{{Who: "ann"}}
			}
		}
		report, err := l.report()
		require.Equal(t, 2, l.runs)
		if approved {
			require.NoError(t, err)
			require.Contains(t, l.world.calls, "do g")
			require.Equal(t, []string{"approved by ann"}, notesOf(report, "g"))
			continue
		}
		l.last.failsAs(err, protocol.TaskRejected)
		require.NotContains(t, l.world.calls, "do g")
	}
}

func TestAnApprovedStepRunsInTheNextRun(t *testing.T) {
	w := gateBesideWork()
	w.steps = append(w.steps, chain("x")...)
	// so that it ends last in the run
	stepByID(w.steps, "x").Retry = task.Retry{Attempts: 2, Backoff: 2 * time.Minute, Max: 2 * time.Minute}
	do := w.do
	var want activities.Digest
	w.do = func(ctx context.Context, s string, n int, f activities.Forward) (activities.Result, error) {
		if s == "g" {
			want = f.Want
		}
		if s == "x" && n == 1 {
			return activities.Result{}, errAgain
		}
		return do(ctx, s, n, f)
	}
	l := &chained{T: t, world: w}
	l.in = func(n int, r *run) {
		if n == 1 {
			r.runAfter(30*time.Second, func() { r.env.SetContinueAsNewSuggested(true) })
			r.runAfter(90*time.Second, func() { r.decide(protocol.SignalApprove) })
		}
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, activities.Digest("sha256:change"), want)
	require.Equal(t, []string{"do d", "do x", "do e", "do g"}, sortRange(w.calls, 6, 8)[4:])
	require.Equal(t, 1, w.count["plan g"])
	require.Equal(t, []string{"approved by ann: I looked"}, notesOf(report, "g"))
}

// parkedAcrossRuns unwinds a, b and x, where b is parked in the first run, and lets the second one
// resolve it.
func parkedAcrossRuns(t *testing.T, in func(n int, r *run)) (*chained, *alertLog) {
	w := &world{steps: chain("a", "b", "x"), do: failing("x"), undo: parkFirstUndo("b")}
	stepByID(w.steps, "x").Needs = []string{"a"}
	addGate(w.steps, "x", time.Minute) // so that b comes first; nobody approves it
	var alerts alertLog
	return &chained{T: t, world: w, in: func(n int, r *run) {
		alerts.keepThoseOf(r)
		in(n, r)
	}}, &alerts
}

func TestAParkedUndoStaysParkedAcrossRuns(t *testing.T) {
	var l *chained
	var alerts *alertLog
	l, alerts = parkedAcrossRuns(t, func(n int, r *run) {
		if n == 1 {
			suggestContinueAsNewFrom(r, func(calls int) bool { return calls == 5 }) // do a, do b, plan x, undo x, undo b
			return
		}
		r.runAfter(time.Minute, func() {
			require.Equal(t, protocol.Unwinding, r.state().Phase)
			require.Len(t, alerts.parks(), 1, "somebody is told once")
			r.env.SignalWorkflow(compensations.SignalResolve,
				compensations.Resolution{Step: "b", Digest: alerts.parks()[0].Digest, Do: compensations.Retry, Who: "eve"})
		})
	})
	report, err := l.report()
	l.last.failsAs(err, protocol.TaskRejected)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{"do a", "do b", "plan x", "undo x", "undo b", "undo b", "undo a"},
		sortRange(l.world.calls, 1, 3))
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"retry by eve"}, notesOf(report, "b"))
	require.Len(t, alerts.parks(), 1)
}

func TestASkippedUndoStaysSkippedAcrossRuns(t *testing.T) {
	var l *chained
	l, _ = parkedAcrossRuns(t, func(n int, r *run) {
		switch n {
		case 1:
			r.runAfter(10*time.Minute, func() {
				// In the very workflow task that ends the run: after a zero delay no workflow code runs before
				// the signal.
				r.runAfter(0, func() { r.env.SetContinueAsNewSuggested(true) })
				r.resolveParked(compensations.Skip)
			})
		case 2:
			r.runAfter(time.Minute, func() {
				require.Equal(t, []string{"a parked ", "b skipped unknown"}, outcomes(*r.state().Report)[1:])
				r.resolveParked(compensations.Retry)
			})
		}
	})
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{"undo x", "undo b", "undo a"}, l.world.calls[3:])
	require.Equal(t, compensations.Remains, report.Status)
	require.ElementsMatch(t, []string{"x settled restored", "a settled restored", "b skipped unknown"}, outcomes(report))
}

func TestAnUndoGoesOnWaitingForItsHostInTheNextRun(t *testing.T) {
	w := &world{steps: chain("a", "b"), do: failing("b")}
	stepByID(w.steps, "b").Place.Host = "far"
	again := make(chan struct{})
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		switch {
		case step == "b" && n == 1: // what a server would return
			return activities.Undone{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
		case step == "b" && n == 2:
			close(again)
			<-never // no worker takes it
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := &chained{T: t, world: w}
	l.in = func(n int, r *run) {
		if n > 1 {
			return
		}
		var look func()
		look = func() {
			select {
			case <-again: // before that, the next run would be the one that waits for ever
			default:
				r.runAfter(10*time.Millisecond, look)
				return
			}
			require.Equal(t, "waiting for host far", r.state().Report.Steps[1].Reason)
			r.env.SetContinueAsNewSuggested(true)
			r.env.SignalWorkflow(compensations.SignalResolve, "anything wakes it")
		}
		r.runAfter(10*time.Millisecond, look)
	}
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{"do a", "do b", "undo b", "undo b", "undo b", "undo a"}, w.calls)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Len(t, report.Notes, 1)
	require.Contains(t, report.Notes[0], "ignored signal: resolve: the payload is not")
}
