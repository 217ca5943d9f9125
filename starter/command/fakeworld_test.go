package command

import (
	"context"
	"fmt"
	"sync"

	"github.com/seed-62bf7108/unwind/activities"
)

// fakeWorld is a world of values by key, in memory, that keeps the contract of an action.
type fakeWorld struct {
	mu      sync.Mutex
	values  map[string]string
	records map[string]*fakeRecord // by token
	waiting chan struct{}          // one for each fake.wait that has begun
	broken  bool                   // undos fail for good
	failing string                 // setting this key fails
	slow    chan struct{}          // receives once for each plan and each undo of a fake.slow before it ends
	away    string                 // the call of a fake.remote that fails, and is retried
	journal activities.Records     // nil: it keeps none
}

type fakeRecord struct {
	key, before, after string
	undone             *activities.Undone
}

func newFakeWorld() *fakeWorld {
	return &fakeWorld{values: map[string]string{}, records: map[string]*fakeRecord{}, waiting: make(chan struct{}, 10),
		slow: make(chan struct{})}
}

func (w *fakeWorld) world() activities.World {
	return activities.World{
		Name:    "fake",
		Actions: []activities.Action{fakeSet{w}, fakeWait{fakeSet{w}}, fakeSlow{fakeSet{w}}, fakeRemote{fakeSet{w}}, fakeGet{fakeSet{w}}},
		Journal: func(context.Context) (string, error) { return "fake-journal", nil }, Records: w.journal,
	}
}

func (w *fakeWorld) set(key, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.values[key] = value
}

// fail has whatever sets a key fail after it has acted; an empty key: nothing.
func (w *fakeWorld) fail(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing = key
}

func (w *fakeWorld) get(key string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.values[key]
}

func (w *fakeWorld) breakUndo(broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = broken
}

type fakeParams struct {
	Key   string `json:"key" jsonschema:"which one"`
	Value string `json:"value" jsonschema:"its new content"`
	// Fail makes the step fail after it has acted.
	Fail bool `json:"fail,omitempty" jsonschema:"fail after the change"`
}

// fakeSet sets a value.
type fakeSet struct{ *fakeWorld }

func (fakeSet) Spec() activities.Spec {
	return activities.Spec{
		Name: "fake.set", Summary: "Sets a value in memory", Params: activities.ParamsSchema[fakeParams](),
		Outputs:    map[string]string{"before": "what the value was"},
		UndoParams: []string{"key", "value"}, Keys: []activities.Key{{Prefix: "fake:", Param: "key"}},
		Risk: activities.Low, Strategy: activities.Snapshot, Undo: "puts the old value back",
	}
}

func (a fakeSet) Plan(_ context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := activities.DecodeParams[fakeParams](s.With)
	if err != nil {
		return activities.Change{}, err
	}
	now := a.get(p.Key)
	return activities.Change{
		Summary: fmt.Sprintf("set %s from %q to %q", p.Key, now, p.Value), Diff: fmt.Sprintf("-%s\n+%s\n", now, p.Value),
		Strategy: activities.Snapshot, Undo: "puts the old value back", Losses: []string{"who read it meanwhile"},
		Risk: activities.Medium, Facts: []string{"somebody reads it"},
		Digest: activities.DigestOf([]byte(now), []byte(p.Value)),
	}, nil
}

func (a fakeSet) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	_ activities.Digest) (activities.Result, error) {
	p, err := activities.DecodeParams[fakeParams](s.With)
	if err != nil {
		return activities.Result{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.records[e.Token]
	if r == nil {
		r = &fakeRecord{key: p.Key, before: a.values[p.Key], after: p.Value}
		a.records[e.Token] = r
	}
	a.values[p.Key] = p.Value
	activities.MaskerFrom(ctx).Add(secretValue)
	if p.Fail || p.Key == a.failing {
		return activities.Result{}, activities.Errorf(activities.ActionDenied, "%s was set, but does not work", p.Key)
	}
	return activities.Result{Summary: fmt.Sprintf("set %s to %q", p.Key, p.Value),
		Outputs: map[string]any{"before": r.before}}, nil
}

func (a fakeSet) Undo(_ context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.records[e.Token]
	if r == nil {
		r = &fakeRecord{undone: &activities.Undone{Outcome: activities.Nothing, Observed: "it never acted"}}
		a.records[e.Token] = r
	}
	if r.undone != nil {
		return *r.undone, nil
	}
	if a.broken {
		return activities.Undone{}, activities.Errorf(activities.DamagedRecord, "the record of %s is damaged", r.key)
	}
	if now := a.values[r.key]; now != r.after {
		drift := activities.Drift{Digest: activities.DigestOf([]byte(now)), Diff: fmt.Sprintf("-%s\n+%s\n", r.after, now)}
		if d.Force != drift.Digest {
			return activities.Undone{Outcome: activities.Drifted, Observed: fmt.Sprintf("%s is %q", r.key, now), Drift: &drift},
				nil
		}
	}
	a.values[r.key] = r.before
	r.undone = &activities.Undone{Outcome: activities.Restored, Observed: fmt.Sprintf("%s is %q again", r.key, r.before)}
	return *r.undone, nil
}

func (fakeSet) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.Unseen}, nil
}

