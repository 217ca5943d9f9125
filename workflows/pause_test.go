package workflows_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// A part of a task is undone over several runs: the rest waits until all of it is, and only then it goes on.

// backward is a chain of which d goes back to b, once.
func backward() *world {
	w := &world{steps: chain("a", "b", "c", "d"), do: failingTimes(map[string]int{"d": 1})}
	of(w.steps, "b").Savepoint = "sp"
	backTo(w.steps, "d", "sp", 1)
	return w
}

func TestAnUnwindingToASavepointIsPausedAtEachUndo(t *testing.T) {
	l := &chained{T: t, world: backward(), in: always}
	var parts []string
	l.pass = func(c *workflows.Carry) {
		for _, f := range c.Rollbacks {
			parts = append(parts, fmt.Sprintf("%s %s from %d: %v", f.Step, f.Cause.Kind, f.From, c.Saga.Unfinished))
		}
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, []string{"d failed from 2: [2 3 4]", "d failed from 2: [2 3]", "d failed from 2: [2]"}, parts)
	require.Greater(t, l.runs, 8)
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo b", "do b", "do c", "do d"}, l.world.calls)
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, []string{"unwound to savepoint sp, 1 of 1: CheckFailed: no"}, notesOf(report, "d"))
	require.Equal(t, 3, report.Outcomes["restored"])
}

func TestARollbackOfSeveralStepsIsPausedAtEachUndo(t *testing.T) {
	// b and d, beside each other, both fail and are rolled back; e and c need them, f nothing.
	w := branches("d")
	w.steps = append(w.steps, chain("f")...)
	of(w.steps, "f").Needs = []string{"a"}
	of(w.steps, "d").Retry = task.Retry{Attempts: 1}
	onFailure(w.steps, "d", task.FailRollbackStep)
	w.do = failingTimes(map[string]int{"b": 9, "d": 9})
	l := &chained{T: t, world: w}
	l.in = func(_ int, r *run) { longFrom(r, func(calls int) bool { return calls > 4 }) }
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs, "the first undo makes the run long")
	require.Equal(t, []string{"do a", "do b", "do d", "do f", "undo b", "undo d"}, sortedAt(sortedAt(w.calls, 1, 4), 4, 6))
	require.Equal(t, compensations.Partly, report.Status)
	require.Equal(t, []string{"rolled back: on_failure is rollback_step"}, notesOf(report, "b"))
	require.Equal(t, []string{"rolled back: on_failure is rollback_step"}, notesOf(report, "d"))
	require.Equal(t, []string{"left out: it needs b"}, notesOf(report, "c"))
	require.Equal(t, []string{"left out: it needs d"}, notesOf(report, "e"))
}

// What the first of two steps takes back also puts the second one back to its start: nothing is left to roll back then, also
// not in the next run.
func TestAFailureThatWasRolledBackWithAnotherIsNotCarriedOver(t *testing.T) {
	w := &world{steps: chain("a", "b", "x", "y")}
	of(w.steps, "y").Needs = []string{"b"}
	of(w.steps, "b").Savepoint = "sp"
	backTo(w.steps, "x", "sp", 1)
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
	late(w.steps, "y")
	l := &chained{T: t, world: w}
	l.in = func(_ int, r *run) { longFrom(r, func(calls int) bool { return calls == 6 }) } // undo y
	var parts []string
	l.pass = func(c *workflows.Carry) {
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
	}, sortedAt(sortedAt(w.calls, 2, 4), 9, 11))
	require.Equal(t, compensations.Committed, report.Status)
}

// parkedInAPart pauses backward where the undo of c is parked, and lets the second run see to it.
func parkedInAPart(t *testing.T, second func(r *run)) (*chained, *[]workflows.Alert) {
	w := backward()
	w.undo = parksOnce("c")
	var alerts []workflows.Alert
	l := &chained{T: t, world: w}
	l.in = func(n int, r *run) {
		r.env.RegisterActivityWithOptions(func(_ context.Context, a []workflows.Alert) error {
			alerts = append(alerts, a...)
			return nil
		}, activity.RegisterOptions{Name: workflows.AlertActivity, DisableAlreadyRegisteredCheck: true})
		switch n {
		case 1:
			longFrom(r, func(calls int) bool { return calls == 6 }) // undo c
		case 2:
			second(r)
		}
	}
	return l, &alerts
}

