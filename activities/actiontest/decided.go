package actiontest

import (
	"bytes"

	"github.com/seed-62bf7108/unwind/activities"
)

func staleDigest(w *world) {
	if w.action.Spec().ReadOnly {
		return
	}
	approved := w.mustPlan(w.first).Digest
	_, err := w.apply(w.first, activities.DigestOf([]byte("what nobody approved")))
	w.mustFail("Apply with a foreign digest", err, activities.StaleApproval)
	w.mustBe(w.before, "after a refused Apply")

	if other := w.first; !bytes.Equal(w.next.Step.With, other.Step.With) {
		other.Step.With = w.next.Step.With
		_, err = w.apply(other, approved)
		w.mustFail("Apply of another change than the approved one", err, activities.StaleApproval)
		w.mustBe(w.before, "after a refused Apply")
	}

	// Back to the gate: the same step is approved again.
	w.mustApply(w.first, w.mustPlan(w.first).Digest)
	left := w.manifest()
	w.mustApply(w.first, activities.DigestOf([]byte("judged once only")))
	w.mustBe(left, "after an Apply of what was done")
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo")
}

func changedMeanwhile(w *world) {
	approved := w.mustPlan(w.first).Digest
	w.Meanwhile(w.t, w.dir)
	w.before = w.manifest()
	_, err := w.apply(w.first, approved)
	w.mustFail("Apply to a target that changed since the approval", err, activities.StaleApproval)
	w.mustBe(w.before, "after a refused Apply")
	anew := w.mustPlan(w.first).Digest
	if anew == approved {
		w.t.Fatal("the digest does not cover the target: it is the same before and after a change of it")
	}
	w.mustApply(w.first, anew)
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo")
}

func release(w *world) {
	w.mustApply(w.first, "")
	left := w.manifest()
	for range 2 {
		if err := w.release(w.first); err != nil {
			w.t.Fatalf("Release: %v", err)
		}
	}
	if w.Lapses {
		w.mustBeBefore("after Release")
		left = w.manifest()
	}
	w.mustBe(left, "after Release")
	_, err := w.apply(w.first, "")
	w.mustFail("Apply after Release", err, activities.Fenced)
	w.mustBe(left, "after a late Apply")
	undone, err := w.undo(w.first, noDecision)
	if err == nil && undone.Outcome != activities.Final {
		w.t.Fatalf("Undo after Release says %s: %s", undone.Outcome, asJSON(undone))
	}
	if err != nil {
		w.mustFail("Undo after Release", err, activities.Fenced)
	}
	w.mustBe(left, "after a late Undo")
}

func wrongPlace(w *world) {
	// The id of a journal that was made in another place, and one that no journal has.
	lost := (&suite{Case: w.Case}).newWorld(w.t)
	for _, id := range []string{lost.first.Entry.Place.Journal, "", "no-such-journal"} {
		f := w.first
		f.Entry.Place.Journal = id
		_, err := w.plan(f)
		w.mustFail("Plan", err, activities.WrongPlace)
		_, err = w.apply(f, "")
		w.mustFail("Apply", err, activities.WrongPlace)
		_, err = w.undo(f, noDecision)
		w.mustFail("Undo", err, activities.WrongPlace)
		_, err = w.observe(f)
		w.mustFail("Observe", err, activities.WrongPlace)
		w.mustFail("Release", w.release(f), activities.WrongPlace)
		w.mustBe(w.before, "after calls in a wrong place")
	}
	w.mustApply(w.first, "")
	left := w.manifest()
	f := w.first
	f.Entry.Place.Journal = lost.first.Entry.Place.Journal
	_, err := w.undo(f, noDecision)
	w.mustFail("Undo in a wrong place", err, activities.WrongPlace)
	w.mustBe(left, "after an Undo in a wrong place")
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo")
}

func drift(w *world) {
	w.mustApply(w.first, "")
	w.Drift(w.t, w.dir)
	drifted := w.manifest()
	shown := w.mustDrift(noDecision, "")
	w.mustBe(drifted, "after an Undo that saw drift")
	w.mustSee(w.first, activities.Elsewise)
	if again := w.mustDrift(noDecision, ""); again != shown {
		w.t.Fatalf("the same drift has two digests, %s and %s", shown, again)
	}

	w.Drift(w.t, w.dir)
	more := w.manifest()
	if more == drifted {
		w.t.Fatal("the case's Drift makes the same change at each call; the manifest must show another one each time")
	}
	second := w.mustDrift(activities.Decision{Force: shown, Who: "someone", Why: "of what was shown"}, shown)
	w.mustBe(more, "after a force of what is there no more")

	w.mustDecide(w.first, activities.Decision{Force: second, Who: "someone", Why: "of what was shown"}, w.Undone)
	w.mustBeBefore("after the forced undo")
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after a further undo")
}

// mustDrift requires that Undo reports a drift other than old, and returns its digest.
func (w *world) mustDrift(d activities.Decision, old activities.Digest) activities.Digest {
	w.t.Helper()
	undone := w.mustDecide(w.first, d, activities.Drifted)
	if undone.Drift == nil || undone.Drift.Digest == "" || undone.Drift.Diff == "" {
		w.t.Fatalf("Drifted without a digest or a diff: %s", asJSON(undone))
	}
	if undone.Drift.Digest == old {
		w.t.Fatal("another drift has the same digest")
	}
	return undone.Drift.Digest
}
