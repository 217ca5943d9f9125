package workflows_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// chained is a task that continues as new: every run of its chain has its own environment, and all share one world and one clock.
type chained struct {
	*testing.T
	world *world
	// in prepares the n-th run, counted from 1.
	in func(n int, r *run)
	// pass changes what a run hands to the next one.
	pass func(*workflows.Carry)
	last *run
	runs int
}

// report runs the chain to its end.
func (l *chained) report() (compensations.Report, error) {
	var carry *workflows.Carry
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
		r.env.ExecuteWorkflow(workflows.AgentTaskType, json.RawMessage(`{"name": "release"}`), carry)
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

// suggestContinueAsNewFrom has the server suggest continuing as new once is holds for the number of calls to the world. It does so in
// workflow time, so that every run of the test is the same.
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
	l.last.failsAs(err, workflows.TaskFailed)
	require.Equal(t, map[string]bool{"a": true, "b": true, "c": true, "d": true, "e": false}, done, "each undo is told whether the history knows the forward as done")
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "do e", "undo e", "undo d", "undo c", "undo b", "undo a"}, l.world.calls)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, 5, report.Outcomes["restored"])
	require.Equal(t, "e", report.Cause.Step)
	require.Greater(t, l.runs, 8)
}

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
	var gate workflows.GateView
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
				r.env.SignalWorkflow(workflows.SignalApprove, workflows.Decision{Step: "g", Digest: gate.Digest, Who: "ann"})
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
	l.last.failsAs(err, workflows.TaskRejected)
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
		l.pass = func(c *workflows.Carry) { // a signal that arrived with the last workflow task
			g := c.Steps["g"].Gate
			require.Nil(t, g.Decision)
			g.Decision, g.Approved = &workflows.Decision{Step: "g", Digest: g.View.Digest, Who: "ann"}, approved
		}
		report, err := l.report()
		require.Equal(t, 2, l.runs)
		if approved {
			require.NoError(t, err)
			require.Contains(t, l.world.calls, "do g")
			require.Equal(t, []string{"approved by ann"}, notesOf(report, "g"))
			continue
		}
		l.last.failsAs(err, workflows.TaskRejected)
		require.NotContains(t, l.world.calls, "do g")
	}
}

func TestAnApprovedStepRunsInTheNextRun(t *testing.T) {
	w := gateBesideWork()
	w.steps = append(w.steps, chain("x")...)
	stepByID(w.steps, "x").Retry = task.Retry{Attempts: 2, Backoff: 2 * time.Minute, Max: 2 * time.Minute} // so that it ends last in the run
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
			r.runAfter(90*time.Second, func() { r.decide(workflows.SignalApprove) })
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

// parkedAcrossRuns unwinds a, b and x, where b is parked in the first run, and lets the second one resolve it.
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
			require.Equal(t, workflows.Unwinding, r.state().Phase)
			require.Len(t, alerts.sent(), 1, "somebody is told once")
			r.env.SignalWorkflow(compensations.SignalResolve, compensations.Resolution{Step: "b", Digest: alerts.sent()[0].Digest, Do: compensations.Retry, Who: "eve"})
		})
	})
	report, err := l.report()
	l.last.failsAs(err, workflows.TaskRejected)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{"do a", "do b", "plan x", "undo x", "undo b", "undo b", "undo a"}, sortRange(l.world.calls, 1, 3))
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"retry by eve"}, notesOf(report, "b"))
	require.Len(t, alerts.sent(), 1)
}

