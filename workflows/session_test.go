package workflows_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// script runs one function a minute.
func (r *run) script(each ...func()) {
	for i, fn := range each {
		r.runAfter(time.Duration(i+1)*time.Minute, fn)
	}
}

func TestASessionTakesStepsAsTheyComeAndCommits(t *testing.T) {
	w := &world{do: func(_ context.Context, s string, _ int, f activities.Forward) (activities.Result, error) {
		return activities.Result{Summary: "did " + s + " with " + string(f.Step.With),
			Outputs: map[string]any{"id": "of " + s}}, nil
	}}
	r := newRun(t, w)
	var one, two, end *updated
	r.script(
		func() { one = r.update(protocol.UpdateStep, "1", steps("a")) },
		func() {
			require.Equal(t, []string{"do a"}, w.calls)
			two = r.update(protocol.UpdateStep, "2",
				steps(`{"uses": "fake.do", "with": {"from": "${{ steps.a.outputs.id }}"}}`, "b"))
		},
		func() { end = r.update(protocol.UpdateFinish, "3") },
	)
	r.session()
	require.NoError(t, one.refused)
	require.Equal(t, []string{"a done"}, states(one.answer))
	require.Equal(t, map[string]any{"id": "of a"}, one.answer.Steps[0].Outputs)
	require.Equal(t, []string{"s2 done", "b done"}, states(two.answer))
	require.Equal(t, `did s2 with {"from":"of a"}`, two.answer.Steps[0].Summary)
	require.False(t, two.answer.Pending)
	require.Equal(t, []string{"do a", "do s2", "do b"}, w.calls)
	require.Equal(t, compensations.Committed, end.answer.Report.Status)
	report, err := r.ended()
	require.NoError(t, err)
	require.Equal(t, []string{"a done ", "s2 done ", "b done "}, outcomes(report))
}

func TestAFailedStepIsUndoneAloneAndTheSessionGoesOn(t *testing.T) {
	w := &world{do: failing("b")}
	r := newRun(t, w)
	var failed, next *updated
	r.script(
		func() { r.update(protocol.UpdateStep, "1", steps("a")) },
		func() {
			failed = r.update(protocol.UpdateStep, "2",
				steps(`{"id": "b", "uses": "fake.do", "with": {"path": "/b"}}`, "c",
					`{"id": "d", "uses": "fake.do", "with": {"path": "/d"}, "needs": []}`))
		},
		func() { next = r.update(protocol.UpdateStep, "3", steps("e")) },
		func() { r.update(protocol.UpdateFinish, "4") },
	)
	r.session()
	require.Equal(t, []string{"b rolled-back", "c left-out", "d done"}, states(failed.answer))
	require.Equal(t, "CheckFailed: no", failed.answer.Steps[0].Error)
	require.Equal(t, activities.Restored, failed.answer.Steps[0].Undone.Outcome)
	require.Equal(t, []string{"e done"}, states(next.answer))
	slices.Sort(w.calls[1:3]) // b and d run at once
	require.Equal(t, []string{"do a", "do b", "do d", "undo b", "do e"}, w.calls)
	report, err := r.ended()
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
}

func TestARollbackUndoesAllSinceASavepoint(t *testing.T) {
	w := &world{}
	r := newRun(t, w)
	var back *updated
	r.script(
		func() { r.update(protocol.UpdateStep, "1", steps("a", "b")) },
		func() {
			r.update(protocol.UpdateSavepoint, "2", protocol.SavepointRequest{Name: "half"})
		},
		func() { r.update(protocol.UpdateStep, "3", steps("c", "d")) },
		func() {
			back = r.update(protocol.UpdateRollback, "4", protocol.SessionRollback{To: "half", Why: "wrong way"})
		},
		func() { r.update(protocol.UpdateStep, "5", steps("e")) },
		func() { r.update(protocol.UpdateRollback, "6", protocol.SessionRollback{To: "half"}) },
		func() { r.update(protocol.UpdateStep, "7", steps("f")) },
		func() { require.Equal(t, []string{"half"}, r.state().Session.Savepoints) },
		func() { r.update(protocol.UpdateFinish, "8") },
	)
	r.session()
	require.False(t, back.answer.Pending)
	require.Equal(t, []string{"c", "d"}, []string{back.answer.Undone[0].Step, back.answer.Undone[1].Step})
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "do e", "undo e", "do f"}, w.calls)
	report, err := r.ended()
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
}

