package workflows_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// putAside rolls back to a savepoint and keeps what was done as a branch.
func (r *run) putAside(id, savepoint string, b protocol.Branch) *updated {
	return r.update(protocol.UpdateRollback, id, protocol.SessionRollback{To: savepoint, Branch: &b})
}

// branches lists the branches of a session as name(steps).
func (r *run) branches() (all []string) {
	for _, part := range r.state().Session.TakenBack {
		if part.Branch != nil {
			var ids []string
			for _, s := range part.Steps {
				ids = append(ids, s.ID)
			}
			all = append(all, part.Branch.Name+"("+strings.Join(ids, " ")+")")
		}
	}
	return all
}

// Three attempts from one savepoint are compared, and the second is chosen, in another run than the
// one that has made it.
func TestABranchIsChosen(t *testing.T) {
	w := &world{do: counting}
	l := &chained{T: t, world: w, document: sessionDocument}
	var aside, chosen, next *updated
	l.in = func(n int, r *run) {
		if n == 1 {
			r.script(
				func() { r.update(protocol.UpdateStep, "1", steps("base")) },
				func() { r.markWith("start", given("0")) },
				func() { r.update(protocol.UpdateStep, "2", steps("a")) },
				func() { r.update(protocol.UpdateContext, "3", given("1")) },
				func() {
					aside = r.putAside("4", "start", protocol.Branch{Name: "first", Score: new(0.4), Note: "slow"})
				},
				func() {
					r.update(protocol.UpdateStep, "5",
						steps("b", `{"id": "c", "uses": "fake.do", "with": {"from": "${{ steps.b.outputs.id }}"}}`))
				},
				func() { r.update(protocol.UpdateContext, "6", given("2")) },
				func() { r.putAside("7", "start", protocol.Branch{Name: "second", Score: new(0.9)}) },
			)
			r.continueAsNew(10 * time.Minute)
			return
		}
		r.script(
			func() { r.update(protocol.UpdateStep, "8", steps("d")) },
			func() { r.putAside("9", "start", protocol.Branch{Name: "third"}) },
			func() {
				require.Equal(t, []string{"first(a)", "second(b c)", "third(d)"}, r.branches())
				require.Equal(t, "0", digests(r.state().Session.Contexts))
				kept := r.state().Session.TakenBack[0]
				require.Equal(t, &protocol.Branch{Name: "first", Score: new(0.4), Note: "slow"}, kept.Branch)
				require.Equal(t, given("1").Digest, kept.Context.Digest)
				chosen = r.redo("10", protocol.SessionRedo{Branch: "second"})
			},
			func() {
				require.Equal(t, []string{"first(a)", "third(d)"}, r.branches())
				require.Equal(t, "02", digests(r.state().Session.Contexts), "the agent is where it was")
				next = r.update(protocol.UpdateStep, "11",
					steps(`{"id": "e", "uses": "fake.do", "with": {"from": "${{ steps.c.outputs.id }}"}}`))
			},
			func() { r.update(protocol.UpdateFinish, "12") },
		)
	}
	_, err := l.report()
	require.NoError(t, err)
	require.Equal(t, given("0").Digest, aside.answer.Context.Digest)
	require.NoError(t, chosen.refused)
	require.Equal(t, []string{"b done", "c done"}, states(chosen.answer))
	require.Equal(t, `{"from":"b#2"}`, chosen.answer.Steps[1].Summary)
	require.Equal(t, given("2").Digest, chosen.answer.Context.Digest)
	require.Equal(t, `{"from":"c#2"}`, next.answer.Steps[0].Summary)
	var acts []string
	for _, call := range w.calls {
		if !strings.HasPrefix(call, "confirm") {
			acts = append(acts, call)
		}
	}
	require.Equal(t,
		[]string{"do base", "do a", "undo a", "do b", "do c", "undo c", "undo b", "do d", "undo d", "do b", "do c", "do e"},
		acts)
}

func TestABranchThatIsWrongIsRefused(t *testing.T) {
	r := newRun(t, &world{})
	bad, busy := map[string]*updated{}, map[string]*updated{}
	r.script(
		func() { r.mark("start") },
		func() { r.update(protocol.UpdateStep, "1", steps("a")) },
		func() {
			bad["branch: give to as well"] = r.update(protocol.UpdateRollback, "2",
				protocol.SessionRollback{Step: "a", Branch: &protocol.Branch{Name: "x"}})
			bad[`branch.name: "X Y" must have the form`] = r.putAside("3", "start", protocol.Branch{Name: "X Y"})
			bad["branch.note: it has 1001 bytes, and can have 1000"] = r.putAside("4", "start",
				protocol.Branch{Name: "x", Note: strings.Repeat("n", 1001)})
			r.putAside("5", "start", protocol.Branch{Name: "x"})
		},
		func() {
			bad["the rollback of branch y cannot be redone; these can: of branch x"] = r.redo("6",
				protocol.SessionRedo{Branch: "y"})
			bad["at most one of branch, to and step can be given"] = r.redo("7", protocol.SessionRedo{Branch: "x", To: "start"})
			r.update(protocol.UpdateStep, "8", steps("b"))
		},
		func() {
			bad[`branch.name: there is a branch "x" already`] = r.putAside("9", "start", protocol.Branch{Name: "x"})
			busy["branch x begins at savepoint start, and b came after that: roll back to it first"] = r.redo("10",
				protocol.SessionRedo{Branch: "x"})
		},
		func() { r.update(protocol.UpdateFinish, "11") },
	)
	r.session()
	require.Len(t, bad, 6)
	for text, u := range bad {
		r.failsAs(u.refused, protocol.BadRequest)
		require.ErrorContains(t, u.refused, text)
	}
	for text, u := range busy {
		r.failsAs(u.refused, protocol.SessionBusy)
		require.ErrorContains(t, u.refused, text)
	}
}

