package workflows_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// A part of a task is undone over several runs; the rest waits until all of it is undone.

// chainWithSavepoint is a chain in which d unwinds to b, once.
func chainWithSavepoint() *world {
	w := &world{steps: chain("a", "b", "c", "d"), do: failFirstCalls(map[string]int{"d": 1})}
	stepByID(w.steps, "b").Savepoint = "sp"
	unwindTo(w.steps, "d", "sp", 1)
	return w
}

func TestAnUnwindingToASavepointIsPausedAtEachUndo(t *testing.T) {
	l := &chained{T: t, world: chainWithSavepoint(), in: suggestAlways}
	var parts []string
	l.pass = func(c *protocol.Carry) {
		for _, f := range c.Rollbacks {
			parts = append(parts, fmt.Sprintf("%s %s from %d: %v", f.Step, f.Cause.Kind, f.From, c.Saga.Unfinished))
		}
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, []string{"d failed from 2: [2 3 4]", "d failed from 2: [2 3]", "d failed from 2: [2]"}, parts)
	require.Greater(t, l.runs, 8)
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo b", "do b", "do c", "do d"},
		l.world.calls)
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, []string{"unwound to savepoint sp, 1 of 1: CheckFailed: no"}, notesOf(report, "d"))
	require.Equal(t, 3, report.Outcomes["restored"])
}

func TestARollbackOfSeveralStepsIsPausedAtEachUndo(t *testing.T) {
	// b and d, which are independent, both fail and are rolled back; c and e need them, f needs
	// nothing.
	w := twoBranches("d")
	w.steps = append(w.steps, chain("f")...)
	stepByID(w.steps, "f").Needs = []string{"a"}
	stepByID(w.steps, "d").Retry = task.Retry{Attempts: 1}
	onFailure(w.steps, "d", task.FailRollbackStep)
	w.do = failFirstCalls(map[string]int{"b": 9, "d": 9})
	l := &chained{T: t, world: w}
	l.in = func(_ int, r *run) { suggestContinueAsNewFrom(r, func(calls int) bool { return calls > 4 }) }
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs, "the first undo makes the run long")
	require.Equal(t, []string{"do a", "do b", "do d", "do f", "undo b", "undo d"},
		sortRange(sortRange(w.calls, 1, 4), 4, 6))
	require.Equal(t, compensations.Partly, report.Status)
	require.Equal(t, []string{"rolled back, as its on_failure says: CheckFailed: no"}, notesOf(report, "b"))
	require.Equal(t, []string{"rolled back, as its on_failure says: CheckFailed: no"}, notesOf(report, "d"))
	require.Equal(t, []string{"left out: it needs b"}, notesOf(report, "c"))
	require.Equal(t, []string{"left out: it needs d"}, notesOf(report, "e"))
}

// Unwinding for the first of two steps also restarts the second one. Then there is nothing left to
// roll back for it, not even in the next run.
func TestAFailureRolledBackWithAnotherIsNotCarriedOver(t *testing.T) {
	w := &world{steps: chain("a", "b", "x", "y")}
	stepByID(w.steps, "y").Needs = []string{"b"}
	stepByID(w.steps, "b").Savepoint = "sp"
	unwindTo(w.steps, "x", "sp", 1)
	onFailure(w.steps, "y", task.FailRollbackStep)
	w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		switch {
		case s == "y" && n == 1:
			return activities.Result{}, errAgain // so that it fails after x
		case s == "x" && n == 1, s == "y" && n == 2:
			return activities.Result{}, errNo
		}
		return activities.Result{}, nil
	}
	finishLate(w.steps, "y")
	l := &chained{T: t, world: w}
	l.in = func(_ int, r *run) { suggestContinueAsNewFrom(r, func(calls int) bool { return calls == 6 }) } // undo y
	var parts []string
	l.pass = func(c *protocol.Carry) {
		for _, f := range c.Rollbacks {
			parts = append(parts, f.Step)
		}
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{"x"}, parts)
	require.Equal(t, []string{
		"do a", "do b", "do x", "do y", "do y", "undo y", "undo x", "undo b", "do b", "do x", "do y",
	}, sortRange(sortRange(w.calls, 2, 4), 9, 11))
	require.Equal(t, compensations.Committed, report.Status)
}

// parkedInAPart pauses chainWithSavepoint when the undo of c is parked; second continues in the
// second run.
func parkedInAPart(t *testing.T, second func(r *run)) (*chained, *alertLog) {
	w := chainWithSavepoint()
	w.undo = parkFirstUndo("c")
	var alerts alertLog
	l := &chained{T: t, world: w}
	l.in = func(n int, r *run) {
		alerts.keepThoseOf(r)
		switch n {
		case 1:
			suggestContinueAsNewFrom(r, func(calls int) bool { return calls == 6 }) // undo c
		case 2:
			second(r)
		}
	}
	return l, &alerts
}

