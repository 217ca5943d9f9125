package actiontest

import (
	"reflect"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

// noDecision means that nobody has decided anything.
var noDecision activities.Decision

func applyThenUndo(w *world) {
	w.mustApply(w.first, "")
	if !w.action.Spec().ReadOnly && w.Undone != activities.Nothing && w.manifest() == w.before {
		w.t.Fatal("the step changed nothing that the manifest shows: this case tests nothing")
	}
	w.mustSee(w.first, activities.AsLeft)
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo")
	w.mustSee(w.first, w.afterUndo())
	_, err := w.apply(w.first, "")
	w.mustFail("Apply after the undo", err, activities.Fenced)
	w.mustBeBefore("after a late Apply")
}

// afterUndo is what Observe reports about a step that acted and was undone.
func (w *world) afterUndo() activities.State {
	if w.Undone == activities.Final {
		return activities.AsLeft
	}
	return activities.AsBefore
}

func planTouchesNothing(w *world) {
	change := w.mustPlan(w.first)
	w.mustBe(w.before, "after Plan")
	if again := w.mustPlan(w.first); again.Digest != change.Digest {
		w.t.Fatalf("two plans of the same change have two digests, %s and %s", change.Digest, again.Digest)
	}
	if other := w.mustPlan(w.next); other.Digest == change.Digest {
		w.t.Fatal("another change has the same digest")
	}
	w.mustUndo(w.first, activities.Nothing)
	w.mustBe(w.before, "after the undo of a mere plan")
	_, err := w.apply(w.first, "")
	w.mustFail("Apply after the undo of its plan", err, activities.Fenced)
	if err := w.release(w.next); err != nil {
		w.t.Fatalf("Release of a mere plan: %v", err)
	}
	_, err = w.apply(w.next, "")
	w.mustFail("Apply after the release of its plan", err, activities.Fenced)
	w.mustBe(w.before, "after all")
}

func undoWithoutApply(w *world) {
	w.mustUndo(w.first, activities.Nothing)
	w.mustBe(w.before, "after the undo of nothing")
	_, err := w.apply(w.first, "")
	w.mustFail("Apply after the undo", err, activities.Fenced)
	w.mustBe(w.before, "after a late Apply")
	w.mustUndo(w.first, activities.Nothing)
}

func applyTwice(w *world) {
	first := w.mustApply(w.first, "")
	left := w.manifest()
	again := w.mustApply(w.first, "")
	w.mustBe(left, "after a second Apply")
	w.mustBeSameResult(first, again)
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo")
}

// mustBeSameResult compares two results of one step except for their notes, which may say how they
// were obtained.
func (w *world) mustBeSameResult(a, b activities.Result) {
	w.t.Helper()
	a.Notes, b.Notes = nil, nil
	if asJSON(a) != asJSON(b) {
		w.t.Fatalf("a second Apply returned another result:\n%s\n%s", asJSON(a), asJSON(b))
	}
}

func undoTwice(w *world) {
	w.mustApply(w.first, "")
	first := w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo")
	left := w.manifest()
	w.mustBeSameUndone(first, w.mustUndo(w.first, w.Undone))
	w.mustBe(left, "after a second Undo")
	if err := w.release(w.first); err != nil {
		w.t.Fatalf("Release after the undo: %v", err)
	}
	w.mustBeSameUndone(first, w.mustUndo(w.first, w.Undone))
	w.mustBe(left, "after Release and a third Undo")
	_, err := w.apply(w.first, "")
	w.mustFail("Apply after undo and release", err, activities.Fenced)
	w.mustBe(left, "after a late Apply")
}

func (w *world) mustBeSameUndone(a, b activities.Undone) {
	w.t.Helper()
	a.Took, b.Took = 0, 0
	if !reflect.DeepEqual(a, b) {
		w.t.Fatalf("a second Undo returned another outcome:\n%s\n%s", asJSON(a), asJSON(b))
	}
}

// failedCheck is a forward that reports an error, possibly after it has acted.
func failedCheck(w *world) {
	f := w.first
	missing := &activities.CommandCheck{Run: []string{"/nonexistent/program-of-a-failing-check"}}
	f.Step.Checks = append(slices.Clip(f.Step.Checks), activities.Check{When: activities.Live, Command: missing})
	if _, err := w.apply(f, ""); err == nil {
		w.t.Fatal("Apply succeeded although a check of the live target cannot hold")
	}
	undone := w.mustUndo(f, w.Undone, activities.Nothing)
	w.mustMatchOutcome(undone, "after the undo of a step whose check failed")
	_, err := w.apply(f, "")
	w.mustFail("Apply after the undo", err, activities.Fenced)
}
