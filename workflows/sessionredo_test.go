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
)

// counting returns as output how often each step has run.
func counting(_ context.Context, s string, n int, f activities.Forward) (activities.Result, error) {
	return activities.Result{Summary: string(f.Step.With), Outputs: map[string]any{"id": fmt.Sprintf("%s#%d", s, n)}}, nil
}

func (r *run) rollBackTo(id, savepoint string) *updated {
	return r.update(protocol.UpdateRollback, id, protocol.SessionRollback{To: savepoint})
}

func (r *run) redo(id string, what protocol.SessionRedo) *updated {
	return r.update(protocol.UpdateRedo, id, what)
}

func (r *run) mark(name string) *updated {
	return r.update(protocol.UpdateSavepoint, "mark "+name, protocol.SavepointRequest{Name: name})
}

func TestARedoRunsAgainWhatARollbackHasTakenBack(t *testing.T) {
	w := &world{do: counting}
	var tokens []string
	w.do = func(ctx context.Context, s string, n int, f activities.Forward) (activities.Result, error) {
		tokens = append(tokens, f.Entry.Token)
		return counting(ctx, s, n, f)
	}
	r := newRun(t, w)
	var back, again, next *updated
	r.script(
		func() { r.update(protocol.UpdateStep, "1", steps("a")) },
		func() { r.mark("half") },
		func() { r.update(protocol.UpdateStep, "2", steps("b")) },
		func() { r.mark("later") },
		func() {
			r.update(protocol.UpdateStep, "3", steps(`{"uses": "fake.do", "with": {"from": "${{ steps.b.outputs.id }}"}}`, "d"))
		},
		func() { back = r.rollBackTo("4", "half") },
		func() {
			require.Equal(t, []string{"half"}, r.state().Session.Savepoints)
			require.Equal(t, "half", r.state().Session.TakenBack[0].To)
			again = r.redo("5", protocol.SessionRedo{Why: "it was right"})
		},
		func() {
			require.Empty(t, r.state().Session.TakenBack)
			next = r.update(protocol.UpdateStep, "6",
				steps(`{"id": "e", "uses": "fake.do", "with": {"from": "${{ steps.b.outputs.id }}"}}`))
		},
		func() { require.Equal(t, []string{"half", "later"}, r.state().Session.Savepoints) },
		func() { r.rollBackTo("7", "later") },
		func() { r.update(protocol.UpdateFinish, "8") },
	)
	r.session()
	require.NoError(t, back.refused)
	require.NoError(t, again.refused)
	require.NoError(t, again.err)
	require.Equal(t, []string{"b done", "s3 done", "d done"}, states(again.answer))
	require.Equal(t, 2, again.answer.Steps[0].Try)
	require.Contains(t, again.answer.Steps[0].Notes, "redone by the agent: it was right")
	require.Equal(t, map[string]any{"id": "b#2"}, again.answer.Steps[0].Outputs)
	require.Equal(t, `{"from":"b#2"}`, again.answer.Steps[1].Summary, "what refers to outputs gets the new ones")
	require.Equal(t, `{"from":"b#2"}`, next.answer.Steps[0].Summary)
	require.Equal(t, []string{"do a", "do b", "do s3", "do d"}, w.calls[:4])
	require.Equal(t,
		[]string{"undo d", "undo s3", "undo b", "do b", "do s3", "do d", "do e", "undo e", "undo d", "undo s3"}, w.calls[4:])
	slices.Sort(tokens)
	require.Len(t, slices.Compact(tokens), len(tokens), "each try has a token of its own")
	report, err := r.ended()
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
}

func TestARedoOfWhatRanWhenItWasRolledBack(t *testing.T) {
	w := &world{}
	letGo := make(chan struct{})
	w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		if s == "b" && n == 1 {
			<-letGo
		}
		return activities.Result{}, nil
	}
	r := newRun(t, w)
	var first, busy, again *updated
	r.script(
		func() { r.update(protocol.UpdateStep, "1", steps("a")) },
		func() { first = r.update(protocol.UpdateStep, "2", steps("b", "c")) },
	)
	r.runAfter(2*time.Minute+time.Second, func() {
		r.update(protocol.UpdateRollback, "3", protocol.SessionRollback{Step: "b"})
		busy = r.redo("early", protocol.SessionRedo{})
		close(letGo)
	})
	r.runAfter(4*time.Minute, func() { again = r.redo("4", protocol.SessionRedo{Step: "b"}) })
	r.runAfter(5*time.Minute, func() { r.update(protocol.UpdateFinish, "5") })
	r.session()
	require.Equal(t, []string{"b rolled-back", "c left-out"}, states(first.answer))
	r.failsAs(busy.refused, protocol.SessionBusy)
	require.NoError(t, again.refused)
	require.Equal(t, []string{"b done", "c done"}, states(again.answer))
	require.Equal(t, []string{"do a", "do b", "undo b", "do b", "do c"}, w.calls)
}