// A branch that begins inside what was rolled back itself needs that first.
func TestABranchOfASavepointThatWasRolledBack(t *testing.T) {
	w := &world{}
	r := newRun(t, w)
	var early, base, late *updated
	r.script(
		func() { r.mark("start") },
		func() { r.update(protocol.UpdateStep, "1", steps("a")) },
		func() { r.mark("half") },
		func() { r.update(protocol.UpdateStep, "2", steps("b")) },
		func() { r.putAside("3", "half", protocol.Branch{Name: "inner"}) },
		func() { r.update(protocol.UpdateStep, "4", steps("c")) },
		func() { r.rollBackTo("5", "start") },
		func() { early = r.redo("6", protocol.SessionRedo{Branch: "inner"}) },
		func() { base = r.redo("7", protocol.SessionRedo{To: "start"}) },
		func() { r.rollBackTo("8", "half") },
		func() { late = r.redo("9", protocol.SessionRedo{Branch: "inner"}) },
		func() { r.update(protocol.UpdateFinish, "10") },
	)
	r.session()
	r.failsAs(early.refused, protocol.BadRequest)
	require.ErrorContains(t, early.refused,
		"branch inner begins at savepoint half, which was rolled back itself: redo that first")
	require.Equal(t, []string{"a done", "c done"}, states(base.answer))
	require.NoError(t, late.refused)
	require.Equal(t, []string{"b done"}, states(late.answer))
	require.Equal(t, []string{"do a", "do b", "undo b", "do c", "undo c", "undo a", "do a", "do c", "undo c", "do b"},
		w.calls)
}

// A branch whose redo fails half-way goes on from there, or is put aside again whole.
func TestABranchThatFailsWhenItIsChosen(t *testing.T) {
	w := &world{}
	w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		if s == "b" && n == 2 || s == "b" && n == 3 {
			return activities.Result{}, activities.Errorf(activities.CheckFailed, "no")
		}
		return activities.Result{}, nil
	}
	r := newRun(t, w)
	var failed, rest *updated
	r.script(
		func() { r.mark("start") },
		func() { r.update(protocol.UpdateStep, "1", steps("a", "b", "c")) },
		func() { r.putAside("2", "start", protocol.Branch{Name: "x"}) },
		func() { failed = r.redo("3", protocol.SessionRedo{Branch: "x"}) },
		func() { require.Equal(t, []string{"x(b c)"}, r.branches()) },
		func() { r.putAside("4", "start", protocol.Branch{Name: "x"}) },
		func() { require.Equal(t, []string{"x(a b c)"}, r.branches()) },
		func() { r.redo("5", protocol.SessionRedo{Branch: "x"}) },
		func() { rest = r.redo("6", protocol.SessionRedo{Branch: "x"}) },
		func() { require.Empty(t, r.branches()) },
		func() { r.update(protocol.UpdateFinish, "7") },
	)
	r.session()
	require.Equal(t, []string{"a done", "b rolled-back", "c left-out"}, states(failed.answer))
	require.NoError(t, rest.refused)
	require.Equal(t, []string{"b done", "c done"}, states(rest.answer))
	require.Equal(t, []string{
		"do a", "do b", "do c", "undo c", "undo b", "undo a", "do a", "do b", "undo b", "undo a", "do a", "do b", "undo b",
		"do b", "do c",
	}, w.calls)
}

// Notes are for people: in the state, across runs, and in the report.
func TestNotes(t *testing.T) {
	l := &chained{T: t, world: &world{}, document: sessionDocument}
	var empty, long, first, again *updated
	l.in = func(n int, r *run) {
		if n == 1 {
			r.script(
				func() { first = r.update(protocol.UpdateNote, "1", protocol.NoteRequest{Text: "I begin."}) },
				func() { r.update(protocol.UpdateStep, "2", steps("a")) },
				func() { r.update(protocol.UpdateNote, "3", protocol.NoteRequest{Text: "It was a guess."}) },
				func() { empty = r.update(protocol.UpdateNote, "4", protocol.NoteRequest{}) },
				func() {
					long = r.update(protocol.UpdateNote, "5", protocol.NoteRequest{Text: strings.Repeat("x", 1001)})
				},
			)
			r.continueAsNew(7 * time.Minute)
			return
		}
		r.script(
			func() { again = r.update(protocol.UpdateNote, "3", protocol.NoteRequest{Text: "It was a guess."}) },
			func() {
				require.Len(t, r.state().Session.Notes, 2)
				require.Equal(t, "a", r.state().Session.Notes[1].After)
			},
			func() { r.update(protocol.UpdateFinish, "6") },
		)
	}
	report, err := l.report()
	require.NoError(t, err)
	require.NoError(t, first.refused)
	require.NoError(t, again.refused)
	require.ErrorContains(t, empty.refused, "text: it is empty")
	require.ErrorContains(t, long.refused, "text: it has 1001 bytes, and can have 1000")
	require.Equal(t, []string{"the agent noted: I begin.", "the agent noted after step a: It was a guess."}, report.Notes)
}
