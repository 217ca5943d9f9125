package actiontest

import "github.com/seed-62bf7108/unwind/activities"

// unapproved is a forward that a person must approve, in a worker that calls the action as an
// engine does: because of its change, or because the worker's config demands it.
func unapproved(w *world) {
	var nobody activities.Approval
	if w.mustPlan(w.next).Asks(nobody.Consent) == "" {
		nobody.Floor = activities.Floor{Level: activities.Always, Pattern: "*"}
	}
	w.mustAsk(w.next, nobody)
	w.mustUndo(w.next, activities.Nothing)
	w.mustBe(w.before, "after the undo of a refused Apply")

	nobody.Floor = activities.Floor{Level: activities.Always, Pattern: "*"}
	waived := nobody
	waived.Consent = activities.Waived
	w.mustAsk(w.first, waived)
	w.mustAsk(w.first, nobody)

	somebody := nobody
	somebody.Consent = activities.Approved
	first, err := w.applyJudged(w.first, somebody, w.mustPlan(w.first).Digest)
	if err != nil {
		w.t.Fatalf("Apply of what was approved: %v", err)
	}
	left := w.manifest()
	again, err := w.applyJudged(w.first, nobody, "")
	if err != nil {
		w.t.Fatalf("Apply of what was done: %v", err)
	}
	w.mustBeSameResult(first, again)
	w.mustBe(left, "after an Apply of what was done")
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo")
}

// applyJudged calls Apply as a worker does.
func (w *world) applyJudged(f forward, a activities.Approval, want activities.Digest) (activities.Result, error) {
	return callBounded(w, "Apply", func() (activities.Result, error) {
		return w.action.Apply(activities.WithApproval(w.ctx(), a), f.Entry, f.Step, want)
	})
}

// mustAsk requires that Apply refuses what nobody has approved, and touches nothing.
func (w *world) mustAsk(f forward, a activities.Approval) {
	w.t.Helper()
	_, err := w.applyJudged(f, a, "")
	w.mustFail("Apply of what nobody has approved", err, activities.Asks)
	w.mustBe(w.before, "after a refused Apply")
	if lists(w) && w.findRecord(f) != nil {
		w.t.Fatal("a refused Apply has left a record")
	}
}