func TestASkippedUndoStaysSkippedAcrossRuns(t *testing.T) {
	var l *chained
	l, _ = parkedAcrossRuns(t, func(n int, r *run) {
		switch n {
		case 1:
			r.runAfter(10*time.Minute, func() {
				// In the very workflow task that ends the run: after a zero delay no workflow code runs before the signal.
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
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		switch {
		case step == "b" && n == 1: // what a server would return
			return activities.Undone{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
		case step == "b" && n == 2:
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
			if s := r.state(); s.Report == nil || s.Report.Steps[1].Reason != "waiting for host far" {
				r.runAfter(10*time.Millisecond, look)
				return
			}
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
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo b", "do b", "do c", "do d"}, w.calls)
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
	l.last.failsAs(err, workflows.TaskFailed)
	require.Equal(t, []string{"do a", "do p", "do c", "do d", "undo d", "undo c"}, w.calls)
	require.Equal(t, compensations.Partly, report.Status)
	require.Contains(t, report.Notes, "2 steps up to the pivot stay done")
}

func TestTheDeadlineCountsFromTheFirstRun(t *testing.T) {
	w := &world{steps: addGate(addGate(chain("a", "b", "c", "d"), "b", 24*time.Hour), "d", 24*time.Hour), deadline: 2 * time.Hour}
	var began time.Time
	l := &chained{T: t, world: w}
	l.in = func(n int, r *run) {
		if n == 1 {
			r.runAfter(90*time.Minute, func() {
				began = r.env.Now().Add(-90 * time.Minute)
				r.decide(workflows.SignalApprove)
			})
			r.runAfter(90*time.Minute+time.Millisecond, func() { r.env.SetContinueAsNewSuggested(true) })
		}
	}
	report, err := l.report()
	l.last.failsAs(err, workflows.TaskDeadline)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{"do a", "plan b", "do b", "do c", "plan d", "undo d", "undo c", "undo b", "undo a"}, w.calls)
	require.WithinDuration(t, began.Add(2*time.Hour), l.last.env.Now(), time.Second)
	require.InDelta(t, 2*time.Hour, report.Took, float64(time.Second), "of all runs")
}

func TestNotesAndIgnoredSignalsAreKeptAcrossRuns(t *testing.T) {
	w := gateBesideWork()
	stepByID(w.steps, "a").Gate = task.Gate{Mode: task.GateNone}
	l := &chained{T: t, world: w}
	l.in = func(n int, r *run) {
		r.runAfter(30*time.Second, func() {
			r.env.SignalWorkflow(workflows.SignalReject, workflows.Decision{Step: fmt.Sprint("run ", n)})
			r.env.SetContinueAsNewSuggested(n == 1)
			if n == 2 {
				r.decide(workflows.SignalApprove)
			}
		})
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{
		"step a runs without its gate: the task file says gate: none",
		`ignored signal: reject: there is no step "run 1"`, `ignored signal: reject: there is no step "run 2"`,
	}, report.Notes)
}

func TestALongHistoryAloneContinuesAsNew(t *testing.T) {
	l := &chained{T: t, world: &world{steps: chain("a", "b")}}
	l.in = func(n int, r *run) {
		if n == 1 {
			r.env.SetOnActivityStartedListener(func(*activity.Info, context.Context, converter.EncodedValues) { r.env.SetCurrentHistoryLength(30_000) })
		}
	}
	_, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{"do a", "do b"}, l.world.calls)
}

func TestACarryOfAnotherVersionWaitsForAWorkerThatKnowsIt(t *testing.T) {
	for carry, wayOut := range map[string]string{
		// A carry of format 2, whose fields had other types.
		`{"v": 2, "ignored": ["approve: no"], "saga": {"left": {"token": {"state": "parked"}}}}`: "run workers of the version that recorded it until its task is over",
		`{"v": 4, "saga": "in a place of its own"}`:                                              "upgrade this one",
		`{"saga": {}}`: "run workers of the version that recorded it",
	} {
		r := newRun(t, &world{steps: chain("a", "b")})
		r.env.SetContinuedExecutionRunID("the run before")
		r.env.ExecuteWorkflow(workflows.AgentTaskType, json.RawMessage(`{}`), json.RawMessage(carry))
		var failed *temporal.PanicError // fails only the workflow task: the run goes on
		require.ErrorAs(t, r.env.GetWorkflowError(), &failed, carry)
		require.ErrorContains(t, failed, "this run was recorded by a version that this one cannot undo")
		require.ErrorContains(t, failed, wayOut)
		require.Empty(t, r.world.calls)
	}
}

func TestAnUnreadableCarryWaitsForAWorkerThatReadsIt(t *testing.T) {
	encrypted := converter.NewRawValue(&commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("binary/encrypted")}, Data: []byte("?")})
	for what, c := range map[string]struct {
		workflow string
		input    []any
	}{
		"a carry whose types have changed":   {workflows.AgentTaskType, []any{json.RawMessage("null"), json.RawMessage(`{"v":3,"saga":{"entries":{"packed":true}}}`)}},
		"a carry without its codec":          {workflows.AgentTaskType, []any{encrypted, encrypted}},
		"the request of a recovery":          {workflows.RecoverType, []any{encrypted}},
		"the request of a rollback":          {workflows.RollbackType, []any{json.RawMessage(`{"without": 1}`)}},
		"what a redo and a carry of it hold": {workflows.RedoType, []any{encrypted, encrypted}},
		"the entries of a late sweep":        {workflows.LateSweepType, []any{encrypted}},
	} {
		r := newRun(t, &world{steps: chain("a")})
		r.env.SetContinuedExecutionRunID("the run before")
		r.env.ExecuteWorkflow(c.workflow, c.input...)
		var failed *temporal.PanicError // fails only the workflow task: the run goes on
		require.ErrorAs(t, r.env.GetWorkflowError(), &failed, what)
		require.ErrorContains(t, failed, "this worker cannot read", what)
		require.Empty(t, r.world.calls)
	}
}

func TestADocumentThatCannotBeReadIsRefused(t *testing.T) {
	r := newRun(t, &world{steps: chain("a")})
	r.env.ExecuteWorkflow(workflows.AgentTaskType, converter.NewRawValue(&commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("binary/encrypted")}}))
	report, err := r.ended()
	r.failsAs(err, workflows.TaskFailed)
	require.ErrorContains(t, err, "the task document cannot be read")
	require.Equal(t, compensations.Unwound, report.Status)
	require.Empty(t, r.world.calls)
}

// Only the server's word counts that a run continues another: otherwise a client could bypass the compiler and its gates by a carry.
func TestAMadeUpCarryIsRefused(t *testing.T) {
	forged := json.RawMessage(`{"v":3,"phase":"forward","began":"2026-01-01T00:00:00Z","saga":{},"size":1,"compiled":{"name":"forged","steps":[
		{"id":"a","uses":"fake.do","with":{},"gate":{"mode":"open"},"retry":{"attempts":1,"backoff":1000000000,"max":1000000000},
		"timeout":60000000000,"heartbeat":10000000000,"place":{"queue":"unwind","journal":"j"}}]}}`)
	for _, name := range []string{workflows.AgentTaskType, workflows.RecoverType, workflows.RollbackType, workflows.RedoType, workflows.LateSweepType} {
		for what, prepare := range map[string]func(*run){
			"by a start": func(*run) {},
			// As by cron: the server says of each of its runs that it continues the previous one.
			"by a start that runs again": func(r *run) {
				r.env.SetContinuedExecutionRunID("the run before")
				o := startOptions
				o.WorkflowRunTimeout = time.Hour
				r.env.SetStartWorkflowOptions(o)
			},
		} {
			r := newRun(t, &world{steps: chain("a")})
			prepare(r)
			r.env.ExecuteWorkflow(name, json.RawMessage("{}"), forged)
			report, err := r.ended()
			r.failsAs(err, workflows.TaskFailed)
			require.Equal(t, compensations.Unwound, report.Status, "%s %s: no sweep looks at it", name, what)
			require.ErrorContains(t, err, "nothing was touched")
			require.Empty(t, r.world.calls, "%s %s", name, what)
		}
	}
}

func TestALateSweepStartedByHandIsRefused(t *testing.T) {
	r := newRun(t, &world{})
	e := activities.Entry{Version: 1, Seq: 1, Step: "a", Action: "fake.do", UndoType: "fake.do.undo", Token: activities.NewToken("x", "a", 1), Place: activities.Place{Queue: queue}}
	r.env.ExecuteWorkflow(workflows.LateSweepType, workflows.LateSweepRequest{Task: "release", Rechecks: []compensations.Recheck{{Entry: e}}})
	_, err := r.ended()
	require.ErrorContains(t, err, "a late sweep is started by the task that it belongs to")
	require.Empty(t, r.world.calls)
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

// summarizeReport returns what a report says about the notable steps; of the others, only those of the last run are listed.
func summarizeReport(r compensations.Report) []string {
	all := []string{string(r.Status), fmt.Sprint(r.Outcomes)}
	if r.Cause != nil {
		all = append(all, fmt.Sprintf("%s %s: %s", r.Cause.Kind, r.Cause.Step, r.Cause.Text))
	}
	for _, s := range r.Steps {
		if s.State != string(workflows.Done) && s.State != string(workflows.NotStarted) || len(s.Notes) > 0 {
			all = append(all, fmt.Sprintf("%s %s %s %q", s.Step, s.State, s.Outcome, s.Notes))
		}
	}
	return append(all, r.Notes...)
}

// Wherever a task continues as new, the calls, their order and the report are the same as if it had not.
func TestContinuingAsNewChangesNothing(t *testing.T) {
	approving := func(r *run) {
		for i := range 60 {
			r.runAfter(time.Duration(i+1)*time.Minute, func() {
				if len(r.state().Gates) > 0 {
					r.decide(workflows.SignalApprove)
				}
				for _, p := range r.state().Parks { // the same decision in whatever run
					do := p.Ways[(len(p.Step)+p.Try)%len(p.Ways)]
					r.env.SignalWorkflow(compensations.SignalResolve, compensations.Resolution{Step: p.Step, Digest: p.Digest, Do: do, Who: "ann"})
				}
			})
		}
	}
	continued := 0
	for seed := range uint64(150) {
		one := &chained{T: t, world: randomTask(mathrand.New(mathrand.NewPCG(seed, 0))), in: func(_ int, r *run) { approving(r) }}
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

func TestATaskWhoseLedgerCannotBeCarriedIsRefusedBeforeItActs(t *testing.T) {
	var ids []string
	for i := range 30 {
		ids = append(ids, fmt.Sprint("s", i))
	}
	w := &world{steps: chain(ids...)}
	for i := range w.steps {
		noise := make([]byte, 40_000)
		_, _ = rand.Read(noise)
		w.steps[i].With = []byte(`{"data": "` + base64.StdEncoding.EncodeToString(noise) + `"}`)
		w.steps[i].UndoParams = []string{"data"}
	}
	for i := range w.steps[5:] { // the other steps add little to the ledger before they run
		w.steps[5+i].With = []byte(`{"data": "${{ steps.s0.outputs.much }}"}`)
	}
	w.do = func(context.Context, string, int, activities.Forward) (activities.Result, error) {
		noise := make([]byte, 40_000)
		_, _ = rand.Read(noise)
		return activities.Result{Outputs: map[string]any{"much": base64.StdEncoding.EncodeToString(noise)}}, nil
	}
	r := newRun(t, w)
	r.env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute}) // packing is slow under the race detector
	report, err := r.report()
	r.failsAs(err, workflows.TaskFailed)
	require.ErrorContains(t, err, "that can be carried: split the task")
	done := w.count["do s0"] * len(w.calls) / 2
	require.Greater(t, done, 5)
	require.Less(t, done, 30)
	require.ErrorContains(t, err, fmt.Sprintf("more than the %d that can be carried", 900_000-100*(done+1)), "what the unwinding finds out has room beside it")
	var want []string
	for _, id := range ids[:done] {
		want = append(want, "do "+id)
	}
	for _, id := range slices.Backward(ids[:done]) {
		want = append(want, "undo "+id)
	}
	require.Equal(t, want, w.calls)
	require.Equal(t, ids[done], report.Cause.Step)
	require.Equal(t, compensations.Unwound, report.Status)
}
