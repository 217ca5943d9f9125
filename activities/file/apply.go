package file

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Plan stages the change, looks at it, runs the checks on it, and clears it away.
func (a *action) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	r, stage, err := a.how(e, s)
	if err != nil {
		return activities.Change{}, err
	}
	t, err := a.forward(r, e)
	if err != nil {
		return activities.Change{}, err
	}
	unlock, err := t.Lock(ctx)
	if err != nil {
		return activities.Change{}, err
	}
	defer unlock()
	d, err := a.draft(ctx, r, t, e, s, stage)
	if err != nil {
		return activities.Change{}, err
	}
	a.reach("plan-staged")
	change := a.change(d)
	err = d.drop()
	a.reach("plan-cleared")
	return change, err
}

// draft stages a step's change and runs the checks on it.
func (a *action) draft(
	ctx context.Context, r *root, t *journal.Token, e activities.Entry, s activities.Step, stage func(context.Context, *draft) error,
) (d *draft, err error) {
	if err := t.CheckOpen(); err != nil {
		return nil, err
	}
	defer func() {
		if errors.Is(err, errLost) {
			err = errors.Join(t.CheckOpen(), activities.Errorf(activities.ActionFailed, "what was staged has gone from %s", r.store.Name()))
		}
	}()
	if d, err = r.begin(e.Token); err != nil {
		return nil, err
	}
	a.reach("stage-begun")
	if err := stage(ctx, d); err != nil {
		if lost(err) {
			err = errLost
		}
		return nil, errors.Join(err, d.drop())
	}
	a.reach("stage-filled")
	err = errors.Join(d.capture(ctx), d.look(ctx))
	if err == nil && d.redo != nil {
		err = d.redo.check(d)
	}
	if err != nil {
		return nil, errors.Join(err, d.drop())
	}
	if err := d.check(ctx, s.Checks, a.staged(d)); err != nil {
		return nil, errors.Join(err, d.drop())
	}
	return d, nil
}

// check runs the checks on what is staged.
func (d *draft) check(ctx context.Context, checks []activities.Check, at scene) error {
	if len(checks) == 0 {
		return nil
	}
	before := d.digest()
	if err := activities.RunChecks(ctx, checks, activities.Staged, activities.Staged, at); err != nil {
		return err
	}
	if err := d.look(ctx); err != nil {
		return err
	}
	if d.digest() != before {
		return activities.Errorf(activities.CheckFailed, "a check has changed what it looked at; a check only reads")
	}
	return nil
}

// Apply stages the change, records it, and lets each original trade places with what is staged.
func (a *action) Apply(ctx context.Context, e activities.Entry, s activities.Step, want activities.Digest) (activities.Result, error) {
	// A record says more than the parameters: the paths may lead elsewhere by now.
	h, rec, err := a.recorded(e)
	if err != nil {
		return activities.Result{}, err
	}
	f := &forward{action: a, root: h.root, token: h.token, id: e.Token, step: s}
	var stage func(context.Context, *draft) error
	if rec == nil {
		if f.root, stage, err = a.how(e, s); err != nil {
			return activities.Result{}, errors.Join(a.open(e), err)
		}
		if f.token, err = a.forward(f.root, e); err != nil {
			return activities.Result{}, err
		}
	}
	unlock, err := f.token.Lock(ctx)
	if err != nil {
		return activities.Result{}, err
	}
	defer unlock()
	if err := f.token.CheckOpen(); err != nil {
		return activities.Result{}, err
	}
	if found, err := f.token.Read(journal.Record, &f.rec); err != nil {
		return activities.Result{}, err
	} else if !found {
		if err := f.capture(ctx, e, want, stage); err != nil {
			return activities.Result{}, err
		}
	}
	return f.finish(ctx)
}

// forward is one call of Apply.
type forward struct {
	*action
	*root
	token *journal.Token
	id    string
	step  activities.Step
	rec   record
	// fresh says that this very call has captured the originals.
	fresh bool
}

