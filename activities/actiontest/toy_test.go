package actiontest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// flaw is a mistake built into the toy; the suite must find it.
type flaw string

const (
	noFlaw           flaw = ""
	noFence          flaw = "no fence"            // writes wherever the end is now
	recordAfterwards flaw = "record afterwards"   // changes first, records then
	blindUndo        flaw = "blind undo"          // does not look before it overwrites
	loneForce        flaw = "force of anything"   // a force is not bound to what was shown
	rubberStamp      flaw = "rubber stamp"        // does not judge what was approved
	asksNobody       flaw = "asks nobody"         // acts also where a person must approve
	judgesAgain      flaw = "judges again"        // judges also what is half done
	noTombstone      flaw = "no tombstone"        // an undo leaves nothing that a later forward would find
	anyPlace         flaw = "any place"           // does not look at the journal's id
	keepsNothing     flaw = "forgets its outcome" // a second undo undoes again
	showsSecret      flaw = "shows a secret"      // of which the worker does not know when it undoes
	redoesBlindly    flaw = "redoes blindly"      // a redo does not look whether all is as the rollback left it
	redoesAnew       flaw = "redoes anew"         // a redo does what the step says, not what was rolled back
	keepsLate        flaw = "keeps late"          // notes what a redo needs when the undo is over
	keepsForever     flaw = "keeps for ever"      // a release drops nothing of what was rolled back
	nobodys          flaw = "nobody's"            // does not note whose a record is
	endsEarly        flaw = "ends early"          // says of an undo that waits for a person that it has ended
	// It takes a journal that was rewound for the one that the step was compiled with.
	forgetsEpochs flaw = "forgets epochs"
	missesLoss    flaw = "misses a loss" // takes a record that is lost for one that never was
	releasesHeld  flaw = "releases held" // does not ask whether somebody needs the record
)

// shelf is a world of one value. Each change is a new version, a file that can be created only once
// (link(2)), so the second one to create a version knows it: that is the whole fence.
type shelf struct {
	dir     string
	journal *journal.Journal
	flaw    flaw
}

func openShelf(dir string, f flaw) (activities.World, error) {
	j, err := journal.Open(filepath.Join(dir, "journal"))
	if err != nil {
		return activities.World{}, err
	}
	s := &shelf{dir: filepath.Join(dir, "shelf"), journal: j, flaw: f}
	return activities.World{
		Name: "toy", Actions: []activities.Action{s},
		Journal: func(context.Context) (string, error) {
			if f == forgetsEpochs {
				return j.ID(), nil
			}
			return j.Mark()
		},
		Records: journal.Records{Journal: j},
	}, nil
}

type version struct {
	N     int    `json:"-"`
	Value string `json:"value"`
	By    string `json:"by"`
}

// last reads the newest version.
func (s *shelf) last() (v version, err error) {
	for n := 1; ; n++ {
		raw, err := os.ReadFile(s.file(n))
		if errors.Is(err, fs.ErrNotExist) {
			return v, nil
		}
		if err != nil {
			return v, err
		}
		v = version{}
		if err := json.Unmarshal(raw, &v); err != nil {
			return v, err
		}
		v.N = n
	}
}

func (s *shelf) file(n int) string { return filepath.Join(s.dir, fmt.Sprint(n)) }