func TestARollbackOfAStepUndoesWhatBuildsOnIt(t *testing.T) {
	w := &world{}
	r := newRun(t, w)
	free := func(id string) string {
		return `{"id": "` + id + `", "uses": "fake.do", "with": {"path": "/` + id + `"}, "needs": []}`
	}
	r.script(
		func() { r.update(protocol.UpdateStep, "1", steps(free("a"), free("b"))) },
		func() {
			r.update(protocol.UpdateStep, "2", steps(`{"id": "c", "uses": "fake.do", "with": {"path": "/c"}, "needs": ["a"]}`))
		},
		func() {
			r.update(protocol.UpdateStep, "3", steps(`{"id": "d", "uses": "fake.do", "with": {"path": "/b/d"}, "needs": []}`))
		},
		func() { r.update(protocol.UpdateRollback, "4", protocol.SessionRollback{Step: "a"}) },
		func() { r.update(protocol.UpdateRollback, "5", protocol.SessionRollback{Step: "b"}) }, // d is below what b made
		func() { r.update(protocol.UpdateFinish, "6") },
	)
	r.session()
	require.Equal(t, []string{"undo c", "undo a", "undo d", "undo b"}, w.calls[len(w.calls)-4:])
}

func TestARunningStepThatIsRolledBackIsCanceledFirst(t *testing.T) {
	w := &world{steps: nil}
	letGo := make(chan struct{})
	w.do = func(_ context.Context, s string, _ int, _ activities.Forward) (activities.Result, error) {
		if s == "b" {
			<-letGo
		}
		return activities.Result{}, nil
	}
	r := newRun(t, w)
	var step, back *updated
	r.script(
		func() { r.update(protocol.UpdateStep, "1", steps("a")) },
		func() { step = r.update(protocol.UpdateStep, "2", steps("b", "c")) },
	)
	w.plan = nil
	r.runAfter(2*time.Minute+time.Second, func() {
		back = r.update(protocol.UpdateRollback, "3", protocol.SessionRollback{Step: "b"})
		close(letGo)
	})
	r.runAfter(4*time.Minute, func() { r.update(protocol.UpdateFinish, "4") })
	r.session()
	require.Equal(t, []string{"b rolled-back", "c left-out"}, states(step.answer))
	require.Len(t, back.answer.Undone, 1)
	require.Equal(t, []string{"do a", "do b", "undo b"}, w.calls)
}

func TestAnAbortUnwindsTheSession(t *testing.T) {
	w := &world{}
	r := newRun(t, w)
	var end *updated
	r.script(
		func() { r.update(protocol.UpdateStep, "1", steps("a", "b")) },
		func() { end = r.update(protocol.UpdateAbort, "2", protocol.AbortRequest{Who: "ann", Why: "enough"}) },
	)
	r.session()
	report, err := r.ended()
	require.True(t, temporal.IsCanceledError(err))
	require.Equal(t, "aborted by ann: enough", report.Cause.Text)
	require.Equal(t, compensations.Unwound, end.answer.Report.Status)
	require.Equal(t, []string{"do a", "do b", "undo b", "undo a"}, w.calls)
}

