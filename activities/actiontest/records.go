package actiontest

import (
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// owner is the run that all calls of the suite belong to.
var owner = activities.Owner{Workflow: "actiontest", Run: "the-run"}

// findRecord returns the journal's record of a step; nil if there is none.
func (w *world) findRecord(f forward) *activities.Record {
	w.t.Helper()
	records, problems, err := w.opened.Records.Records(w.ctx())
	if err != nil || len(problems) > 0 {
		w.t.Fatalf("Records: %v; problems: %v", err, problems)
	}
	var found *activities.Record
	for _, r := range records {
		if r.Entry.Token != f.Entry.Token {
			continue
		}
		if found != nil {
			w.t.Fatalf("Records lists the token twice: %s", asJSON(records))
		}
		found = &r
	}
	return found
}

// mustList requires that the journal lists a step in a state, with its owner and its entry.
func (w *world) mustList(f forward, want activities.RecordState) activities.Record {
	w.t.Helper()
	r := w.findRecord(f)
	if r == nil {
		w.t.Fatalf("Records does not list the step, want it %s", want)
	}
	if r.State != want {
		w.t.Fatalf("Records lists the step as %s, want %s: %s", r.State, want, asJSON(r))
	}
	if r.Owner != owner || asJSON(r.Entry) != asJSON(f.Entry) {
		w.t.Fatalf("Records lists the step %s as that of another owner or with another entry:\n%s\nwant %s and\n%s",
			r.State, asJSON(r), asJSON(owner), asJSON(f.Entry))
	}
	if r.Since.IsZero() {
		w.t.Fatalf("Records does not tell since when: %s", asJSON(r))
	}
	return *r
}

func records(w *world) {
	if w.findRecord(w.first) != nil {
		w.t.Fatal("Records lists a step that has not begun")
	}
	w.mustApply(w.first, "")
	left := w.manifest()
	w.mustList(w.first, activities.RecordOpen)
	if err := w.opened.Records.Forget(w.ctx(), w.first.Entry.Token); err == nil {
		w.t.Fatal("Forget of an open token succeeded")
	}
	w.mustList(w.first, activities.RecordOpen)
	until := time.Now().Add(time.Hour).UTC()
	w.mustCommit(w.first, until)
	w.mustCommit(w.first, until.Add(time.Hour))
	if r := w.mustList(w.first, activities.RecordCommitted); !r.Until.Equal(until) || r.Ended.IsZero() {
		w.t.Fatalf("Records lists a committed step without its times, want until %s: %s", until, asJSON(r))
	}
	if err := w.release(w.first); err != nil {
		w.t.Fatalf("Release: %v", err)
	}
	if held, err := w.opened.Records.Hold(w.ctx(), w.first.Entry.Token, owner); err != nil || held {
		w.t.Fatalf("Hold of a committed step that was released: %t, %v", held, err)
	}
	w.mustForget(w.first)
	if w.Lapses {
		w.mustBeBefore("after Commit, Release and Forget")
		left = w.manifest()
	}
	w.mustBe(left, "after Commit, Release and Forget")
	_, err := w.apply(w.first, "")
	w.mustFail("Apply of what is forgotten", err, activities.Fenced)
	w.mustBe(left, "after a late Apply of what is forgotten")
}

// recordsUndone is the other fate of a token.
func recordsUndone(w *world) {
	w.mustApply(w.first, "")
	if w.Drift != nil {
		w.Drift(w.t, w.dir)
		shown := w.mustDrift(redoable, "")
		if r := w.mustList(w.first, activities.RecordUndone); !r.Ended.IsZero() {
			w.t.Fatalf("Records says of an undo that waits for a person that it has ended: %s", asJSON(r))
		}
		w.mustDecide(w.first, activities.Decision{Redoable: true, Force: shown}, w.Undone)
	} else {
		w.mustDecide(w.first, redoable, w.Undone)
	}
	w.mustBeBefore("after the undo")
	before := w.manifest()
	if r := w.mustList(w.first, activities.RecordUndone); r.Ended.IsZero() {
		w.t.Fatalf("Records does not say when the undo has ended: %s", asJSON(r))
	}
	w.mustCommit(w.first, time.Now())
	w.mustList(w.first, activities.RecordUndone)
	if err := w.release(w.first); err != nil {
		w.t.Fatalf("Release: %v", err)
	}
	w.mustForget(w.first)
	_, err := w.apply(w.first, "")
	w.mustFail("Apply of what is forgotten", err, activities.Fenced)
	w.mustBe(before, "after a late Apply of what is forgotten")
}

// recordsHeld is a record that two others need: none of it is released before both of them are
// over.
func recordsHeld(w *world) {
	w.mustApply(w.first, "")
	left := w.manifest()
	w.mustBeHeldUntilBothEnd(w.first, func() {
		w.mustBe(left, "after a Release that is refused")
	})
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo of a step whose Release was refused")
	w.mustApply(w.next, "")
	w.mustBeHeldUntilBothEnd(w.next, func() {})
	if err := w.release(w.next); err != nil {
		w.t.Fatalf("Release after both holds have ended: %v", err)
	}
	w.mustList(w.next, activities.RecordReleased)
	if held, err := w.opened.Records.Hold(w.ctx(), w.next.Entry.Token, owner); err != nil || held {
		w.t.Fatalf("Hold of a step that was released: %t, %v", held, err)
	}
}

// mustBeHeldUntilBothEnd holds a step for two holders, and ends both holds. Its Release must be
// refused until then.
func (w *world) mustBeHeldUntilBothEnd(f forward, refused func()) {
	w.t.Helper()
	holders := []activities.Owner{{Workflow: "one", Run: "run"}, {Workflow: "another", Run: "run"}}
	for range 2 { // a hold is told once
		for _, holder := range holders {
			if held, err := w.opened.Records.Hold(w.ctx(), f.Entry.Token, holder); err != nil || !held {
				w.t.Fatalf("Hold: %t, %v", held, err)
			}
		}
	}
	for len(holders) > 0 {
		if r := w.mustList(f, activities.RecordOpen); !slices.Equal(r.Holders, holders) {
			w.t.Fatalf("Records lists the holders %s, want %s", asJSON(r.Holders), asJSON(holders))
		}
		w.mustFail("Release of a step that is held", w.release(f), activities.Fenced)
		refused()
		for range 2 {
			if err := w.opened.Records.EndHold(w.ctx(), f.Entry.Token, holders[0]); err != nil {
				w.t.Fatalf("EndHold: %v", err)
			}
		}
		holders = holders[1:]
	}
	if r := w.mustList(f, activities.RecordOpen); len(r.Holders) > 0 {
		w.t.Fatalf("Records lists holders that are over: %s", asJSON(r.Holders))
	}
}

// recordsAbandoned is an undo that waits for a person who leaves the world as it is.
func recordsAbandoned(w *world) {
	w.mustApply(w.first, "")
	w.mustAbandon(w.first)
	w.mustList(w.first, activities.RecordOpen)
	w.Drift(w.t, w.dir)
	drifted := w.manifest()
	shown := w.mustDrift(noDecision, "")
	if w.release(w.first) == nil {
		w.t.Fatal("Release succeeded while an undo waits for a person")
	}
	w.mustList(w.first, activities.RecordUndone)
	w.mustAbandon(w.first)
	w.mustAbandon(w.first)
	if r := w.mustList(w.first, activities.RecordUndone); r.Ended.IsZero() {
		w.t.Fatalf("Records does not say that the undo was given up: %s", asJSON(r))
	}
	if err := w.release(w.first); err != nil {
		w.t.Fatalf("Release: %v", err)
	}
	w.mustDecide(w.first, activities.Decision{Force: shown}, activities.Residue)
	w.mustBe(drifted, "after an Undo of what was given up")
	_, err := w.apply(w.first, "")
	w.mustFail("Apply of what was given up", err, activities.Fenced)
	w.mustForget(w.first)
	w.mustBe(drifted, "after all")
}

func (w *world) mustAbandon(f forward) {
	w.t.Helper()
	if err := w.opened.Records.Abandon(w.ctx(), f.Entry.Token); err != nil {
		w.t.Fatalf("Abandon: %v", err)
	}
}

func (w *world) mustCommit(f forward, until time.Time) {
	w.t.Helper()
	if err := w.opened.Records.Commit(w.ctx(), f.Entry.Token, until); err != nil {
		w.t.Fatalf("Commit: %v", err)
	}
}

// mustForget requires that a released step is listed until it is forgotten, and no longer.
func (w *world) mustForget(f forward) {
	w.t.Helper()
	if r := w.mustList(f, activities.RecordReleased); r.Ended.IsZero() {
		w.t.Fatalf("Records does not say when the step was released: %s", asJSON(r))
	}
	for range 2 {
		if err := w.opened.Records.Forget(w.ctx(), f.Entry.Token); err != nil {
			w.t.Fatalf("Forget: %v", err)
		}
	}
	if r := w.findRecord(f); r != nil {
		w.t.Fatalf("Records lists what is forgotten: %s", asJSON(r))
	}
}