// put makes version n, unless there is one already.
func (s *shelf) put(v version) (made bool, err error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return false, err
	}
	f, err := os.CreateTemp(s.dir, ".new-")
	if err != nil {
		return false, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.Write(raw); err != nil {
		return false, err
	}
	point.Reach("toy.set:staged")
	err = os.Link(f.Name(), s.file(v.N))
	point.Reach("toy.set:put")
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

type toyParams struct {
	Value string `json:"value"`
}

// toyRecord is the pre-image; a void one was made by an undo that came first.
type toyRecord struct {
	journal.Owned
	Void   bool    `json:"void,omitempty"`
	Before version `json:"before"`
	N      int     `json:"n"`
}

func (s *shelf) Spec() activities.Spec {
	return activities.Spec{
		Name: "toy.set", Summary: "Sets the value on the shelf.", Params: activities.ParamsSchema[toyParams](),
		Keys:       []activities.Key{},
		UndoParams: []string{"value"}, Digested: []string{"value"}, Risk: activities.Low, Strategy: activities.Snapshot,
		Undo: "puts the old value back",
		Redo: "puts the value back that the rollback took away",
	}
}

func (s *shelf) token(e activities.Entry) (*journal.Token, error) {
	if err := s.journal.Check(e.Place.Journal); err != nil && s.flaw != anyPlace {
		return nil, err
	}
	return s.journal.Token(e.Token)
}

func (s *shelf) Plan(_ context.Context, e activities.Entry, step activities.Step) (activities.Change, error) {
	if _, err := s.token(e); err != nil {
		return activities.Change{}, err
	}
	now, err := s.last()
	if err != nil {
		return activities.Change{}, err
	}
	value, err := s.value(e, step, now)
	return activities.Change{
		Summary: "set the value", Diff: "-" + now.Value + "\n+" + value, Strategy: activities.Snapshot, Undo: "puts it back",
		Risk: activities.Low, Digest: activities.DigestOf([]byte(now.Value), []byte(value)),
	}, err
}

// keptDoc holds the number of the version that a rollback took away.
const keptDoc = "kept"

// value returns what a forward sets: in a redo, what was rolled back.
func (s *shelf) value(e activities.Entry, step activities.Step, now version) (string, error) {
	p, err := activities.DecodeParams[toyParams](step.With)
	if err != nil || e.Redoes == "" {
		return p.Value, err
	}
	old, err := s.journal.Token(e.Redoes)
	if err != nil {
		return "", err
	}
	var kept int
	if found, err := old.Read(keptDoc, &kept); err != nil {
		return "", err
	} else if !found {
		return "", activities.Errorf(activities.Refused, "nothing is kept for a redo; run the task again")
	}
	if now.N != kept+1 && now.By != e.Token && s.flaw != redoesBlindly {
		return "", activities.Errorf(activities.Refused,
			"someone has set another value since the rollback; run the task again")
	}
	if s.flaw == redoesAnew {
		return p.Value, nil
	}
	raw, err := os.ReadFile(s.file(kept))
	if err != nil {
		return "", err
	}
	var v version
	err = json.Unmarshal(raw, &v)
	return v.Value, err
}

// own returns the owner of a record.
func (s *shelf) own(ctx context.Context, e activities.Entry) journal.Owned {
	if s.flaw == nobodys {
		return journal.Owned{}
	}
	return journal.Own(ctx, e)
}

func (s *shelf) Apply(ctx context.Context, e activities.Entry, step activities.Step,
	want activities.Digest) (activities.Result, error) {
	var none activities.Result
	t, err := s.token(e)
	if err != nil {
		return none, err
	}
	unlock, err := t.Lock(ctx)
	if err != nil {
		return none, err
	}
	defer unlock()
	if err := t.CheckOpen(); err != nil {
		return none, err
	}
	change, err := s.Plan(ctx, e, step)
	if err != nil {
		return none, err
	}
	var rec toyRecord
	found, err := t.Read(journal.Record, &rec)
	if err != nil {
		return none, err
	}
	if !found && s.flaw != asksNobody {
		if err := activities.Judge(ctx, change); err != nil {
			return none, err
		}
	}
	if want != "" && want != change.Digest && (!found && s.flaw != rubberStamp || s.flaw == judgesAgain) {
		return none, activities.Errorf(activities.StaleApproval, "this is not what was approved")
	}
	now, err := s.last()
	if err != nil {
		return none, err
	}
	value, err := s.value(e, step, now)
	if err != nil {
		return none, err
	}
	if s.flaw == recordAfterwards && now.By != e.Token {
		if _, err := s.put(version{N: now.N + 1, Value: value, By: e.Token}); err != nil {
			return none, err
		}
	}
	point.Reach("toy.set:looked")
	rec = toyRecord{Owned: s.own(ctx, e), Before: now, N: now.N + 1}
	if _, err := t.Create(journal.Record, &rec); err != nil {
		return none, err
	}
	point.Reach("toy.set:recorded")
	if rec.Void {
		return none, activities.Errorf(activities.Fenced, "the step was undone")
	}
	n := rec.N
	if s.flaw == noFence {
		if now, err = s.last(); err != nil || now.By == e.Token {
			return done(err)
		}
		n = now.N + 1
	}
	if _, err := s.put(version{N: n, Value: value, By: e.Token}); err != nil {
		return none, err
	}
	if now, err = s.last(); err != nil {
		return none, err
	}
	if now.By != e.Token {
		return none, activities.Errorf(activities.Fenced, "someone else has set the value")
	}
	if _, err := t.Create(journal.Applied, &now); err != nil {
		return none, err
	}
	point.Reach("toy.set:applied")
	return done(activities.RunChecks(ctx, step.Checks, activities.Live, activities.Live, s))
}

func done(err error) (activities.Result, error) { return activities.Result{Summary: "set"}, err }

func (s *shelf) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	var undone activities.Undone
	t, err := s.token(e)
	if err != nil {
		return undone, err
	}
	if found, err := t.Read(journal.Outcome, &undone); found || err != nil {
		return undone, err
	}
	if s.flaw != noTombstone {
		fate, err := t.Decide(journal.Undoing)
		if err != nil {
			return undone, err
		}
		if fate != journal.Undoing {
			return undone, activities.Errorf(activities.Fenced, "the step was released")
		}
		point.Reach("toy.set:undo-begun")
	}
	if found, err := t.Read(journal.Record, &toyRecord{}); err != nil {
		return undone, err
	} else if !found && s.flaw != missesLoss {
		if err := t.CheckNotLost(d.Done); err != nil {
			return undone, err
		}
	}
	rec := toyRecord{Owned: s.own(ctx, e), Void: true}
	if s.flaw == noTombstone {
		if found, err := t.Read(journal.Record, &rec); err != nil || !found {
			return activities.Undone{Outcome: activities.Nothing}, err
		}
	} else if _, err := t.Create(journal.Record, &rec); err != nil {
		return undone, err
	}
	point.Reach("toy.set:undo-fenced")
	if undone, err = s.back(e, rec, d); err != nil || s.flaw == keepsNothing {
		return undone, err
	}
	if undone.Outcome == activities.Drifted {
		if s.flaw == endsEarly {
			_, err = t.Create(journal.Outcome, &undone)
		}
		return undone, err
	}
	if s.flaw != keepsLate {
		err = s.keep(t, d)
	}
	if err != nil {
		return undone, err
	}
	_, err = t.Create(journal.Outcome, &undone)
	point.Reach("toy.set:undone")
	if s.flaw == keepsLate && err == nil {
		err = s.keep(t, d)
	}
	return undone, err
}