// Rollbacks are redone the last one first, and what has failed in a redo can be redone again.
func TestRedosFollowEachOther(t *testing.T) {
	w := &world{}
	w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		if s == "b" && n == 2 {
			return activities.Result{}, activities.Errorf(activities.CheckFailed, "no")
		}
		return activities.Result{}, nil
	}
	r := newRun(t, w)
	var failed, rest, one, none, first *updated
	r.script(
		func() { r.update(protocol.UpdateStep, "1", steps("a", "b", "c", "d")) },
		func() { r.update(protocol.UpdateRollback, "2", protocol.SessionRollback{Step: "d"}) },
		func() { r.update(protocol.UpdateRollback, "3", protocol.SessionRollback{Step: "b"}) },
		func() { failed = r.redo("4", protocol.SessionRedo{}) },
		func() { rest = r.redo("5", protocol.SessionRedo{}) },
		func() { one = r.redo("6", protocol.SessionRedo{}) },
		func() { none = r.redo("7", protocol.SessionRedo{}) },
		func() { first = r.redo("6", protocol.SessionRedo{}) },
		func() { r.update(protocol.UpdateFinish, "8") },
	)
	r.session()
	require.Equal(t, []string{"b rolled-back", "c left-out"}, states(failed.answer))
	require.Equal(t, []string{"b done", "c done"}, states(rest.answer))
	require.Equal(t, 3, rest.answer.Steps[0].Try)
	require.Equal(t, []string{"d done"}, states(one.answer))
	require.Equal(t, one.answer, first.answer, "a repeated request is the same one")
	r.failsAs(none.refused, protocol.BadRequest)
	require.ErrorContains(t, none.refused, "nothing was rolled back")
	require.Equal(t, []string{
		"do a", "do b", "do c", "do d", "undo d", "undo c", "undo b", "do b", "undo b", "do b", "do c", "do d",
	}, w.calls)
}

func TestAnApprovalFromBeforeARollbackDoesNotCount(t *testing.T) {
	w := &world{}
	r := newRun(t, w)
	var again *updated
	var old protocol.Decision
	r.script(
		func() { r.update(protocol.UpdateStep, "1", steps(`{"id": "a", "uses": "fake.do", "gate": "ask"}`)) },
		func() {
			g := r.state().Gates[0]
			old = protocol.Decision{Step: g.Step, Digest: g.Digest, Who: "ann"}
			r.env.SignalWorkflow(protocol.SignalApprove, old)
		},
		func() { r.update(protocol.UpdateRollback, "2", protocol.SessionRollback{Step: "a"}) },
		func() { again = r.redo("3", protocol.SessionRedo{}) },
		func() {
			require.True(t, again.answer.Pending)
			require.Equal(t, []string{"a at-gate"}, states(again.answer))
			r.env.SignalWorkflow(protocol.SignalApprove, old)
		},
		func() {
			require.Contains(t, strings.Join(r.state().Ignored, "\n"), "is not that of the present gate")
			require.Equal(t, []string{"plan a", "do a", "undo a", "plan a"}, w.calls)
			r.decide(protocol.SignalApprove)
		},
		func() { r.update(protocol.UpdateFinish, "4") },
	)
	r.session()
	require.Equal(t, []string{"plan a", "do a", "undo a", "plan a", "do a"}, w.calls)
}