func (fakeSet) Release(context.Context, activities.Entry) error { return nil }

// secretValue is a secret of the world.
const secretValue = "quite-a-secret"

// fakeGet reads a value.
type fakeGet struct{ fakeSet }

func (a fakeGet) Spec() activities.Spec {
	s := a.fakeSet.Spec()
	s.Name, s.Summary, s.ReadOnly, s.UndoParams, s.Strategy, s.Undo = "fake.get", "Reads a value", true, nil, activities.NoUndo, ""
	return s
}

func (a fakeGet) Apply(_ context.Context, _ activities.Entry, s activities.Step,
	_ activities.Digest) (activities.Result, error) {
	p, err := activities.DecodeParams[fakeParams](s.With)
	return activities.Result{Outputs: map[string]any{"before": a.get(p.Key)}}, err
}

// fakeWait runs until it is cancelled, and tells how far it has come.
type fakeWait struct{ fakeSet }

func (fakeWait) Spec() activities.Spec {
	return activities.Spec{
		Name: "fake.wait", Summary: "Waits for ever", Params: activities.ParamsSchema[struct{}](), Keys: []activities.Key{},
		Risk: activities.Low, Strategy: activities.Snapshot, Undo: "nothing to do",
	}
}

func (a fakeWait) Apply(ctx context.Context, _ activities.Entry, _ activities.Step,
	_ activities.Digest) (activities.Result, error) {
	activities.MaskerFrom(ctx).Add(secretValue)
	defer activities.ShowProgress(ctx,
		func() []string { return []string{"at first", "copied 2 of 9", "with " + secretValue + " at hand"} })()
	a.waiting <- struct{}{}
	<-ctx.Done()
	return activities.Result{}, ctx.Err()
}

// fakeSlow sets a value. Its plans and undos wait until they are let go on, and tell how far they
// have come.
type fakeSlow struct{ fakeSet }

func (a fakeSlow) Spec() activities.Spec {
	s := a.fakeSet.Spec()
	s.Name = "fake.slow"
	return s
}

func (a fakeSlow) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	defer activities.ShowProgress(ctx, func() []string { return []string{"read 2 of 9"} })()
	a.slow <- struct{}{}
	return a.fakeSet.Plan(ctx, e, s)
}

func (a fakeSlow) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	defer activities.ShowProgress(ctx, func() []string { return []string{"put back 2 of 9"} })()
	a.slow <- struct{}{}
	return a.fakeSet.Undo(ctx, e, d)
}

// fakeRemote sets a value somewhere that does not always answer. That it has been set is not always
// known either.
type fakeRemote struct{ fakeSet }

func (a fakeRemote) Spec() activities.Spec {
	s := a.fakeSet.Spec()
	s.Name, s.Commits = "fake.remote", true
	return s
}

// lose has one kind of call fail, until another is named.
func (w *fakeWorld) lose(call string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = call
}

// reach fails where a kind of call does.
func (w *fakeWorld) reach(ctx context.Context, call string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away != call {
		return nil
	}
	if m := activities.MaskerFrom(ctx); m != nil {
		m.Add(secretValue)
	}
	return activities.Errorf(activities.ActionFailed, "no answer to %s by %s", call, secretValue)
}

func (a fakeRemote) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	if err := a.reach(ctx, "plan"); err != nil {
		return activities.Change{}, err
	}
	return a.fakeSet.Plan(ctx, e, s)
}

func (a fakeRemote) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	d activities.Digest) (activities.Result, error) {
	if err := a.reach(ctx, "apply"); err != nil {
		return activities.Result{}, err
	}
	if a.reach(ctx, "look") != nil {
		return activities.Result{}, activities.Errorf(activities.UnknownOutcome, "the connection was lost")
	}
	return a.fakeSet.Apply(ctx, e, s, d)
}

func (a fakeRemote) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.AsBefore}, a.reach(ctx, "look")
}

func (a fakeRemote) Commit(ctx context.Context, _ activities.Commitment) (activities.Committed, error) {
	return activities.Committed{}, a.reach(ctx, "commit")
}

func (a fakeRemote) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	if err := a.reach(ctx, "undo"); err != nil {
		return activities.Undone{}, err
	}
	return a.fakeSet.Undo(ctx, e, d)
}

// fakeRecords are those of a journal that does not always answer.
type fakeRecords struct {
	records // of which nothing else is called
	*fakeWorld
}

type records = activities.Records

func (r fakeRecords) Hold(ctx context.Context, _ string, _ activities.Owner) (bool, error) {
	return true, r.reach(ctx, "hold")
}