// keep records which version the undo has removed: the one before the last.
func (s *shelf) keep(t *journal.Token, d activities.Decision) error {
	if !d.Redoable {
		return nil
	}
	now, err := s.last()
	if err != nil {
		return err
	}
	kept := now.N - 1
	_, err = t.Create(keptDoc, &kept)
	point.Reach("toy.set:kept")
	return err
}

func (s *shelf) back(e activities.Entry, rec toyRecord, d activities.Decision) (activities.Undone, error) {
	if rec.Void {
		return activities.Undone{Outcome: activities.Nothing}, nil
	}
	// Use up the version that the forward would make: either the forward has made it, or this is the
	// fence.
	if _, err := s.put(version{N: rec.N, Value: rec.Before.Value, By: e.Token + " fence"}); err != nil {
		return activities.Undone{}, err
	}
	now, err := s.last()
	if err != nil {
		return activities.Undone{}, err
	}
	switch now.By {
	case e.Token + " fence":
		return activities.Undone{Outcome: activities.Nothing}, nil
	case e.Token + " undo":
		return activities.Undone{Outcome: activities.Restored}, nil
	case e.Token:
	default:
		if drift := s.drift(now); d.Force != drift.Digest && s.flaw != blindUndo && (s.flaw != loneForce || d.Force == "") {
			return activities.Undone{Outcome: activities.Drifted, Drift: drift}, nil
		}
	}
	made, err := s.put(version{N: now.N + 1, Value: rec.Before.Value, By: e.Token + " undo"})
	if err != nil || made {
		return activities.Undone{Outcome: activities.Restored}, err
	}
	return s.back(e, rec, d) // someone was faster: observe again
}

