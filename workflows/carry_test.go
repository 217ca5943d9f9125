package workflows_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// chained is a task that continues as new: every run of its chain has its own environment, and all
// share one world and one clock.
type chained struct {
	*testing.T
	world *world
	// document starts it; if it is empty, that of a task.
	document string
	// in prepares the n-th run, counted from 1.
	in func(n int, r *run)
	// pass changes what a run hands to the next one.
	pass func(*protocol.Carry)
	last *run
	runs int
}

// report runs the chain to its end.
func (l *chained) report() (compensations.Report, error) {
	var carry *protocol.Carry
	var now time.Time
	for l.runs = 1; ; l.runs++ {
		require.Less(l, l.runs, 100, "it continues as new for ever")
		r := newRun(l.T, l.world)
		l.last = r
		if l.runs > 1 {
			r.env.SetStartTime(now)
			r.env.SetContinuedExecutionRunID("the run before")
		}
		l.in(l.runs, r)
		r.env.ExecuteWorkflow(protocol.AgentTaskType, json.RawMessage(cmp.Or(l.document, `{"name": "release"}`)), carry)
		now = r.env.Now()
		var next *workflow.ContinueAsNewError
		if !errors.As(r.env.GetWorkflowError(), &next) {
			return r.ended()
		}
		var doc json.RawMessage
		carry = nil
		require.NoError(l, converter.GetDefaultDataConverter().FromPayloads(next.Input, &doc, &carry))
		if l.pass != nil {
			l.pass(carry)
		}
	}
}

// suggestContinueAsNewFrom has the server suggest continuing as new once is holds for the number of
// calls to the world. It does so in workflow time, so that every run of the test is the same.
func suggestContinueAsNewFrom(r *run, is func(calls int) bool) {
	r.env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
		if strings.HasPrefix(info.ActivityType.Name, "fake.") {
			if r.world.begun++; is(r.world.begun) {
				r.env.SetContinueAsNewSuggested(true)
			}
		}
	})
}

// suggestAlways suggests continuing as new from the first call of every run on.
func suggestAlways(_ int, r *run) { suggestContinueAsNewFrom(r, func(int) bool { return true }) }

func TestATaskThatContinuesAfterEachStepDoesAndUndoesThemAll(t *testing.T) {
	steps := func() []task.Step {
		steps := chain("a", "b", "c", "d", "e")
		stepByID(steps, "d").With = []byte(`{"from": "${{ steps.a.outputs.id }}"}`)
		return steps
	}
	do := func(fails string) func(context.Context, string, int, activities.Forward) (activities.Result, error) {
		return func(_ context.Context, s string, _ int, f activities.Forward) (activities.Result, error) {
			if s == "d" && string(f.Step.With) != `{"from":"out of a"}` {
				return activities.Result{}, fmt.Errorf("with is %s", f.Step.With)
			}
			if s == fails {
				return activities.Result{}, errNo
			}
			return activities.Result{Outputs: map[string]any{"id": "out of " + s}}, nil
		}
	}
	l := &chained{T: t, world: &world{steps: steps(), do: do("")}, in: suggestAlways}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 5, l.runs)
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "do e"}, l.world.calls)
	require.Equal(t, compensations.Committed, report.Status)

	done := map[string]bool{}
	l = &chained{T: t, world: &world{steps: steps(), do: do("e")}, in: suggestAlways}
	l.world.undo = func(step string, _ int, d activities.Decision) (activities.Undone, error) {
		done[step] = d.Done
		return activities.Undone{Outcome: activities.Restored, Observed: "as before"}, nil
	}
	report, err = l.report()
	l.last.failsAs(err, protocol.TaskFailed)
	require.Equal(t, map[string]bool{"a": true, "b": true, "c": true, "d": true, "e": false}, done,
		"each undo is told whether the history knows the forward as done")
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "do e", "undo e", "undo d", "undo c", "undo b", "undo a"},
		l.world.calls)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, 5, report.Outcomes["restored"])
	require.Equal(t, "e", report.Cause.Step)
	require.Greater(t, l.runs, 8)
}

func TestATaskUnwindsToASavepointOfAnEarlierRun(t *testing.T) {
	w := &world{steps: chain("a", "b", "c", "d"), do: failFirstCalls(map[string]int{"d": 1})}
	stepByID(w.steps, "b").Savepoint = "sp"
	stepByID(w.steps, "c").With = []byte(`{"from": "${{ steps.a.outputs.id }}"}`)
	unwindTo(w.steps, "d", "sp", 1)
	do := w.do
	w.do = func(ctx context.Context, s string, n int, f activities.Forward) (activities.Result, error) {
		_, err := do(ctx, s, n, f)
		return activities.Result{Outputs: map[string]any{"id": s}}, err
	}
	l := &chained{T: t, world: w, in: suggestAlways}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo b", "do b", "do c", "do d"},
		w.calls)
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, []string{"unwound to savepoint sp, 1 of 1: CheckFailed: no"}, notesOf(report, "d"))
}