func TestWhatIsParkedInAPartIsResolvedInTheNextRunAndTheTaskGoesOn(t *testing.T) {
	var l *chained
	var alerts *[]workflows.Alert
	l, alerts = parkedInAPart(t, func(r *run) {
		r.at(time.Minute, func() {
			require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c"}, l.world.calls, "nothing is done meanwhile")
			s := r.state()
			require.Equal(t, workflows.Forward, s.Phase)
			require.Contains(t, outcomes(*s.Report), "c parked unknown")
			require.Equal(t, "d", s.Report.Cause.Step, "why it is undone")
			r.env.SignalWorkflow(compensations.SignalResolve, compensations.Resolution{Step: "c", Digest: (*alerts)[0].Digest, Do: compensations.Retry, Who: "eve"})
		})
	})
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{
		"do a", "do b", "do c", "do d", "undo d", "undo c", "undo c", "undo b", "do b", "do c", "do d",
	}, l.world.calls)
	require.Len(t, *alerts, 1, "somebody is told once")
	require.Equal(t, compensations.Committed, report.Status)
	require.Contains(t, notesOf(report, "c"), "retry by eve")
}

func TestWhatIsSkippedInAPausedPartEndsTheTask(t *testing.T) {
	l, _ := parkedInAPart(t, func(r *run) {
		r.at(time.Minute, func() { r.resolveParked(compensations.Skip) })
		r.at(2*time.Minute, func() { r.resolveParked(compensations.Accept) }) // b, which c builds on
	})
	report, err := l.report()
	l.last.failsAs(err, workflows.TaskFailed)
	require.Contains(t, report.Cause.Text, "step c is not undone, so nothing is done again from savepoint sp on")
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo a"}, l.world.calls)
	require.Equal(t, compensations.Remains, report.Status)
}