func (s *shelf) drift(now version) *activities.Drift {
	diff := "someone set another value"
	if s.flaw == showsSecret {
		diff = "+" + now.Value
	}
	return &activities.Drift{Digest: activities.DigestOf(fmt.Append(nil, now.N, now.Value)), Diff: diff}
}

func (s *shelf) Observe(_ context.Context, e activities.Entry) (activities.Observation, error) {
	if _, err := s.token(e); err != nil {
		return activities.Observation{}, err
	}
	now, err := s.last()
	switch now.By {
	case e.Token:
		return activities.Observation{State: activities.AsLeft}, err
	case e.Token + " undo":
		return activities.Observation{State: activities.AsBefore}, err
	}
	return activities.Observation{State: activities.Elsewise, Drift: s.drift(now)}, err
}

func (s *shelf) Release(_ context.Context, e activities.Entry) error {
	t, err := s.token(e)
	if err != nil {
		return err
	}
	decide := t.DecideReleasing
	if s.flaw == releasesHeld {
		decide = func() (journal.Fate, error) { return t.Decide(journal.Releasing) }
	}
	fate, err := decide()
	if err != nil || fate == journal.Undoing && s.flaw == keepsForever {
		return err
	}
	return errors.Join(t.Drop(journal.Record), t.Drop(journal.Applied), t.Drop(keptDoc), t.MarkReleased())
}

// The shelf as the scene of checks.
func (s *shelf) Target() string                                   { return "" }
func (s *shelf) ReadFile(context.Context, string) ([]byte, error) { return nil, fs.ErrNotExist }
func (s *shelf) Run(_ context.Context, argv []string) ([]byte, error) {
	return nil, fmt.Errorf("no %s", argv[0])
}

// shelfCase is the conformance case of the toy.
func shelfCase(f flaw) actiontest.Case {
	set := func(by, value string) func(testing.TB, string) {
		return func(t testing.TB, dir string) {
			s := &shelf{dir: filepath.Join(dir, "shelf")}
			if err := os.MkdirAll(s.dir, 0o700); err != nil {
				t.Fatal(err)
			}
			now, err := s.last()
			if err == nil {
				_, err = s.put(version{N: now.N + 1, Value: now.Value + value, By: by})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return actiontest.Case{
		Name:      "shelf " + string(f),
		Action:    "toy.set",
		Start:     set("the test", "old"),
		Open:      func(dir string) (activities.World, error) { return openShelf(dir, f) },
		With:      func(string) any { return toyParams{"new, with a secret: correct horse"} },
		Next:      func(string) any { return toyParams{"newer"} },
		Drift:     set("someone", "+drift"),
		Meanwhile: set("someone", "+meanwhile"),
		Secret:    "correct horse",
		Manifest: func(t testing.TB, dir string) string {
			now, err := (&shelf{dir: filepath.Join(dir, "shelf")}).last()
			if err != nil {
				t.Fatal(err)
			}
			return now.Value
		},
	}
}
