package actiontest

import (
	"testing"

	"github.com/seed-62bf7108/unwind/activities"
)

// redoable is the decision of a rollback that can be redone.
var redoable = activities.Decision{Redoable: true, Who: "someone", Why: "to have another look"}

// newRedo returns a forward that repeats a rolled-back one.
func (w *world) newRedo(of forward) forward {
	again := of
	again.Entry.Seq++
	again.Entry.Token = activities.NewToken(of.Entry.Token, "redo", again.Entry.Seq)
	again.Entry.Redoes = of.Entry.Token
	return again
}

// rollBackFirst applies the step and rolls it back so that it can be redone; left is the manifest
// between the two.
func (w *world) rollBackFirst() (left string, again forward) {
	w.t.Helper()
	w.mustApply(w.first, "")
	left = w.manifest()
	w.mustDecide(w.first, redoable, w.Undone)
	w.mustBeBefore("after a rollback")
	return left, w.newRedo(w.first)
}

// mustBeRedone requires that the world is as after the first apply.
func (w *world) mustBeRedone(left, when string) {
	w.t.Helper()
	if now := w.manifest(); !w.Redone(left, now) {
		w.t.Fatalf("%s the world is not as the step had left it:\n%s", when, difference(left, now))
	}
}

// mustRefuse requires that a redo was refused and touched nothing.
func (w *world) mustRefuse(what string, err error, manifest string) {
	w.t.Helper()
	if err == nil {
		w.t.Fatalf("%s succeeded, want it refused", what)
	}
	if got := activities.TypeOf(err); got != activities.Refused && got != activities.StaleApproval {
		w.t.Fatalf("%s failed with %s, want %s or %s: %v", what, got, activities.Refused, activities.StaleApproval, err)
	}
	w.mustBe(manifest, "after "+what)
}

func redoThenUndo(w *world) {
	left, again := w.rollBackFirst()
	result := w.mustApply(again, "")
	w.mustBeRedone(left, "after the redo")
	w.mustSee(again, activities.AsLeft)
	redone := w.manifest()
	w.mustBeSameResult(result, w.mustApply(again, ""))
	w.mustBe(redone, "after a second Apply of the redo")
	_, err := w.apply(w.first, "")
	w.mustFail("Apply of the generation that was rolled back", err, activities.Fenced)
	w.mustUndo(w.first, w.Undone)
	w.mustBe(redone, "after a late Apply and a late Undo of the generation that was rolled back")

	// What was redone is rolled back, and redone, like anything else.
	w.mustDecide(again, redoable, w.Undone)
	w.mustBeBefore("after the rollback of the redo")
	_, err = w.apply(again, "")
	w.mustFail("Apply of the redo that was rolled back", err, activities.Fenced)
	third := w.newRedo(again)
	w.mustApply(third, "")
	w.mustBeRedone(left, "after the redo of the redo")
	w.mustUndo(third, w.Undone)
	w.mustBeBefore("after the undo of the redo of the redo")
}

func redoPlanned(w *world) {
	left, again := w.rollBackFirst()
	before := w.manifest()
	approved := w.mustPlan(again).Digest
	w.mustBe(before, "after the plan of a redo")
	_, err := w.apply(again, activities.DigestOf([]byte("what nobody approved")))
	w.mustFail("a redo with a foreign digest", err, activities.StaleApproval)
	w.mustBe(before, "after a refused redo")
	w.mustApply(again, approved)
	w.mustBeRedone(left, "after the redo")
	w.mustUndo(again, w.Undone)
	w.mustBeBefore("after the undo")
}

func redoReleased(w *world) {
	_, again := w.rollBackFirst()
	before := w.manifest()
	if err := w.release(w.first); err != nil {
		w.t.Fatalf("Release of what was rolled back: %v", err)
	}
	_, err := w.apply(again, "")
	w.mustRefuse("a redo of what is released", err, before)
	w.mustUndo(again, activities.Nothing)
	w.mustBe(before, "after the undo of a refused redo")
	w.mustApply(w.next, "")
	w.mustUndo(w.next, w.Undone)
	w.mustBeBefore("after the undo of the next generation")
}

func redoNotRolledBack(w *world) {
	w.mustApply(w.first, "")
	left := w.manifest()
	again := w.newRedo(w.first)
	_, err := w.apply(again, "")
	w.mustRefuse("a redo of what was not rolled back", err, left)
	w.mustUndo(again, activities.Nothing)
	w.mustBe(left, "after the undo of a refused redo")
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo")
}

// redoDrift rolls back what someone else had changed: the redo brings that back, too.
func redoDrift(w *world) {
	w.mustApply(w.first, "")
	w.Drift(w.t, w.dir)
	drifted := w.manifest()
	shown := w.mustDrift(redoable, "")
	forced := redoable
	forced.Force = shown
	w.mustDecide(w.first, forced, w.Undone)
	w.mustBeBefore("after a forced rollback")
	again := w.newRedo(w.first)
	w.mustApply(again, "")
	w.mustBeRedone(drifted, "after the redo of what was rolled back by force")
	w.mustUndo(again, w.Undone)
	w.mustBeBefore("after the undo of the redo")
}

