package workflows_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// A conversation that was forked from before a rollback may make its calls again, and may hold
// approvals that were given then. These tests are about both: none of it acts twice, and none of it
// opens a gate.

const pay = `{"id": "pay", "uses": "fake.do", "with": {"path": "/bill/7"}}`

// paying is a world that notes the token of each payment.
func paying(tokens *[]string) *world {
	w := &world{}
	w.do = func(_ context.Context, _ string, _ int, f activities.Forward) (activities.Result, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		*tokens = append(*tokens, f.Entry.Token)
		return activities.Result{Outputs: map[string]any{"id": "receipt"}}, nil
	}
	return w
}

func TestACallFromBeforeARollbackNeverActsAgain(t *testing.T) {
	var tokens []string
	l := newLive(t, servertest.Client(t), paying(&tokens))
	s := l.openSession()
	ctx := t.Context()
	_, err := s.Savepoint(ctx, "", "before")
	require.NoError(t, err)
	paid, err := s.Step(ctx, "pay", json.RawMessage(pay))
	require.NoError(t, err)
	require.Equal(t, []string{"pay done"}, states(paid))
	_, err = s.Rollback(ctx, "back", protocol.SessionRollback{To: "before"})
	require.NoError(t, err)
	require.Equal(t, []string{"do pay", "undo pay"}, l.calls())

	again, err := s.Step(ctx, "pay", json.RawMessage(pay))
	require.NoError(t, err)
	require.Equal(t, []string{"pay rolled-back"}, states(again), "the same request: it tells what is true now")
	require.Empty(t, again.Steps[0].Outputs)
	awaited, err := s.Await(ctx, "pay")
	require.NoError(t, err)
	require.Equal(t, []string{"pay rolled-back"}, states(awaited))
	_, err = s.Step(ctx, "pay", json.RawMessage(`{"id": "pay", "uses": "fake.do", "with": {"path": "/bill/8"}}`))
	requireRefusal(t, err, protocol.BadRequest, "was made before and asked for something else")
	_, err = s.Step(ctx, "", json.RawMessage(pay))
	requireRefusal(t, err, protocol.BadRequest, `the session has had a step "pay"`)
	_, err = s.Step(ctx, "",
		json.RawMessage(`{"id": "mail", "uses": "fake.do", "with": {"from": "${{ steps.pay.outputs.id }}"}}`))
	requireRefusal(t, err, protocol.BadRequest, "step pay is rolled-back: nothing can build on it")
	require.Equal(t, []string{"do pay", "undo pay"}, l.calls())

	// Who means it pays anew, under a token that nothing of before has.
	anew, err := s.Step(ctx, "anew", steps(`{"id": "pay2", "uses": "fake.do", "with": {"path": "/bill/7"}}`).Steps...)
	require.NoError(t, err)
	require.Equal(t, []string{"pay2 done"}, states(anew))
	back, err := s.Rollback(ctx, "back", protocol.SessionRollback{To: "before"})
	require.NoError(t, err)
	require.Equal(t, "pay", back.Undone[0].Step, "the rollback of before takes back nothing of after")
	again, err = s.Step(ctx, "pay", json.RawMessage(pay))
	require.NoError(t, err)
	require.Equal(t, []string{"pay rolled-back"}, states(again))
	redone, err := s.Redo(ctx, "redo", protocol.SessionRedo{})
	require.NoError(t, err)
	require.Equal(t, []string{"pay done"}, states(redone))
	_, err = s.Rollback(ctx, "back of the redo", protocol.SessionRollback{Step: "pay"})
	require.NoError(t, err)
	again, err = s.Redo(ctx, "redo", protocol.SessionRedo{})
	require.NoError(t, err)
	require.Equal(t, []string{"pay rolled-back"}, states(again), "a redo is a request like others")
	require.Equal(t, []string{"do pay", "undo pay", "do pay2", "do pay", "undo pay"}, l.calls())
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(tokens))), 3, "each has a token of its own")
	_, err = s.Finish(ctx, "")
	require.NoError(t, err)
}