func TestAParkInAPausedRollbackIsResolvedInTheNextRun(t *testing.T) {
	var l *chained
	var alerts *alertLog
	l, alerts = parkedInAPart(t, func(r *run) {
		r.runAfter(time.Minute, func() {
			require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c"}, l.world.calls,
				"nothing is done meanwhile")
			s := r.state()
			require.Equal(t, protocol.Forward, s.Phase)
			require.Contains(t, outcomes(*s.Report), "c parked unknown")
			require.Equal(t, "d", s.Report.Cause.Step, "why it is undone")
			r.env.SignalWorkflow(compensations.SignalResolve,
				compensations.Resolution{Step: "c", Digest: alerts.sent()[0].Digest, Do: compensations.Retry, Who: "eve"})
		})
	})
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{
		"do a", "do b", "do c", "do d", "undo d", "undo c", "undo c", "undo b", "do b", "do c", "do d",
	}, l.world.calls)
	require.Len(t, alerts.sent(), 1, "somebody is told once")
	require.Equal(t, compensations.Committed, report.Status)
	require.Contains(t, notesOf(report, "c"), "retry by eve")
}

func TestASkipInAPausedRollbackEndsTheTask(t *testing.T) {
	l, _ := parkedInAPart(t, func(r *run) {
		r.runAfter(time.Minute, func() { r.resolveParked(compensations.Skip) })
		r.runAfter(2*time.Minute, func() { r.resolveParked(compensations.Accept) }) // b, which c builds on
	})
	report, err := l.report()
	l.last.failsAs(err, protocol.TaskFailed)
	require.Contains(t, report.Cause.Text, "step c is not undone, so nothing is done again from savepoint sp on")
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo a"}, l.world.calls)
	require.Equal(t, compensations.Remains, report.Status)
}

func TestATaskIsCanceledOrEndsWhileARollbackIsPaused(t *testing.T) {
	for _, kind := range []compensations.CauseKind{compensations.Canceled, compensations.Deadline} {
		t.Run(string(kind), func(t *testing.T) {
			l, _ := parkedInAPart(t, func(r *run) {
				if kind == compensations.Canceled {
					r.runAfter(time.Minute, r.env.CancelWorkflow)
				}
				r.runAfter(2*time.Minute, func() {
					require.Equal(t, protocol.Unwinding, r.state().Phase)
					r.resolveParked(compensations.Retry)
				})
			})
			if kind == compensations.Deadline {
				l.world.deadline = time.Minute
			}
			report, err := l.report()
			require.Error(t, err)
			require.Equal(t, 2, l.runs)
			require.Equal(t, kind, report.Cause.Kind)
			require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo c", "undo b", "undo a"},
				l.world.calls)
			require.Equal(t, compensations.Unwound, report.Status)
		})
	}
}