func TestASessionWhoseAgentIsGone(t *testing.T) {
	t.Run("unwinds", func(t *testing.T) {
		w := &world{}
		r := newRun(t, w)
		r.script(func() { r.update(protocol.UpdateStep, "1", steps("a")) })
		began := r.env.Now()
		r.session()
		report, err := r.ended()
		r.failsAs(err, protocol.TaskDeadline)
		require.Equal(t, "its agent has been silent for 1h0m0s", report.Cause.Text)
		require.Equal(t, []string{"do a", "undo a"}, w.calls)
		require.InDelta(t, 61*time.Minute, r.env.Now().Sub(began), float64(time.Minute))
	})
	t.Run("is given the time of a pause", func(t *testing.T) {
		w := &world{paused: 30 * time.Minute}
		r := newRun(t, w)
		r.script(func() { r.update(protocol.UpdateStep, "1", steps("a")) })
		began := r.env.Now()
		r.session()
		_, err := r.ended()
		r.failsAs(err, protocol.TaskDeadline)
		require.InDelta(t, 91*time.Minute, r.env.Now().Sub(began), float64(time.Minute))
	})
	t.Run("asks, and goes on when it is back", func(t *testing.T) {
		w := &world{}
		r := newRun(t, w)
		r.script(func() { r.update(protocol.UpdateStep, "1", steps("a")) })
		r.runAfter(3*time.Hour, func() {
			require.True(t, r.state().Session.AgentGone)
			r.update(protocol.UpdateStep, "2", steps("b"))
		})
		r.runAfter(3*time.Hour+time.Minute, func() {
			require.False(t, r.state().Session.AgentGone)
			r.update(protocol.UpdateFinish, "3")
		})
		r.env.ExecuteWorkflow(protocol.AgentTaskType, []byte(`{"name": "live", "session": {"idle": "1h"}, "steps": []}`))
		report, err := r.ended()
		require.NoError(t, err)
		require.Equal(t, compensations.Committed, report.Status)
		require.Contains(t, report.Notes[0], "a person was asked")
	})
	t.Run("is not gone while a gate is open", func(t *testing.T) {
		w := &world{}
		r := newRun(t, w)
		var step *updated
		r.script(func() {
			step = r.update(protocol.UpdateStep, "1",
				steps(`{"id": "a", "uses": "fake.do", "gate": {"mode": "ask", "timeout": "5h"}}`))
		})
		r.runAfter(2*time.Minute, func() {
			require.True(t, step.done, "the answer does not wait for a person")
			require.True(t, step.answer.Pending)
			require.Equal(t, []string{"a at-gate"}, states(step.answer))
			require.NotNil(t, step.answer.Steps[0].Gate)
		})
		var awaited *updated
		r.runAfter(4*time.Hour, func() {
			awaited = r.update(protocol.UpdateAwait, "2", protocol.AwaitRequest{Request: "1"})
			r.decide(protocol.SignalApprove)
		})
		r.runAfter(4*time.Hour+time.Minute, func() { r.update(protocol.UpdateFinish, "3") })
		r.session()
		require.Equal(t, []string{"a done"}, states(awaited.answer))
	})
}

func TestAnUndoThatIsParkedIsAnsweredAndAwaited(t *testing.T) {
	w := &world{do: failing("b"), undo: parkFirstUndo("b")}
	r := newRun(t, w)
	var step, awaited *updated
	r.script(
		func() { step = r.update(protocol.UpdateStep, "1", steps("a", "b")) },
		func() {
			require.True(t, step.answer.Pending)
			require.Equal(t, "b", step.answer.Waiting[0].Step)
			awaited = r.update(protocol.UpdateAwait, "2", protocol.AwaitRequest{Request: "1"})
		},
		func() {
			require.True(t, awaited.answer.Pending, "a person may take hours: no update waits for that")
			r.resolveParked(compensations.Retry)
		},
		func() { awaited = r.update(protocol.UpdateAwait, "4", protocol.AwaitRequest{Request: "1"}) },
		func() { r.update(protocol.UpdateFinish, "3") },
	)
	r.session()
	require.Equal(t, []string{"a done", "b rolled-back"}, states(awaited.answer))
	require.Equal(t, []string{"do a", "do b", "undo b", "undo b"}, w.calls)
}