// What a request came to in an earlier run is told as it is now.
func TestACallFromAnEarlierRunIsAnsweredAsItStands(t *testing.T) {
	var tokens []string
	l := &chained{T: t, world: paying(&tokens), document: sessionDocument}
	var told []string
	var undone, stands *updated
	l.in = func(n int, r *run) {
		again := func() *updated { return r.update(protocol.UpdateStep, "pay", steps(pay)) }
		tell := func() {
			v, err := r.env.QueryWorkflow(protocol.QueryAnswer, "pay")
			require.NoError(t, err)
			var a protocol.Answer
			require.NoError(t, v.Get(&a))
			told = append(told, states(a)...)
			require.Equal(t, a.Steps[0].State == protocol.Done, a.Steps[0].Outputs != nil)
		}
		back := func() { r.update(protocol.UpdateRollback, "back", protocol.SessionRollback{Step: "pay"}) }
		redo := func() { r.redo("redo", protocol.SessionRedo{}) }
		switch n {
		case 1:
			r.script(func() { again() }, tell)
			r.continueAsNew(3 * time.Minute)
		case 2:
			r.script(tell, back, tell)
			r.continueAsNew(4 * time.Minute)
		case 3:
			r.script(func() { undone = again() }, redo, tell)
			r.continueAsNew(4 * time.Minute)
		case 4:
			r.script(func() { stands = again() }, tell, func() { r.update(protocol.UpdateFinish, "end") })
		}
	}
	_, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 4, l.runs)
	require.Equal(t, []string{"do pay", "undo pay", "do pay"}, l.world.calls)
	require.Equal(t, []string{"pay done", "pay done", "pay rolled-back", "pay done", "pay done"}, told)
	require.Equal(t, []string{"pay rolled-back"}, states(undone.answer))
	require.Equal(t, []string{"pay done"}, states(stands.answer))
}

func TestAnApprovalFromBeforeARollbackOpensNoGateAfterIt(t *testing.T) {
	var tokens []string
	w := paying(&tokens)
	w.risky = true
	l := newLive(t, servertest.Client(t), w)
	s := l.openSession()
	ctx := t.Context()
	ask := func(step, request string) protocol.Decision {
		a, err := s.Step(ctx, request, json.RawMessage(step))
		require.NoError(t, err)
		require.NotNil(t, a.Steps[0].Gate, "%+v", a)
		return protocol.Decision{Step: a.Steps[0].ID, Digest: a.Steps[0].Gate.Digest, Who: "ann"}
	}
	back := func(step string) {
		_, err := s.Rollback(ctx, "back of "+step, protocol.SessionRollback{Step: step})
		require.NoError(t, err)
	}
	opensNothing := func(old ...protocol.Decision) {
		t.Helper()
		before := l.calls()
		for _, d := range old {
			_, err := l.ask(protocol.UpdateApprove, d)
			requireType(t, err, protocol.NothingDecided)
			ignored := len(l.state().Ignored)
			l.sendSignal(protocol.SignalApprove, d)
			l.awaitState(func(s protocol.State) bool { return len(s.Ignored) > ignored })
		}
		require.Len(t, l.state().Gates, 1)
		require.Equal(t, before, l.calls())
	}
	// An approval that was used.
	used := ask(pay, "pay")
	_, err := l.ask(protocol.UpdateApprove, used)
	require.NoError(t, err)
	_, err = s.Await(ctx, "pay")
	require.NoError(t, err)
	back("pay")
	second := ask(`{"id": "second", "uses": "fake.do", "with": {"path": "/bill/7"}}`, "second")
	opensNothing(used, protocol.Decision{Step: "second", Digest: used.Digest})
	// One whose step was taken back before it was given.
	back("second")
	third := ask(`{"id": "third", "uses": "fake.do", "with": {"path": "/bill/7"}}`, "third")
	opensNothing(used, second, protocol.Decision{Step: "third", Digest: used.Digest},
		protocol.Decision{Step: "third", Digest: second.Digest})
	// One for another try of the very step.
	_, err = l.ask(protocol.UpdateApprove, third)
	require.NoError(t, err)
	_, err = s.Await(ctx, "third")
	require.NoError(t, err)
	back("third")
	again, err := s.Redo(ctx, "redo", protocol.SessionRedo{})
	require.NoError(t, err)
	require.Equal(t, []string{"third at-gate"}, states(again))
	opensNothing(third)
	require.Equal(t,
		[]string{"plan pay", "do pay", "undo pay", "plan second", "undo second", "plan third", "do third", "undo third",
			"plan third"}, l.calls())
	_, err = s.Abort(ctx, "", protocol.AbortRequest{})
	require.NoError(t, err)
}