func TestARepeatedStepMayUnwindFurther(t *testing.T) {
	// d unwinds to c; c, repeated, fails and unwinds to b, which an earlier run has done.
	steps := func() *world {
		w := &world{steps: chain("a", "b", "c", "d")}
		stepByID(w.steps, "b").Savepoint, stepByID(w.steps, "c").Savepoint = "first", "second"
		unwindTo(w.steps, "c", "first", 1)
		unwindTo(w.steps, "d", "second", 1)
		w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
			if s == "d" && n == 1 || s == "c" && n == 2 {
				return activities.Result{}, errNo
			}
			return activities.Result{}, nil
		}
		return w
	}
	l := &chained{T: t, world: steps(), in: suggestAlways}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, []string{
		"do a", "do b", "do c", "do d", "undo d", "undo c", "do c", "undo c", "undo b", "do b", "do c", "do d",
	}, l.world.calls)
	require.Equal(t, compensations.Committed, report.Status)
}

func TestTheErrorOfAStepInAnEarlierRunIsReported(t *testing.T) {
	w := &world{steps: chain("a", "b", "c", "d"), do: failing("b")}
	stepByID(w.steps, "a").Savepoint = "sp"
	onFailure(w.steps, "b", task.FailContinue)
	unwindTo(w.steps, "d", "sp", 1) // so that b may be done again
	l := &chained{T: t, world: w, in: suggestAlways}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 4, l.runs)
	require.Equal(t, compensations.Partly, report.Status)
	i := slices.IndexFunc(report.Steps, func(s compensations.StepReport) bool { return s.Step == "b" })
	require.Equal(t, "CheckFailed: no", report.Steps[i].Summary)
}

func TestAPivotOfAnEarlierRunStillCounts(t *testing.T) {
	w := &world{steps: chain("a", "p", "c", "d"), do: failing("d")}
	stepByID(w.steps, "p").Pivot = true
	l := &chained{T: t, world: w, in: suggestAlways}
	report, err := l.report()
	l.last.failsAs(err, protocol.TaskFailed)
	require.Equal(t, []string{"do a", "do p", "do c", "do d", "undo d", "undo c"}, w.calls)
	require.Equal(t, compensations.Partly, report.Status)
	require.Contains(t, report.Notes, "not undone, up to the pivot: 2 steps")
}

func TestTheDeadlineCountsFromTheFirstRun(t *testing.T) {
	w := &world{steps: addGate(addGate(chain("a", "b", "c", "d"), "b", 24*time.Hour), "d", 24*time.Hour),
		deadline: 2 * time.Hour}
	var began time.Time
	l := &chained{T: t, world: w}
	l.in = func(n int, r *run) {
		if n == 1 {
			r.runAfter(90*time.Minute, func() {
				began = r.env.Now().Add(-90 * time.Minute)
				r.decide(protocol.SignalApprove)
			})
			r.runAfter(90*time.Minute+time.Millisecond, func() { r.env.SetContinueAsNewSuggested(true) })
		}
	}
	report, err := l.report()
	l.last.failsAs(err, protocol.TaskDeadline)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{"do a", "plan b", "do b", "do c", "plan d", "undo d", "undo c", "undo b", "undo a"}, w.calls)
	require.WithinDuration(t, began.Add(2*time.Hour), l.last.env.Now(), time.Second)
	require.InDelta(t, 2*time.Hour, report.Lasted, float64(time.Second), "of all runs")
}

func TestNotesAndIgnoredSignalsAreKeptAcrossRuns(t *testing.T) {
	w := gateBesideWork()
	stepByID(w.steps, "a").Gate = task.Gate{Mode: task.GateNone}
	l := &chained{T: t, world: w}
	l.in = func(n int, r *run) {
		r.runAfter(30*time.Second, func() {
			r.env.SignalWorkflow(protocol.SignalReject, protocol.Decision{Step: fmt.Sprint("run ", n)})
			r.env.SetContinueAsNewSuggested(n == 1)
			if n == 2 {
				r.decide(protocol.SignalApprove)
			}
		})
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{
		"step a runs without its gate, unless its change must always be asked about: the task file says gate: none",
		`ignored signal: reject: there is no step "run 1"`, `ignored signal: reject: there is no step "run 2"`,
	}, report.Notes)
}

