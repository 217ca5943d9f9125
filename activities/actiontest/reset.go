package actiontest

import (
	"testing"

	"github.com/seed-62bf7108/unwind/activities"
)

// person is the decision of someone who asks for a reset.
var person = activities.Decision{Who: "someone", Why: "it is beyond repair"}

func (w *world) mustReset(f forward) activities.Undone {
	w.t.Helper()
	resetter, ok := w.action.(activities.Resetter)
	if !ok {
		w.t.Fatalf("%s says in its Spec how it is reset, and has no Reset", w.Action)
	}
	undone, err := callBounded(w, "Reset",
		func() (activities.Undone, error) { return resetter.Reset(w.ctx(), f.Entry, person) })
	if err != nil {
		w.t.Fatalf("Reset: %v", err)
	}
	if undone.Outcome != activities.Residue || len(undone.Losses) == 0 {
		w.t.Fatalf("Reset ended %s, want %s with its losses: %s", undone.Outcome, activities.Residue, asJSON(undone))
	}
	return undone
}

// mustBeReset requires that the resource is at its start.
func (w *world) mustBeReset(when string) {
	w.t.Helper()
	if now := w.manifest(); !w.Reset(w.before, now) {
		w.t.Fatalf("%s the world is not at its start:\n%s", when, difference(w.before, now))
	}
}

func reset(w *world) {
	w.mustApply(w.first, "")
	if w.Drift != nil {
		w.Drift(w.t, w.dir)
	}
	undone := w.mustReset(w.first)
	w.mustBeReset("after a reset")
	left := w.manifest()
	w.mustBeSameUndone(undone, w.mustReset(w.first))
	w.mustBeSameUndone(undone, w.mustUndo(w.first, activities.Residue))
	_, err := w.apply(w.first, "")
	w.mustFail("Apply after a reset", err, activities.Fenced)
	w.mustBe(left, "after a second reset, a late undo and a late Apply")
	w.mustApply(w.next, "")
	w.mustUndo(w.next, w.Undone)
}

func (s *suite) brokenResets(t *testing.T) {
	var points []string
	t.Run("no_break_reset", func(t *testing.T) {
		w := s.newWorld(t)
		w.mustApply(w.first, "")
		points = w.runChild(order{Op: opReset, Work: w.first, Decision: person}).Points
		w.mustBeReset("after a reset in a process of its own")
	})
	if t.Failed() {
		t.FailNow()
	}
	s.breakAtSome(t, "reset_killed", breakKill, points, resetKilled)
	s.breakAtSome(t, "reset_stopped", breakStop, points, resetStopped)
}

func resetKilled(w *world, at int) {
	w.mustApply(w.first, "")
	w.killChild(order{Op: opReset, Work: w.first, Decision: person}, at)
	undone := w.mustReset(w.first)
	w.mustBeReset("after the second attempt of a reset")
	w.mustBeSameUndone(undone, w.mustUndo(w.first, activities.Residue))
	_, err := w.apply(w.first, "")
	w.mustFail("Apply after a reset", err, activities.Fenced)
}

func resetStopped(w *world, at int) {
	w.mustApply(w.first, "")
	sleeper := w.spawn(order{Op: opReset, Work: w.first, Decision: person, Break: breakStop, At: at})
	sleeper.mustStop()
	undone := w.mustReset(w.first)
	w.mustBeReset("after a reset beside a stopped one")
	w.mustApply(w.next, "")
	left := w.manifest()
	sleeper.wake()
	sleeper.wait()
	w.mustBe(left, "after a reset that was stopped before the other has woken up")
	w.mustUndo(w.next, w.Undone)
	w.mustBeReset("after the undo of the next generation")
	w.mustBeSameUndone(undone, w.mustReset(w.first))
}