func TestATaskIsCanceledOrEndsWhileAPartIsPaused(t *testing.T) {
	for _, kind := range []compensations.CauseKind{compensations.Canceled, compensations.Deadline} {
		t.Run(string(kind), func(t *testing.T) {
			l, _ := parkedInAPart(t, func(r *run) {
				if kind == compensations.Canceled {
					r.at(time.Minute, r.env.CancelWorkflow)
				}
				r.at(2*time.Minute, func() {
					require.Equal(t, workflows.Unwinding, r.state().Phase)
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
			require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo c", "undo b", "undo a"}, l.world.calls)
			require.Equal(t, compensations.Unwound, report.Status)
		})
	}
}

// The cancellation comes in the moment in which the run would end: the next one would know nothing of it.
func TestACancellationIsNotLostWhereAPartIsPaused(t *testing.T) {
	w := backward()
	l := &chained{T: t, world: w}
	w.undo = func(step string, _ int, _ activities.Decision) (activities.Undone, error) {
		if step == "d" {
			l.last.env.CancelWorkflow()
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l.in = func(_ int, r *run) { longFrom(r, func(calls int) bool { return calls == 5 }) }
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, compensations.Canceled, report.Cause.Kind)
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo b", "undo a"}, w.calls)
}

func TestAGateWaitsOnBesideAPartThatIsPaused(t *testing.T) {
	for _, approved := range []bool{true, false} {
		// g waits at its gate; b, beside it, goes back to itself, and its undo is parked when the run ends.
		w := &world{steps: gated(chain("a", "g", "b"), "g", time.Hour), do: failingTimes(map[string]int{"b": 1}), undo: parksOnce("b")}
		of(w.steps, "b").Needs = []string{"a"}
		of(w.steps, "b").Savepoint = "sp"
		backTo(w.steps, "b", "sp", 1)
		l := &chained{T: t, world: w}
		var first workflows.GateView
		l.in = func(n int, r *run) {
			if n == 1 {
				r.at(10*time.Minute, func() {
					first = r.state().Gates[0]
					r.env.SetContinueAsNewSuggested(true)
					r.env.SignalWorkflow(compensations.SignalResolve, "anything wakes it")
				})
				return
			}
			r.at(10*time.Minute, func() {
				g := r.state().Gates
				require.Len(t, g, 1, "it is shown")
				require.Equal(t, first.Digest, g[0].Digest)
				if approved {
					r.decide(workflows.SignalApprove)
				}
			})
			r.at(2*time.Hour, func() {
				require.Empty(t, r.state().Gates, "its limit passes also while something is rolled back")
				require.NotContains(t, w.calls, "do g", "it runs when what is rolled back is")
				r.resolveParked(compensations.Retry)
			})
		}
		report, err := l.report()
		require.Equal(t, 2, l.runs)
		calls := sortedAt(w.calls, 1, 3)
		require.Equal(t, []string{"do a", "do b", "plan g", "undo b"}, calls[:4])
		if !approved {
			l.last.failsAs(err, workflows.TaskRejected)
			require.NotContains(t, calls, "do g")
			require.Equal(t, compensations.Unwound, report.Status)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []string{"undo b", "do b", "do g"}, sortedAt(calls[4:], 1, 3))
		require.Equal(t, compensations.Committed, report.Status)
		require.Equal(t, []string{"approved by ann"}, notesOf(report, "g"))
	}
}

// A decision that is there when the next run begins comes before that goes on with the part: a gate is opened first.
func TestADecisionThatComesBeforeAPausedPartGoesOnHolds(t *testing.T) {
	w := &world{steps: gated(chain("a", "g", "b"), "g", time.Hour), do: failingTimes(map[string]int{"b": 1}), undo: parksOnce("b")}
	of(w.steps, "b").Needs = []string{"a"}
	of(w.steps, "b").Savepoint = "sp"
	backTo(w.steps, "b", "sp", 1)
	var park compensations.StepReport
	l := &chained{T: t, world: w}
	l.in = func(n int, r *run) {
		if n == 1 {
			r.at(10*time.Minute, func() {
				s := r.state().Report.Steps
				park = s[len(s)-1]
				r.env.SetContinueAsNewSuggested(true)
			})
			return
		}
		r.at(0, func() {
			r.env.SignalWorkflow(compensations.SignalResolve, compensations.Resolution{Step: "b", Digest: park.Digest, Do: compensations.Retry, Who: "eve"})
		})
		r.at(time.Minute, func() { r.decide(workflows.SignalApprove) })
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{"do a", "do b", "plan g", "undo b", "undo b", "do b", "do g"}, sortedAt(sortedAt(w.calls, 1, 3), 5, 7))
	require.Equal(t, compensations.Committed, report.Status)
	require.Contains(t, notesOf(report, "b"), "retry by eve")
	require.Empty(t, report.Notes, "it is not ignored")
}

// On a real server, which says itself when a history is long: large parameters make few steps enough.
func TestALongTaskUndoesAPartOverSeveralRunsAndIsRecoveredInTheMiddle(t *testing.T) {
	const n = 50
	steps := long(n)
	for i := range steps {
		steps[i].With = []byte(`{"data": "` + strings.Repeat("x", 60_000) + `"}`)
		steps[i].UndoParams = []string{"data"}
	}
	last, parks := steps[n-1].ID, steps[4].ID
	steps[2].Savepoint = "sp"
	backTo(steps, last, "sp", 1)
	do := func(_ context.Context, s string, times int, _ activities.Forward) (activities.Result, error) {
		if s == last && times == 1 {
			return activities.Result{}, activities.Errorf(activities.CheckFailed, "no")
		}
		return activities.Result{}, nil
	}
	for _, terminated := range []bool{false, true} {
		t.Run(fmt.Sprint("terminated ", terminated), func(t *testing.T) {
			l := startLive(t, &world{steps: slices.Clone(steps), do: do, undo: parksOnce(parks)})
			l.called("undo "+parks, 1)
			l.until(parked)
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
				report := l.ended(l.recover())
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
