package actiontest

import "github.com/seed-62bf7108/unwind/activities"

// beside starts a call in a child, which is halfway through (it stops at its first point and is woken) when this returns.
func (w *world) beside(o order) *child {
	w.t.Helper()
	o.Break = breakStop
	c := w.spawn(o)
	c.mustStop()
	c.wake()
	return c
}

func twoAppliesAtOnce(w *world) {
	other := w.beside(order{Op: opApply, Work: w.first})
	one := begin(func() (activities.Result, error) { return w.action.Apply(w.ctx(), w.first.Entry, w.first.Step, "") })
	two := begin(func() (activities.Result, error) { return w.action.Apply(w.ctx(), w.first.Entry, w.first.Step, "") })
	first, err := await(w, "Apply", one)
	if err != nil {
		w.t.Fatalf("Apply beside two others: %v", err)
	}
	second, err := await(w, "Apply", two)
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
	other := w.beside(order{Op: opUndo, Work: w.first})
	one := begin(func() (activities.Undone, error) { return w.action.Undo(w.ctx(), w.first.Entry, none) })
	two := begin(func() (activities.Undone, error) { return w.action.Undo(w.ctx(), w.first.Entry, none) })
	first, errOne := await(w, "Undo", one)
	second, errTwo := await(w, "Undo", two)
	third := other.wait()
	w.mustBeBefore("after three undos at once")
	settled := w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after a fourth undo")
	// A loser may be told so by an error, which is retried; whoever returns an outcome returns the one that is kept.
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
	other := w.beside(order{Op: opApply, Work: w.first})
	applying := begin(func() (activities.Result, error) { return w.action.Apply(w.ctx(), w.first.Entry, w.first.Step, "") })
	undoing := begin(func() (activities.Undone, error) { return w.action.Undo(w.ctx(), w.first.Entry, none) })
	// Whoever comes first: what counts is what the world is afterwards.
	_, _ = await(w, "Apply", applying)
	if undone, err := await(w, "Undo", undoing); err == nil && undone.Outcome != activities.Nothing && undone.Outcome != w.Undone {
		w.t.Fatalf("Undo beside two applies ended %s: %s", undone.Outcome, text(undone))
	}
	other.wait()
	undone := w.mustUndo(w.first, w.Undone, activities.Nothing)
	w.mustBeAsTold(undone, "after an apply and an undo at once, and a further undo")
	_, err := w.apply(w.first, "")
	w.mustFail("Apply after the undo", err, activities.Fenced)
	w.mustBeBefore("after a late Apply")
}
