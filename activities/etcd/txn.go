package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	client "go.etcd.io/etcd/client/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// txnAction is etcd.txn.
type txnAction struct{ *world }

func (a *txnAction) Spec() activities.Spec { return txnSpec }

func reach(what string) { point.Reach("etcd.txn:" + what) }

// forward is a connection for a forward, with what it is to do.
type forward struct {
	*connection

	params txnParams
	spans  []span
}

func (a *txnAction) openForward(ctx context.Context, e activities.Entry, s activities.Step) (*forward, error) {
	if err := keyvalue.CheckPlaces(kind, s.Checks); err != nil {
		return nil, err
	}
	p, spans, err := readParams(s.With)
	if err != nil {
		return nil, err
	}
	c, err := a.open(ctx, e)
	if err != nil {
		return nil, err
	}
	return &forward{connection: c, params: p, spans: spans}, nil
}

// Plan says what the transaction would do to the keys as they are.
func (a *txnAction) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	f, err := a.openForward(ctx, e, s)
	if err != nil {
		return activities.Change{}, err
	}
	defer f.end()
	seen, err := f.look(e.Token, f.params.explicit(), f.spans)
	if err != nil {
		return activities.Change{}, err
	}
	changes, err := f.changes(seen)
	if err == nil {
		err = f.checkConditions(seen)
	}
	if err != nil {
		return activities.Change{}, err
	}
	digest, err := f.digest(changes)
	if err != nil {
		return activities.Change{}, err
	}
	reach("planned")
	made, err := f.weigh(changes)
	if err != nil {
		return activities.Change{}, err
	}
	made.Summary, made.Diff, made.Undo = f.name+": "+summarize(countChanges(changes)), f.showChanges(changes), txnSpec.Undo
	made.Keys, made.Digest, made.Counts = []string{keyPrefix + f.name}, digest, keyvalue.CountsOf(countChanges(changes))
	var names, onLease []string
	for _, k := range changes {
		names = append(names, k.key)
		if k.before != nil && k.before.Lease != 0 {
			onLease = append(onLease, k.key)
		}
	}
	made.Facts = append(made.Facts, "it changes "+activities.CountOf(len(changes), "key")+": "+keyvalue.JoinSome(names))
	if len(onLease) > 0 {
		made.Facts = append(made.Facts, "on a lease, and back only while it lives: "+keyvalue.JoinSome(onLease))
	}
	return made, nil
}

// weigh returns what says whether a person must approve the change.
func (f *forward) weigh(changes []change) (activities.Change, error) {
	n := countChanges(changes)
	touched := int64(n[1] + n[2])
	w := activities.Change{Strategy: activities.Transaction, Risk: activities.Medium, Unchanged: n == [3]int{}}
	if !activities.MostOf(touched, touched) {
		return w, nil
	}
	ctx, end := f.limited()
	defer end()
	all, err := f.client.Get(ctx, "\x00", client.WithFromKey(), client.WithCountOnly())
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		w.Risk, w.Facts = activities.High,
			[]string{"many keys go or change, and the worker's user may not see how many there are"}
		return w, nil
	}
	if err != nil {
		return w, f.explain(err)
	}
	journal, err := f.client.Get(ctx, ours, client.WithPrefix(), client.WithCountOnly())
	if err != nil {
		return w, f.explain(err)
	}
	if activities.MostOf(touched, all.Count-journal.Count) {
		w.Risk, w.Facts = activities.High, []string{"more than half of the keys of the database go or change"}
	}
	return w, nil
}

// Apply commits the transaction together with its record.
func (a *txnAction) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	f, err := a.openForward(ctx, e, s)
	if err != nil {
		return activities.Result{}, err
	}
	defer f.end()
	private := activities.HoldsSecret(ctx, s.With)
	for {
		result, err := f.applyOnce(ctx, e, private, want)
		if errors.Is(err, errMoved) {
			continue // the next look decides; the call is bounded
		}
		if err != nil {
			return activities.Result{}, err
		}
		reach("applied")
		return result, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, f.scene(result))
	}
}