func TestARedoThatIsWrongIsRefused(t *testing.T) {
	w := &world{}
	r := newRun(t, w)
	free := func(id, more string) string {
		return fmt.Sprintf(`{"id": %q, "uses": "fake.do", "with": {"path": "/%s"}, "needs": []%s}`, id, id, more)
	}
	refusals := map[string]*updated{}
	r.script(
		func() {
			refusals["nothing was rolled back that is not done again"] = r.redo("1", protocol.SessionRedo{})
			refusals["at most one of branch, to and step can be given"] = r.redo("2", protocol.SessionRedo{To: "x", Step: "y"})
			r.update(protocol.UpdateStep, "3",
				steps(free("a", ""), `{"id": "b", "uses": "fake.do", "with": {"path": "/b"}, "needs": ["a"]}`,
					free("c", `, "savepoint": "third"`)))
		},
		func() { r.update(protocol.UpdateRollback, "4", protocol.SessionRollback{Step: "b"}) },
		func() { r.rollBackTo("5", "third") },
		func() { r.update(protocol.UpdateRollback, "6", protocol.SessionRollback{Step: "a"}) },
		func() {
			refusals["step b needs step a, which is not done: redo that first, or send b again"] = r.redo("7",
				protocol.SessionRedo{Step: "b"})
			refusals["the rollback of step x cannot be redone; these can: of step a, to savepoint third, of step b"] = r.redo(
				"8", protocol.SessionRedo{Step: "x"})
			refusals["step: c was taken back by the rollback to savepoint third: redo that"] = r.redo("9",
				protocol.SessionRedo{Step: "c"})
			r.update(protocol.UpdateStep, "10", steps(free("d", "")))
		},
		func() { r.update(protocol.UpdateFinish, "11") },
	)
	r.session()
	require.Len(t, refusals, 5)
	for text, u := range refusals {
		require.Error(t, u.refused, text)
		r.failsAs(u.refused, protocol.BadRequest)
		require.ErrorContains(t, u.refused, text)
	}
	require.Equal(t, "do d", w.calls[len(w.calls)-1], "nothing was redone")
}

// A step that a person has corrected is redone with what that person wrote.
func TestARedoKeepsACorrection(t *testing.T) {
	w := &world{}
	w.do = func(ctx context.Context, s string, n int, f activities.Forward) (activities.Result, error) {
		if strings.Contains(string(f.Step.With), "wrong") {
			return activities.Result{}, activities.Errorf(activities.CheckFailed, "no")
		}
		return counting(ctx, s, n, f)
	}
	r := newRun(t, w)
	var again *updated
	r.script(
		func() {
			r.update(protocol.UpdateStep, "1",
				steps(`{"id": "a", "uses": "fake.do", "with": {"path": "/wrong"}, "on_failure": "ask"}`))
		},
		func() {
			d := resolution(t, r.state(), compensations.Retry)
			d.With = []byte(`{"path":"/right"}`)
			r.env.SignalWorkflow(compensations.SignalResolve, d)
		},
		func() { r.update(protocol.UpdateRollback, "2", protocol.SessionRollback{Step: "a"}) },
		func() { again = r.redo("3", protocol.SessionRedo{}) },
		func() { r.update(protocol.UpdateFinish, "4") },
	)
	r.session()
	require.NoError(t, again.refused)
	require.Equal(t, []string{"a done"}, states(again.answer))
	require.Equal(t, `{"path":"/right"}`, again.answer.Steps[0].Summary)
}

// The first steps of a session, from its document, are redone like the others.
func TestARedoOfTheFirstSteps(t *testing.T) {
	w := &world{}
	r := newRun(t, w)
	var again *updated
	r.script(
		func() { r.update(protocol.UpdateRollback, "1", protocol.SessionRollback{Step: "a"}) },
		func() { again = r.redo("2", protocol.SessionRedo{}) },
		func() { r.update(protocol.UpdateFinish, "3") },
	)
	r.env.ExecuteWorkflow(protocol.AgentTaskType,
		[]byte(`{"name": "live", "session": {}, "steps": [{"id": "a", "uses": "fake.do"}, {"id": "b", "uses": "fake.do"}]}`))
	require.NoError(t, again.refused)
	require.Equal(t, []string{"a done", "b done"}, states(again.answer))
	require.Equal(t, []string{"do a", "do b", "undo b", "undo a", "do a", "do b"}, w.calls)
}

// More steps than can be compiled at once are compiled in groups, which refer to each other.
func TestARedoOfManySteps(t *testing.T) {
	w := &world{do: counting}
	r := newRun(t, w)
	var again *updated
	var first, second []string
	for i := range 90 {
		first = append(first, fmt.Sprint("a", i))
		second = append(second,
			fmt.Sprintf(
				`{"id": "b%d", "uses": "fake.do", "needs": ["a%d"], "with": {"path": "/b/%d", "from": "${{ steps.a%d.outputs.id }}"}}`, i, i, i, i))
	}
	r.script(
		func() { r.mark("start") },
		func() { r.update(protocol.UpdateStep, "1", steps(first...)) },
		func() { r.update(protocol.UpdateStep, "2", steps(second...)) },
		func() { r.rollBackTo("3", "start") },
		func() { again = r.redo("4", protocol.SessionRedo{}) },
		func() { require.Equal(t, 180, r.state().Done); require.Equal(t, 180, r.state().Total) },
		func() { r.update(protocol.UpdateFinish, "5") },
	)
	r.session()
	require.NoError(t, again.refused)
	require.NoError(t, again.err)
	require.Len(t, again.answer.Steps, 180)
	require.Equal(t, `{"path":"/b/89","from":"a89#2"}`, again.answer.Steps[179].Summary)
	require.Len(t, w.calls, 3*180)
}

