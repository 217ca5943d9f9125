package file

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Plan stages the change, examines it, runs the checks on it, and removes it.
func (a *action) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	r, stage, err := a.stageFunc(e, s)
	if err != nil {
		return activities.Change{}, err
	}
	t, err := a.openToken(r, e)
	if err != nil {
		return activities.Change{}, err
	}
	unlock, err := t.Lock(ctx)
	if err != nil {
		return activities.Change{}, err
	}
	defer unlock()
	d, err := a.stageDraft(ctx, r, t, e, s, stage)
	if err != nil {
		return activities.Change{}, err
	}
	a.reach("plan-staged")
	change := a.describeChange(d)
	err = d.discard()
	a.reach("plan-cleared")
	return change, err
}

// stageDraft stages a step's change and runs the checks on it.
func (a *action) stageDraft(
	ctx context.Context, r *root, t *journal.Token, e activities.Entry, s activities.Step,
	stage func(context.Context, *draft) error,
) (d *draft, err error) {
	if err := t.CheckOpen(); err != nil {
		return nil, err
	}
	defer func() {
		if errors.Is(err, errLost) {
			err = errors.Join(t.CheckOpen(),
				activities.Errorf(activities.ActionFailed, "the staged change was removed from %s", r.store.Name()))
		}
	}()
	if d, err = r.beginDraft(e.Token); err != nil {
		return nil, err
	}
	a.reach("stage-begun")
	if err := stage(ctx, d); err != nil {
		if isLost(err) {
			err = errLost
		}
		return nil, errors.Join(err, d.discard())
	}
	a.reach("stage-filled")
	err = errors.Join(d.captureTargets(ctx), d.scanStaged(ctx))
	if err == nil && d.redo != nil {
		err = d.redo.check(d)
	}
	if err != nil {
		return nil, errors.Join(err, d.discard())
	}
	if err := d.check(ctx, s.Checks, a.stagedScene(d)); err != nil {
		return nil, errors.Join(err, d.discard())
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
	if err := d.scanStaged(ctx); err != nil {
		return err
	}
	if d.digest() != before {
		return activities.Errorf(activities.CheckFailed, "a check has changed what it checked; checks may only read")
	}
	return nil
}

// Apply stages the change, records it, and exchanges each original with its staged replacement.
func (a *action) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	// The record outranks the parameters: the paths may lead elsewhere by now.
	h, rec, err := a.findRecord(e)
	if err != nil {
		return activities.Result{}, err
	}
	f := &forward{action: a, root: h.root, token: h.token, id: e.Token, step: s}
	var stage func(context.Context, *draft) error
	if rec == nil {
		if f.root, stage, err = a.stageFunc(e, s); err != nil {
			return activities.Result{}, errors.Join(a.checkOpen(e), err)
		}
		if f.token, err = a.openToken(f.root, e); err != nil {
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
		if err := f.makeRecord(ctx, e, want, stage); err != nil {
			return activities.Result{}, err
		}
	}
	return f.finishChange(ctx)
}

// forward is one call of Apply.
type forward struct {
	*action
	*root
	token *journal.Token
	id    string
	step  activities.Step
	rec   record
	// fresh: this call has captured the originals.
	fresh bool
}

// makeRecord stages the change and writes the record.
func (f *forward) makeRecord(ctx context.Context, e activities.Entry, want activities.Digest,
	stage func(context.Context, *draft) error) error {
	if err := f.token.CheckNotLost(false, leftDoc); err != nil {
		return err
	}
	// Attempts that died left no record, so no original either.
	if err := f.clearAttempts(f.id, func(string) bool { return true }); err != nil {
		return err
	}
	d, err := f.stageDraft(ctx, f.root, f.token, e, f.step, stage)
	if err != nil {
		return err
	}
	f.reach("staged")
	summary, outputs, risk, _ := f.describeDraft(d)
	if err := activities.Judge(ctx, activities.Change{Strategy: activities.Snapshot, Risk: risk}); err != nil {
		return errors.Join(err, d.discard())
	}
	if want != "" && want != d.digest() {
		return errors.Join(activities.Errorf(activities.StaleApproval,
			"the change, or what it changes, is not what was approved; plan and approve it again"), d.discard())
	}
	f.rec = d.rec
	f.rec.Owned, f.rec.Want = journal.Own(ctx, e), want
	f.rec.Result.Summary, f.rec.Result.Outputs = summary, outputs
	var after [][]byte
	for i := range f.rec.Ops {
		o := &f.rec.Ops[i]
		after = append(after, []byte(o.Target), []byte(o.Post.Digest))
		o.Pre, o.Post = o.Pre.trimmed(), o.Post.trimmed()
	}
	f.rec.Result.After = activities.DigestOf(after...)
	if err := d.syncStaged(); err != nil {
		return err
	}
	if err := f.token.CheckOpen(); err != nil {
		return errors.Join(err, d.discard())
	}
	f.reach("captured")
	if _, err := f.token.Create(journal.Record, &f.rec); err != nil {
		return err
	}
	f.fresh = true
	f.reach("recorded")
	return nil
}

// finishChange does what is left of a recorded change.
func (f *forward) finishChange(ctx context.Context) (activities.Result, error) {
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
			if err := f.applyOp(ctx, i, o); err != nil {
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
		if err := f.writeDocument(leftDoc, &l); err != nil {
			return result, err
		}
		f.reach("left")
	}
	if err := activities.RunChecks(ctx, f.step.Checks, activities.Live, activities.Staged,
		f.liveScene(f.root, f.step)); err != nil {
		return result, err
	}
	f.reach("checked")
	result = f.rec.Result
	err = f.writeDocument(journal.Applied, &result)
	f.reach("applied")
	return result, err
}

// writeDocument writes a document of a forward that has not been undone.
func (f *forward) writeDocument(name string, v any) error {
	if err := f.token.CheckOpen(); err != nil {
		return err
	}
	_, err := f.token.Create(name, v)
	return err
}

// applyOp makes one change, unless it is made.
func (f *forward) applyOp(ctx context.Context, n int, o op) error {
	ticket := stagePath(f.id, f.rec.Attempt, o.ticket(n))
	if !f.fresh {
		done, err := f.isDone(ctx, ticket, o)
		if done || err != nil {
			return err
		}
	}
	err := f.swap(ticket, o.Target, o.Post.exists(), o.Pre.exists())
	if errors.Is(err, errLost) {
		return f.conflictError(o)
	}
	if err != nil {
		return err
	}
	f.reach("swapped")
	// What came out must be what was recorded: only now is it certain that nobody changed it in
	// between.
	out, err := f.atTicket(ctx, ticket)
	if err != nil || out.equals(o.Pre) {
		return err
	}
	return f.giveBack(ctx, ticket, o)
}

// isDone reports whether an earlier attempt has made a change.
func (f *forward) isDone(ctx context.Context, ticket string, o op) (bool, error) {
	t, err := f.atTicket(ctx, ticket)
	if err != nil {
		return false, err
	}
	now, err := f.atTarget(ctx, o.Target)
	switch {
	case err != nil:
		return false, err
	case t.equals(o.Pre):
		return true, nil
	case t.equals(o.Post) && now.equals(o.Pre):
		return false, nil
	case t.equals(o.Post), t.exists() && now.equals(o.Post):
		if t.equals(o.Post) {
			return false, f.conflictError(o)
		}
		return false, f.giveBack(ctx, ticket, o)
	}
	return false, errors.Join(f.token.CheckOpen(), damagedOriginal(f.root, ticket, o))
}

// giveBack returns what someone else put at the target between the check and the exchange.
func (f *forward) giveBack(ctx context.Context, ticket string, o op) error {
	t, err := f.atTicket(ctx, ticket)
	if err != nil {
		return err
	}
	if err := f.swap(ticket, o.Target, t.exists(), o.Post.exists()); err != nil && !errors.Is(err, errLost) {
		return err
	}
	f.reach("given-back")
	return f.conflictError(o)
}

// conflictError says who was faster: an undo, or someone else.
func (f *forward) conflictError(o op) error {
	if err := f.token.CheckOpen(); err != nil {
		return err
	}
	return activities.Errorf(activities.ActionDenied,
		"%s was changed by someone else while the step ran; their version is untouched: run the step again",
		filepath.Join(f.path, o.Target))
}

func damagedOriginal(r *root, ticket string, o op) error {
	return activities.Errorf(activities.DamagedRecord,
		"the original of %s, kept at %s, is not as it was recorded; nothing was touched", filepath.Join(r.path, o.Target),
		filepath.Join(r.store.Name(), ticket))
}