// errMoved is a change by somebody else between looking and acting.
var errMoved = errors.New("a key was changed meanwhile")

func (f *forward) applyOnce(ctx context.Context, e activities.Entry, private bool,
	want activities.Digest) (activities.Result, error) {
	seen, err := f.look(e.Token, f.params.explicit(), f.spans)
	if err != nil {
		return activities.Result{}, err
	}
	if r := seen.record; r != nil {
		if r.State != recordkeeping.Applied {
			return activities.Result{},
				activities.Errorf(activities.Fenced, "token %s is %s: this forward came too late", e.Token, r.State)
		}
		reach("looked")
		return f.result(*r, seen.acted), seen.problem
	}
	changes, err := f.changes(seen)
	if err == nil {
		err = f.checkConditions(seen)
	}
	if err != nil {
		return activities.Result{}, err
	}
	weighed, err := f.weigh(changes)
	if err == nil {
		err = activities.Judge(ctx, weighed)
	}
	if err == nil {
		err = f.checkApproved(changes, want)
	}
	if err != nil {
		return activities.Result{}, err
	}
	conditions, then, images := f.operations(seen, changes)
	raw, err := json.Marshal(images)
	if err != nil {
		return activities.Result{}, err
	}
	r := newRecord(ctx, e, recordkeeping.Applied)
	r.Acted, r.Private, r.Counts, r.Bytes, r.Images = true, private, countChanges(changes), int64(len(raw)),
		activities.DigestOf(raw)
	reach("looked")
	done, err := f.store(e.Token, 0, r, conditions, append(then, client.OpPut(imagesPrefix+e.Token, string(raw)))...)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return activities.Result{}, activities.Errorf(activities.ActionDenied,
			"database %s: a lease of the step does not exist, or has ended; nothing was changed", f.name)
	case err != nil:
		return activities.Result{}, f.explain(err)
	case !done.Succeeded:
		return activities.Result{}, errMoved
	}
	return f.result(r, done.Header.Revision), nil
}

// checkApproved refuses a change that is not the one that was approved.
func (f *forward) checkApproved(changes []change, want activities.Digest) error {
	if want == "" {
		return nil
	}
	got, err := f.digest(changes)
	if err == nil && got != want {
		err = activities.Errorf(activities.StaleApproval,
			"the change is not the one that was approved: now it is %s (%s), approved was %s",
			summarize(countChanges(changes)), got.Short(), want.Short())
	}
	return err
}

// result is what a step has done, as its record says.
func (f *forward) result(r record, revision int64) activities.Result {
	return activities.Result{
		Summary: fmt.Sprintf("%s: %s", f.name, summarize(r.Counts)),
		Outputs: map[string]any{"changed": r.Counts[0] + r.Counts[1] + r.Counts[2], "revision": revision},
	}
}

// scene shows checks what the step has done.
func (c *connection) scene(result activities.Result) keyvalue.Scene {
	return keyvalue.Scene{Kind: kind, Name: c.name, Sensitive: c.Sensitive, Result: result, Read: c.query}
}

// query returns the value of a key; nil if it is not there.
func (c *connection) query(_ context.Context, key string) (value any, keys []string, err error) {
	if err := checkKey("query", key); err != nil {
		return nil, nil, err
	}
	keys = []string{key}
	if err := (keyvalue.Limits{Config: configKey + "." + c.name, Deny: c.Deny}).Check(nil, keys); err != nil {
		return nil, nil, err
	}
	ctx, end := c.limited()
	defer end()
	r, err := c.client.Get(ctx, key)
	if err != nil || len(r.Kvs) == 0 {
		return nil, keys, c.explain(err)
	}
	return string(r.Kvs[0].Value), keys, nil
}