func redoMeanwhile(w *world) {
	_, again := w.rollBackFirst()
	w.Meanwhile(w.t, w.dir)
	changed := w.manifest()
	_, err := w.apply(again, "")
	w.mustRefuse("a redo of what someone else has changed since the rollback", err, changed)
	w.mustUndo(again, activities.Nothing)
	w.mustBe(changed, "after the undo of a refused redo")
}

// brokenRedos kills and stops processes in the middle of rollbacks and redos.
func (s *suite) brokenRedos(t *testing.T) {
	var undo, apply []string
	t.Run("no_break_redo", func(t *testing.T) {
		w := s.newWorld(t)
		w.mustApply(w.first, "")
		left := w.manifest()
		undo = w.runChild(order{Op: opUndo, Work: w.first, Decision: redoable}).Points
		w.mustBeBefore("after a rollback in a process of its own")
		again := w.newRedo(w.first)
		apply = w.runChild(order{Op: opApply, Work: again}).Points
		w.mustBeRedone(left, "after a redo in a process of its own")
		w.mustUndo(again, w.Undone)
		w.mustBeBefore("after the undo of the redo")
	})
	if t.Failed() {
		t.FailNow()
	}
	s.breakAtSome(t, "rollback_killed", breakKill, undo, rollbackKilled)
	s.breakAtSome(t, "rollback_stopped", breakStop, undo, rollbackStopped)
	s.breakAtSome(t, "redo_killed", breakKill, apply, redoKilled)
	s.breakAtSome(t, "redo_killed_and_retried", breakKill, apply, redoKilledAndRetried)
	s.breakAtSome(t, "redo_stopped", breakStop, apply, redoStopped)
}

func rollbackKilled(w *world, at int) {
	w.mustApply(w.first, "")
	left := w.manifest()
	w.killChild(order{Op: opUndo, Work: w.first, Decision: redoable}, at)
	w.mustDecide(w.first, redoable, w.Undone)
	w.mustBeBefore("after the second attempt of a rollback")
	again := w.newRedo(w.first)
	w.mustApply(again, "")
	w.mustBeRedone(left, "after the redo of a rollback that was killed")
	w.mustUndo(again, w.Undone)
	w.mustBeBefore("after the undo of the redo")
}

// rollbackStopped wakes the first of two rollbacks after the second has been redone.
func rollbackStopped(w *world, at int) {
	w.mustApply(w.first, "")
	left := w.manifest()
	sleeper := w.spawn(order{Op: opUndo, Work: w.first, Decision: redoable, Break: breakStop, At: at})
	sleeper.mustStop()
	w.mustDecide(w.first, redoable, w.Undone)
	w.mustBeBefore("after a rollback beside a stopped one")
	again := w.newRedo(w.first)
	w.mustApply(again, "")
	w.mustBeRedone(left, "after the redo of a rollback beside a stopped one")
	redone := w.manifest()
	sleeper.wake()
	sleeper.wait()
	w.mustBe(redone, "after a rollback that was stopped before the redo has woken up")
	w.mustUndo(again, w.Undone)
	w.mustBeBefore("after the undo of the redo")
}

func redoKilled(w *world, at int) {
	left, again := w.rollBackFirst()
	before := w.manifest()
	w.killChild(order{Op: opApply, Work: again}, at)
	w.mustDecide(again, redoable, w.Undone, activities.Nothing)
	w.mustBeBefore("after the undo of a killed redo")
	_, err := w.apply(again, "")
	w.mustFail("Apply of the redo after its undo", err, activities.Fenced)
	w.mustBeBefore("after a late redo")

	// A world may or may not use up what was kept for a redo that failed.
	third := w.newRedo(w.first)
	third.Entry.Token = activities.NewToken(w.first.Entry.Token, "redo", third.Entry.Seq+1)
	if _, err := w.apply(third, ""); err != nil {
		w.mustRefuse("another redo", err, before)
		return
	}
	w.mustBeRedone(left, "after another redo")
	w.mustUndo(third, w.Undone)
	w.mustBeBefore("after the undo of another redo")
}

func redoKilledAndRetried(w *world, at int) {
	left, again := w.rollBackFirst()
	w.killChild(order{Op: opApply, Work: again}, at)
	w.mustApply(again, "")
	w.mustBeRedone(left, "after a redo that was killed, and tried again")
	w.mustUndo(again, w.Undone)
	w.mustBeBefore("after the undo of the redo")
}

func redoStopped(w *world, at int) {
	_, again := w.rollBackFirst()
	w.first = again
	sleeper := w.spawn(order{Op: opApply, Work: again, Break: breakStop, At: at})
	sleeper.mustStop()
	w.mustUndo(again, w.Undone, activities.Nothing)
	w.mustBeBefore("after the undo of a stopped redo")
	w.outliveSleeper(sleeper)
}