func TestALongHistoryAloneContinuesAsNew(t *testing.T) {
	l := &chained{T: t, world: &world{steps: chain("a", "b")}}
	l.in = func(n int, r *run) {
		if n == 1 {
			r.env.SetOnActivityStartedListener(func(*activity.Info, context.Context,
				converter.EncodedValues) {
				r.env.SetCurrentHistoryLength(30_000)
			})
		}
	}
	_, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{"do a", "do b"}, l.world.calls)
}

// randomTask makes a random sequential task, for which only one order of calls is possible.
func randomTask(r *mathrand.Rand) *world {
	var ids []string
	for i := range 3 + r.IntN(6) {
		ids = append(ids, fmt.Sprint("s", i))
	}
	steps := chain(ids...)
	fails := map[string]int{}
	for i := range steps {
		s := &steps[i]
		if r.IntN(3) == 0 {
			addGate(steps, s.ID, time.Hour)
		}
		if r.IntN(3) == 0 {
			s.Savepoint = "at-" + s.ID
		}
		s.Pivot = r.IntN(8) == 0
		fails[s.ID] = []int{0, 0, 0, 0, 1, 2, 9}[r.IntN(7)]
		switch to := steps[r.IntN(i+1)].Savepoint; {
		case to != "" && r.IntN(2) == 0:
			s.OnFailure = task.OnFailure{Do: task.FailUnwindTo, To: to, Times: 1 + r.IntN(2)}
		case r.IntN(3) == 0:
			s.OnFailure.Do = task.FailContinue
		case r.IntN(4) == 0:
			s.OnFailure.Do = task.FailRollbackStep
		case r.IntN(2) == 0:
			s.OnFailure.Do = task.FailAsk
		}
	}
	return &world{steps: steps, do: failFirstCalls(fails)}
}

// summarizeReport returns what a report says about the notable steps; of the others, only those of
// the last run are listed.
func summarizeReport(r compensations.Report) []string {
	all := []string{string(r.Status), fmt.Sprint(r.Outcomes)}
	if r.Cause != nil {
		all = append(all, fmt.Sprintf("%s %s: %s", r.Cause.Kind, r.Cause.Step, r.Cause.Text))
	}
	for _, s := range r.Steps {
		if s.State != string(protocol.Done) && s.State != string(protocol.NotStarted) || len(s.Notes) > 0 {
			all = append(all, fmt.Sprintf("%s %s %s %q", s.Step, s.State, s.Outcome, s.Notes))
		}
	}
	return append(all, r.Notes...)
}

// Wherever a task continues as new, the calls, their order and the report are the same as if it had
// not.
func TestContinuingAsNewChangesNothing(t *testing.T) {
	approving := func(r *run) {
		for i := range 60 {
			r.runAfter(time.Duration(i+1)*time.Minute, func() {
				if len(r.state().Gates) > 0 {
					r.decide(protocol.SignalApprove)
				}
				for _, p := range r.state().Parks { // the same decision in whatever run
					do := p.Ways[(len(p.Step)+p.Try)%len(p.Ways)]
					r.env.SignalWorkflow(compensations.SignalResolve,
						compensations.Resolution{Step: p.Step, Digest: p.Digest, Do: do, Who: "ann"})
				}
			})
		}
	}
	continued := 0
	for seed := range uint64(150) {
		one := &chained{T: t, world: randomTask(mathrand.New(mathrand.NewPCG(seed, 0))),
			in: func(_ int, r *run) { approving(r) }}
		want, wantErr := one.report()
		require.Equal(t, 1, one.runs)

		points := mathrand.New(mathrand.NewPCG(seed, 1))
		at := map[int]bool{}
		for i := range len(one.world.calls) {
			at[i+1] = points.IntN(3) == 0
		}
		many := &chained{T: t, world: randomTask(mathrand.New(mathrand.NewPCG(seed, 0)))}
		many.in = func(_ int, r *run) {
			approving(r)
			suggestContinueAsNewFrom(r, func(calls int) bool { return at[calls] })
		}
		got, gotErr := many.report()
		about := fmt.Sprintf("seed %d, %d runs, %v", seed, many.runs, at)
		require.Equal(t, one.world.calls, many.world.calls, about)
		require.Equal(t, summarizeReport(want), summarizeReport(got), about)
		require.Equal(t, wantErr == nil, gotErr == nil, about)
		continued += many.runs - 1
	}
	require.Greater(t, continued, 150)
}