// An agent's own decision about a step that failed is worth as little after a rollback.
func TestADecisionOfTheAgentFromBeforeARollbackDecidesNothing(t *testing.T) {
	l := newLive(t, servertest.Client(t), asking(nil))
	s := l.openSessionOf(lettingAgent)
	ctx := t.Context()
	parked, err := s.Step(ctx, "one", json.RawMessage(askingB))
	require.NoError(t, err)
	old := about(t, parked, compensations.Retry, `{"path":"/right"}`)
	_, err = s.Rollback(ctx, "", protocol.SessionRollback{Step: "b"})
	require.NoError(t, err)
	_, err = s.Resolve(ctx, "", old)
	requireRefusal(t, err, protocol.NothingDecided, `"b" waits for no decision; it is rolled-back`)
	redone, err := s.Redo(ctx, "", protocol.SessionRedo{})
	require.NoError(t, err)
	require.Equal(t, []string{"b parked"}, states(redone))
	_, err = s.Resolve(ctx, "", old)
	requireRefusal(t, err, protocol.NothingDecided, "is not that of the present park")
	done, err := s.Resolve(ctx, "right", about(t, redone, compensations.Retry, `{"path":"/right"}`))
	require.NoError(t, err)
	require.Equal(t, []string{"b done"}, states(done))
	_, err = s.Rollback(ctx, "", protocol.SessionRollback{Step: "b"})
	require.NoError(t, err)
	again, err := s.Resolve(ctx, "right", about(t, redone, compensations.Retry, `{"path":"/right"}`))
	require.NoError(t, err)
	require.Equal(t, []string{"b rolled-back"}, states(again), "the same request is not carried out again")
	require.Equal(t, []string{"do b", "undo b", "do b", "undo b", "do b", "undo b"}, l.calls())
	_, err = s.Finish(ctx, "")
	require.NoError(t, err)
}

// The same intent in other words is told to the agent before anything acts.
func TestASecondStepForTheSameIsToldToTheAgent(t *testing.T) {
	var tokens []string
	w := paying(&tokens)
	w.intent, w.risky = []string{"path"}, false
	l := newLive(t, servertest.Client(t), w)
	s := l.openSession()
	ctx := t.Context()
	bill := func(more string) []json.RawMessage {
		return steps(`{"uses": "fake.do", "with": {"path": "/bill/7", "from": "` + more + `"}` + "}").Steps
	}
	first, err := s.Step(ctx, "", bill("for May")...)
	require.NoError(t, err)
	require.Equal(t, []string{"s1 done"}, states(first))
	second, err := s.Step(ctx, "", bill("invoice of May")...)
	require.NoError(t, err)
	require.Equal(t, []string{"s2 rolled-back"}, states(second))
	require.Contains(t, second.Steps[0].Error, "step s1 is for the same: fake.do with the same path")
	require.Contains(t, second.Steps[0].Error, "add again: true to the step")
	require.Equal(t, []string{"do s1"}, l.calls())

	other, err := s.Step(ctx, "",
		steps(`{"uses": "fake.do", "with": {"path": "/bill/8"}}`,
			`{"uses": "fake.do", "with": {"path": "/bill/8"}}`).Steps...)
	require.NoError(t, err)
	require.Equal(t, []string{"s3 done", "s4 rolled-back"}, states(other), "also within one request")
	meant, err := s.Step(ctx, "", steps(`{"uses": "fake.do", "with": {"path": "/bill/7"}, "again": true}`).Steps...)
	require.NoError(t, err)
	require.Equal(t, []string{"s5 done"}, states(meant))
	for _, step := range []string{"s5", "s1"} {
		_, err = s.Rollback(ctx, "", protocol.SessionRollback{Step: step})
		require.NoError(t, err)
	}
	anew, err := s.Step(ctx, "", bill("for May")...)
	require.NoError(t, err)
	require.Equal(t, []string{"s6 done"}, states(anew), "what was rolled back may be done again")
	redone, err := s.Redo(ctx, "", protocol.SessionRedo{Step: "s1"})
	require.NoError(t, err)
	require.Equal(t, "s1 rolled-back", states(redone)[0], "and is not redone on top of that")
	require.Contains(t, redone.Steps[0].Error, "step s6 is for the same")
	_, err = s.Finish(ctx, "")
	require.NoError(t, err)
}