// The cancellation arrives at the moment in which the run would end: the next run would not know
// about it.
func TestACancellationDuringAPausedRollbackIsNotLost(t *testing.T) {
	w := chainWithSavepoint()
	l := &chained{T: t, world: w}
	w.undo = func(step string, _ int, _ activities.Decision) (activities.Undone, error) {
		if step == "d" {
			l.last.env.CancelWorkflow()
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l.in = func(_ int, r *run) { suggestContinueAsNewFrom(r, func(calls int) bool { return calls == 5 }) }
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, compensations.Canceled, report.Cause.Kind)
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo b", "undo a"}, w.calls)
}

func TestAGateGoesOnWaitingBesideAPausedRollback(t *testing.T) {
	for _, approved := range []bool{true, false} {
		// g waits at its gate; b unwinds to itself, and its undo is parked when the run ends.
		w := &world{steps: addGate(chain("a", "g", "b"), "g", time.Hour), do: failFirstCalls(map[string]int{"b": 1}),
			undo: parkFirstUndo("b")}
		stepByID(w.steps, "b").Needs = []string{"a"}
		stepByID(w.steps, "b").Savepoint = "sp"
		unwindTo(w.steps, "b", "sp", 1)
		l := &chained{T: t, world: w}
		var first protocol.GateView
		l.in = func(n int, r *run) {
			if n == 1 {
				r.runAfter(10*time.Minute, func() {
					first = r.state().Gates[0]
					r.env.SetContinueAsNewSuggested(true)
					r.env.SignalWorkflow(compensations.SignalResolve, "anything wakes it")
				})
				return
			}
			r.runAfter(10*time.Minute, func() {
				g := r.state().Gates
				require.Len(t, g, 1, "it is shown")
				require.Equal(t, first.Digest, g[0].Digest)
				if approved {
					r.decide(protocol.SignalApprove)
				}
			})
			r.runAfter(2*time.Hour, func() {
				require.Empty(t, r.state().Gates, "its limit passes also while something is rolled back")
				require.NotContains(t, w.calls, "do g", "it runs when what is rolled back is")
				r.resolveParked(compensations.Retry)
			})
		}
		report, err := l.report()
		require.Equal(t, 2, l.runs)
		calls := sortRange(w.calls, 1, 3)
		require.Equal(t, []string{"do a", "do b", "plan g", "undo b"}, calls[:4])
		if !approved {
			l.last.failsAs(err, protocol.TaskRejected)
			require.NotContains(t, calls, "do g")
			require.Equal(t, compensations.Unwound, report.Status)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []string{"undo b", "do b", "do g"}, sortRange(calls[4:], 1, 3))
		require.Equal(t, compensations.Committed, report.Status)
		require.Equal(t, []string{"approved by ann: I looked"}, notesOf(report, "g"))
	}
}

// A decision that is there when the next run begins counts before the run resumes the part: a gate
// is opened first.
func TestADecisionBeforeAPausedRollbackResumesHolds(t *testing.T) {
	w := &world{steps: addGate(chain("a", "g", "b"), "g", time.Hour), do: failFirstCalls(map[string]int{"b": 1}),
		undo: parkFirstUndo("b")}
	stepByID(w.steps, "b").Needs = []string{"a"}
	stepByID(w.steps, "b").Savepoint = "sp"
	unwindTo(w.steps, "b", "sp", 1)
	var park compensations.StepReport
	l := &chained{T: t, world: w}
	l.in = func(n int, r *run) {
		if n == 1 {
			r.runAfter(10*time.Minute, func() {
				s := r.state().Report.Steps
				park = s[len(s)-1]
				r.env.SetContinueAsNewSuggested(true)
			})
			return
		}
		r.runAfter(0, func() {
			r.env.SignalWorkflow(compensations.SignalResolve,
				compensations.Resolution{Step: "b", Digest: park.Digest, Do: compensations.Retry, Who: "eve"})
		})
		r.runAfter(time.Minute, func() { r.decide(protocol.SignalApprove) })
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{"do a", "do b", "plan g", "undo b", "undo b", "do b", "do g"},
		sortRange(sortRange(w.calls, 1, 3), 5, 7))
	require.Equal(t, compensations.Committed, report.Status)
	require.Contains(t, notesOf(report, "b"), "retry by eve")
	require.Empty(t, report.Notes, "it is not ignored")
}

// On a real server, which itself decides when a history is long: with large parameters few steps
// are enough.
func TestALongRollbackSpansRunsAndIsRecoveredInTheMiddle(t *testing.T) {
	const n = 50
	steps := longChain(n)
	for i := range steps {
		steps[i].With = []byte(`{"data": "` + strings.Repeat("x", 60_000) + `"}`)
		steps[i].UndoParams = []string{"data"}
	}
	last, parks := steps[n-1].ID, steps[4].ID
	steps[2].Savepoint = "sp"
	unwindTo(steps, last, "sp", 1)
	do := func(_ context.Context, s string, times int, _ activities.Forward) (activities.Result, error) {
		if s == last && times == 1 {
			return activities.Result{}, activities.Errorf(activities.CheckFailed, "no")
		}
		return activities.Result{}, nil
	}
	for _, terminated := range []bool{false, true} {
		t.Run(fmt.Sprint("terminated ", terminated), func(t *testing.T) {
			l := startLive(t, &world{steps: slices.Clone(steps), do: do, undo: parkFirstUndo(parks)})
			l.awaitCalls("undo "+parks, 1)
			l.awaitState(parked)
			forward := 0
			for _, run := range l.runsOf(l.run.GetID()) {
				for _, e := range l.events(t.Context(), run) {
					if e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == "fake.do" {
						forward++
						break
					}
				}
			}
			require.Greater(t, len(l.runsOf(l.run.GetID())), forward, "it was paused while it was undoing")
			require.Len(t, l.calls(), n+n-4, "it goes no further")
			if terminated {
				l.terminate(l.run.GetID())
				report := l.awaitReport(l.recover())
				require.Equal(t, compensations.Unwound, report.Status)
				require.Equal(t, n, report.Outcomes["restored"])
				require.Len(t, l.calls(), n+n+1, "each is undone once, the parked one twice")
				return
			}
			l.resolve(compensations.Retry)
			report, err := l.report()
			require.NoError(t, err)
			require.Equal(t, compensations.Committed, report.Status)
			require.Equal(t, n-2, report.Outcomes["restored"])
			calls := l.calls()
			require.Len(t, calls, n+(n-2)+1+(n-2))
			require.Equal(t, "do "+steps[2].ID, calls[n+(n-2)+1], "it goes on when all is undone")
		})
	}
}