// What is wrong with a request is said before it is accepted, and nothing is touched.
func TestARequestThatIsWrongIsRefused(t *testing.T) {
	w := &world{do: failing("f")}
	r := newRun(t, w)
	type refusal struct{ errorType, text string }
	refusals := map[refusal]*updated{}
	refuses := func(errorType, text, update string, argument ...any) {
		refusals[refusal{errorType, text}] = r.update(update, text, argument...)
	}
	r.script(
		func() { r.update(protocol.UpdateStep, "1", steps("a", "f")) },
		func() {
			for text, step := range map[string]string{
				`there is no such action, found "fake.di"; did you mean fake.do?`: `{"uses": "fake.di"}`,
				"unknown parameter; did you mean path?":                           `{"uses": "fake.do", "with": {"pat": "x"}}`,
				`the session has had a step "a"`:                                  `{"id": "a", "uses": "fake.do"}`,
				"step f is rolled-back: nothing can build on it":                  `{"uses": "fake.do", "needs": ["f"]}`,
				"there is no such step":                                           `{"uses": "fake.do", "needs": ["x"]}`,
				"fake.do has no such output":                                      `{"uses": "fake.do", "with": {"from": "${{ steps.a.outputs.x }}"}}`,
			} {
				refuses(protocol.BadRequest, text, protocol.UpdateStep, steps(step))
			}
			refuses(protocol.BadRequest, "has 0 steps", protocol.UpdateStep, steps())
			refuses(protocol.BadRequest, "must have the form", protocol.UpdateSavepoint, protocol.SavepointRequest{Name: "A"})
			refuses(protocol.BadRequest, "exactly one of to and step", protocol.UpdateRollback, protocol.SessionRollback{})
			refuses(protocol.BadRequest, `there is no savepoint "x"; there are none`, protocol.UpdateRollback,
				protocol.SessionRollback{To: "x"})
			refuses(protocol.BadRequest, `the ledger has no step "f"`, protocol.UpdateRollback,
				protocol.SessionRollback{Step: "f"})
			refuses(protocol.BadRequest, `the session has had no request "x"`, protocol.UpdateAwait,
				protocol.AwaitRequest{Request: "x"})
		},
		func() { r.update(protocol.UpdateStep, "2", steps(`{"id": "g", "uses": "fake.do", "gate": "ask"}`)) },
		func() {
			refuses(protocol.SessionBusy, "step g is at-gate: wait for it", protocol.UpdateFinish)
			refuses(protocol.SessionBusy, "step g is at-gate", protocol.UpdateSavepoint, protocol.SavepointRequest{Name: "a"})
		},
		func() { r.decide(protocol.SignalApprove) },
		func() {
			w.undo = parkFirstUndo("g")
			r.update(protocol.UpdateAbort, "3", protocol.AbortRequest{})
		},
		func() {
			refuses(protocol.SessionOver, "the session goes no further: aborted by somebody", protocol.UpdateStep, steps("h"))
		},
		func() { r.resolveParked(compensations.Retry) },
	)
	r.session()
	require.Len(t, refusals, 15)
	for want, u := range refusals {
		require.Error(t, u.refused, want)
		r.failsAs(u.refused, want.errorType)
		require.ErrorContains(t, u.refused, want.text)
	}
	require.Equal(t, []string{"do a", "do f", "undo f", "plan g", "do g", "undo g", "undo g", "undo a"}, w.calls)
}

func TestATaskThatIsNoSessionTakesNoSteps(t *testing.T) {
	w := &world{steps: addGate(chain("a"), "a", time.Hour)}
	r := newRun(t, w)
	var step *updated
	r.script(func() { step = r.update(protocol.UpdateStep, "1", steps("b")) }, func() { r.decide(protocol.SignalApprove) })
	_, err := r.report()
	require.NoError(t, err)
	r.failsAs(step.refused, protocol.NotASession)
}

func TestASessionThatIsWrongIsToldToWhoOpensIt(t *testing.T) {
	r := newRun(t, &world{})
	var open *updated
	r.runAfter(0, func() { open = r.update(protocol.UpdateOpen, "1") })
	r.env.ExecuteWorkflow(protocol.AgentTaskType, []byte(`{"name": "live", "session": {"gone": "away"}, "steps": []}`))
	require.Error(t, r.env.GetWorkflowError())
	require.NoError(t, open.refused)
	r.failsAs(open.err, protocol.SessionOver)
	require.ErrorContains(t, open.err, "session.gone: must be one of ask, unwind")
}

// A step that is refused before it has an entry, as one that refers to an output which never came,
// holds up nothing.
func TestAStepThatNeverBeganHoldsUpNothing(t *testing.T) {
	w := &world{}
	r := newRun(t, w)
	var refused, next *updated
	r.script(
		func() { r.update(protocol.UpdateStep, "1", steps("a")) },
		func() {
			refused = r.update(protocol.UpdateStep, "2",
				steps(`{"id": "b", "uses": "fake.do", "with": {"from": "${{ steps.a.outputs.id }}"}}`))
		},
		func() { next = r.update(protocol.UpdateStep, "3", steps("c")) },
		func() { r.update(protocol.UpdateFinish, "4") },
	)
	r.session()
	require.Equal(t, []string{"b rolled-back"}, states(refused.answer))
	require.Equal(t, []string{"c done"}, states(next.answer))
	require.Equal(t, []string{"do a", "do c"}, w.calls)
}