// What a redo needs crosses runs, also when the rollback itself does.
func TestARedoOfWhatEarlierRunsHaveTakenBack(t *testing.T) {
	tokens := map[string]bool{}
	w := &world{}
	w.do = func(ctx context.Context, s string, n int, f activities.Forward) (activities.Result, error) {
		require.False(t, tokens[f.Entry.Token], "a token acts once")
		tokens[f.Entry.Token] = true
		return counting(ctx, s, n, f)
	}
	l := &chained{T: t, world: w, document: sessionDocument}
	var redone, again *updated
	l.in = func(n int, r *run) {
		switch n {
		case 1:
			r.script(
				func() { r.update(protocol.UpdateStep, "1", steps("a")) },
				func() { r.mark("half") },
				func() {
					r.update(protocol.UpdateStep, "2",
						steps(`{"id": "b", "uses": "fake.do", "with": {"from": "${{ steps.a.outputs.id }}"}}`, "c", "d"))
				},
				func() { r.rollBackTo("3", "half") },
			)
			suggestContinueAsNewFrom(r, func(calls int) bool { return calls == 5 }) // while d is undone
		case 2:
			r.runAfter(time.Minute, func() {
				require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo b"}, w.calls)
				redone = r.redo("4", protocol.SessionRedo{})
			})
			r.continueAsNew(2 * time.Minute)
		case 3:
			r.runAfter(time.Minute, func() { r.update(protocol.UpdateRollback, "5", protocol.SessionRollback{Step: "c"}) })
			r.continueAsNew(2 * time.Minute)
		case 4:
			r.script(
				func() { again = r.redo("6", protocol.SessionRedo{Step: "c"}) },
				func() { r.update(protocol.UpdateFinish, "7") },
			)
		}
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 4, l.runs)
	require.Equal(t, compensations.Committed, report.Status)
	require.NoError(t, redone.refused)
	require.Equal(t, []string{"b done", "c done", "d done"}, states(redone.answer))
	require.Equal(t, `{"from":"a#1"}`, redone.answer.Steps[0].Summary)
	require.NoError(t, again.refused)
	require.Equal(t, []string{"c done", "d done"}, states(again.answer))
	require.Equal(t, 3, again.answer.Steps[0].Try)
	require.Equal(t, []string{"do b", "do c", "do d", "undo d", "undo c", "do c", "do d"}, w.calls[7:])
}

func TestStepsThatWereReleasedAreNotRedone(t *testing.T) {
	w := &world{}
	big := strings.Repeat("x", 60<<10)
	l := &chained{T: t, world: w, document: sessionDocument}
	var refused, small *updated
	l.in = func(n int, r *run) {
		// packing is slow under the race detector
		if n == 1 {
			r.script(
				func() { r.mark("start") },
				func() {
					var all []string
					for i := range 6 {
						all = append(all, fmt.Sprintf(`{"id": "a%d", "uses": "fake.do", "with": {"from": %q}}`, i, big))
					}
					r.update(protocol.UpdateStep, "1", steps(all...))
				},
				func() { r.rollBackTo("2", "start") },
				func() { r.update(protocol.UpdateStep, "3", steps("b")) },
			)
			r.continueAsNew(5 * time.Minute)
			return
		}
		r.script(
			func() { refused = r.redo("4", protocol.SessionRedo{}) },
			func() { r.update(protocol.UpdateRollback, "5", protocol.SessionRollback{Step: "b"}) },
			func() { small = r.redo("6", protocol.SessionRedo{}) },
			func() { r.update(protocol.UpdateFinish, "7") },
		)
	}
	l.pass = func(c *protocol.Carry) { require.Less(t, len(c.Session.Written["a0"]), 10) }
	_, err := l.report()
	require.NoError(t, err)
	r := l.last
	r.failsAs(refused.refused, protocol.BadRequest)
	require.ErrorContains(t, refused.refused, "what was rolled back is no longer kept; send the steps again")
	require.Equal(t, []string{"b done"}, states(small.answer))
}