// capture makes the record.
func (f *forward) capture(ctx context.Context, e activities.Entry, want activities.Digest, stage func(context.Context, *draft) error) error {
	// Dead attempts have left no record, so no original either.
	if err := f.clear(f.id, func(string) bool { return true }); err != nil {
		return err
	}
	d, err := f.draft(ctx, f.root, f.token, e, f.step, stage)
	if err != nil {
		return err
	}
	f.reach("staged")
	if want != "" && want != d.digest() {
		return errors.Join(activities.Errorf(activities.StaleApproval,
			"the change, or what it changes, is not what was approved; look at it again"), d.drop())
	}
	f.rec = d.rec
	f.rec.Owned, f.rec.Want = journal.Own(ctx, e), want
	f.rec.Result.Summary, f.rec.Result.Outputs, _, _ = f.tell(d)
	var after [][]byte
	for i := range f.rec.Ops {
		o := &f.rec.Ops[i]
		after = append(after, []byte(o.Target), []byte(o.Post.Digest))
		o.Pre, o.Post = o.Pre.short(), o.Post.short()
	}
	f.rec.Result.After = activities.DigestOf(after...)
	if err := d.seal(); err != nil {
		return err
	}
	if err := f.token.CheckOpen(); err != nil {
		return errors.Join(err, d.drop())
	}
	f.reach("captured")
	if _, err := f.token.Create(journal.Record, &f.rec); err != nil {
		return err
	}
	f.fresh = true
	f.reach("recorded")
	return nil
}

// finish does what is left to do of a recorded change.
func (f *forward) finish(ctx context.Context) (activities.Result, error) {
	var result activities.Result
	if found, err := f.token.Read(journal.Applied, &result); found || err != nil {
		return result, err
	}
	var l parentsAfter
	found, err := f.token.Read(leftDoc, &l)
	if err != nil {
		return result, err
	}
	if !found {
		for i, o := range f.rec.Ops {
			if err := f.put(ctx, i, o); err != nil {
				return result, err
			}
			f.reach("put")
		}
		if err := f.setTimes(); err != nil {
			return result, err
		}
		if l.Parents, err = f.times(f.rec.Parents); err != nil {
			return result, err
		}
		if err := f.write(leftDoc, &l); err != nil {
			return result, err
		}
		f.reach("left")
	}
	if err := activities.RunChecks(ctx, f.step.Checks, activities.Live, activities.Staged, f.live(f.root, f.step)); err != nil {
		return result, err
	}
	f.reach("checked")
	result = f.rec.Result
	err = f.write(journal.Applied, &result)
	f.reach("applied")
	return result, err
}

// write writes a document of a forward that has not been undone.
func (f *forward) write(name string, v any) error {
	if err := f.token.CheckOpen(); err != nil {
		return err
	}
	_, err := f.token.Create(name, v)
	return err
}

// put does one change, unless it is done.
func (f *forward) put(ctx context.Context, n int, o op) error {
	ticket := stagePath(f.id, f.rec.Attempt, o.ticket(n))
	if !f.fresh {
		done, err := f.done(ctx, ticket, o)
		if done || err != nil {
			return err
		}
	}
	err := f.swap(ticket, o.Target, o.Post.there(), o.Pre.there())
	if errors.Is(err, errLost) {
		return f.lostTo(o)
	}
	if err != nil {
		return err
	}
	f.reach("swapped")
	// What came out must be what was recorded: only now is it certain that nobody came between.
	out, err := f.atTicket(ctx, ticket)
	if err != nil || out.is(o.Pre) {
		return err
	}
	return f.giveBack(ctx, ticket, o)
}

// done says whether an earlier attempt has done a change.
func (f *forward) done(ctx context.Context, ticket string, o op) (bool, error) {
	t, err := f.atTicket(ctx, ticket)
	if err != nil {
		return false, err
	}
	now, err := f.atTarget(ctx, o.Target)
	switch {
	case err != nil:
		return false, err
	case t.is(o.Pre):
		return true, nil
	case t.is(o.Post) && now.is(o.Pre):
		return false, nil
	case t.is(o.Post), t.there() && now.is(o.Post):
		if t.is(o.Post) {
			return false, f.lostTo(o)
		}
		return false, f.giveBack(ctx, ticket, o)
	}
	return false, errors.Join(f.token.CheckOpen(), damaged(f.root, ticket, o))
}

// giveBack puts back what someone else has put at the target between looking and replacing.
func (f *forward) giveBack(ctx context.Context, ticket string, o op) error {
	t, err := f.atTicket(ctx, ticket)
	if err != nil {
		return err
	}
	if err := f.swap(ticket, o.Target, t.there(), o.Post.there()); err != nil && !errors.Is(err, errLost) {
		return err
	}
	f.reach("given-back")
	return f.lostTo(o)
}

// lostTo says who was faster: an undo, or someone else.
func (f *forward) lostTo(o op) error {
	if err := f.token.CheckOpen(); err != nil {
		return err
	}
	return activities.Errorf(activities.ActionDenied,
		"%s was changed by someone else while the step ran; what they left is untouched: start the step anew", filepath.Join(f.path, o.Target))
}

func damaged(r *root, ticket string, o op) error {
	return activities.Errorf(activities.DamagedRecord,
		"the original of %s, kept at %s, is not as it was recorded; nothing was touched", filepath.Join(r.path, o.Target), filepath.Join(r.store.Name(), ticket))
}
