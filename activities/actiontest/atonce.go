package actiontest

import "github.com/seed-62bf7108/unwind/activities"

// startHalfway starts a call in a child, and returns when the child is halfway: it has stopped at
// its first point and was woken.
func (w *world) startHalfway(o order) *child {
	w.t.Helper()
	o.Break = breakStop
	c := w.spawn(o)
	c.mustStop()
	c.wake()
	return c
}

func twoAppliesAtOnce(w *world) {
	other := w.startHalfway(order{Op: opApply, Work: w.first})
	one := startCall(func() (activities.Result, error) { return w.action.Apply(w.ctx(), w.first.Entry, w.first.Step, "") })
	two := startCall(func() (activities.Result, error) { return w.action.Apply(w.ctx(), w.first.Entry, w.first.Step, "") })
	first, err := awaitAnswer(w, "Apply", one)
	if err != nil {
		w.t.Fatalf("Apply beside two others: %v", err)
	}
	second, err := awaitAnswer(w, "Apply", two)
	if err != nil {
		w.t.Fatalf("Apply beside two others: %v", err)
	}
	third := other.wait()
	if third.Error != "" {
		w.t.Fatalf("Apply beside two others: %s", third.Error)
	}
	left := w.manifest()
	w.mustBeSameResult(first, second)
	w.mustBeSameResult(first, third.Result)
	w.mustBeSameResult(first, w.mustApply(w.first, ""))
	w.mustBe(left, "after a fourth Apply")
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo")
}

func twoUndosAtOnce(w *world) {
	w.mustApply(w.first, "")
	other := w.startHalfway(order{Op: opUndo, Work: w.first})
	one := startCall(func() (activities.Undone, error) { return w.action.Undo(w.ctx(), w.first.Entry, noDecision) })
	two := startCall(func() (activities.Undone, error) { return w.action.Undo(w.ctx(), w.first.Entry, noDecision) })
	first, errOne := awaitAnswer(w, "Undo", one)
	second, errTwo := awaitAnswer(w, "Undo", two)
	third := other.wait()
	w.mustBeBefore("after three undos at once")
	settled := w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after a fourth undo")
	// The loser may get an error, which is retried; an outcome that is returned must be the one that
	// is kept.
	won := 0
	for _, each := range []answer[activities.Undone]{{first, errOne}, {second, errTwo}} {
		if each.err == nil {
			won++
			w.mustBeSameUndone(settled, each.value)
		}
	}
	if third.Error == "" {
		won++
		w.mustBeSameUndone(settled, third.Undone)
	}
	if won == 0 {
		w.t.Fatalf("none of three undos at once succeeded: %v; %v; %s", errOne, errTwo, third.Error)
	}
}

func applyAndUndoAtOnce(w *world) {
	other := w.startHalfway(order{Op: opApply, Work: w.first})
	applying := startCall(func() (activities.Result,
		error) {
		return w.action.Apply(w.ctx(), w.first.Entry, w.first.Step, "")
	})
	undoing := startCall(func() (activities.Undone, error) { return w.action.Undo(w.ctx(), w.first.Entry, noDecision) })
	// Either may come first: only the state of the world afterwards counts.
	_, _ = awaitAnswer(w, "Apply", applying)
	if undone, err := awaitAnswer(w, "Undo", undoing); err == nil && undone.Outcome != activities.Nothing &&
		undone.Outcome != w.Undone {
		w.t.Fatalf("Undo beside two applies ended %s: %s", undone.Outcome, asJSON(undone))
	}
	other.wait()
	undone := w.mustUndo(w.first, w.Undone, activities.Nothing)
	w.mustMatchOutcome(undone, "after an apply and an undo at once, and a further undo")
	_, err := w.apply(w.first, "")
	w.mustFail("Apply after the undo", err, activities.Fenced)
	w.mustBeBefore("after a late Apply")
}
