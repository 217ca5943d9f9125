package folder

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

func (a *restore) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	t, unlock, err := a.openForward(ctx, e)
	if err != nil {
		return r, err
	}
	defer unlock()
	p, err := activities.DecodeParams[restoreParams](s.With)
	if err != nil {
		return r, err
	}
	at, err := a.locateOrAbsent(ctx, p.where)
	if err != nil {
		return r, err
	}
	defer func() { at.close() }()
	step, err := a.load(t, e)
	if err != nil {
		return r, err
	}
	if step == nil {
		if step, err = a.begin(ctx, t, e, p, at, want); err != nil {
			return r, err
		}
	}
	point.Reach("folder.restore:recorded")
	if done, err := t.Has(journal.Applied); err != nil {
		return r, err
	} else if !done {
		if err := a.act(ctx, t, e, step, at); err != nil {
			return r, err
		}
		point.Reach("folder.restore:put-back")
		if _, err := t.Create(journal.Applied, &struct{}{}); err != nil {
			return r, err
		}
	}
	point.Reach("folder.restore:applied")
	if step.Remake != nil {
		at.close()
		if at, err = a.locateOrAbsent(ctx, p.where); err != nil {
			return r, err
		}
	}
	return step.Result, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{at})
}

// act does what the record says.
func (a *restore) act(ctx context.Context, t *journal.Token, e activities.Entry, step *step, at location) error {
	if step.Remake == nil {
		if at.absent {
			return refuseAbsent(step.Container)
		}
		return a.putBack(ctx, t, e, step, at)
	}
	m, err := a.remaking(t, e, step)
	if err != nil {
		return err
	}
	return m.run(ctx)
}

// begin keeps what the folder holds, and makes the record of a restore that may be made.
func (a *restore) begin(ctx context.Context, t *journal.Token, e activities.Entry, p restoreParams, at location,
	want activities.Digest) (step *step, err error) {
	wanted, err := a.wanted(ctx, p.Checkpoint, at)
	if err == nil {
		err = at.checkSettled(ctx)
	}
	if err != nil {
		return nil, err
	}
	if wanted.remake != nil {
		return a.beginRemake(ctx, t, e, p, at, wanted, want)
	}
	progress, stop := snapshot.Show(ctx, at.name)
	defer stop()
	beforeName, afterName := trees(e.Token)
	before, err := a.store.Keep(ctx, at.root(), snapshot.Keeping{
		Name: beforeName, Over: t.CheckOpen, Label: wanted.look.label,
		Look: snapshot.Look{Leave: wanted.look.leaves, Progress: progress},
	})
	if err == nil {
		err = errors.Join(checkRights(before), t.CheckOpen())
	}
	if err != nil {
		return nil, errors.Join(explain(err), a.drop(beforeName))
	}
	change, err := describe(at, p.Checkpoint, before, wanted.Content)
	if err == nil {
		err = judge(ctx, change, want, at)
	}
	if err == nil {
		err = a.store.Copy(p.Checkpoint, afterName)
	}
	if err != nil {
		return nil, errors.Join(err, a.drop(beforeName))
	}
	after, _, err := wanted.Content.Around(before)
	if err != nil {
		return nil, err
	}
	changed := len(before.Differs(after))
	rec := restoreRecord{
		Owned: journal.Own(ctx, e), where: p.where, At: at.path, Before: before.Digest(), After: wanted.Content.Digest(),
		Result: activities.Result{
			Summary: fmt.Sprintf("%s holds what %s has: %s put back", at.name, p.Checkpoint,
				activities.CountOf(changed, "path")),
			Outputs: map[string]any{"changed": changed}, After: wanted.Content.Digest(), Notes: change.Facts,
		},
	}
	if _, err := t.Create(journal.Record, &rec); err != nil {
		return nil, err
	}
	return a.load(t, e)
}

// judge refuses a change that the worker's policy refuses, or that is not the one that was approved.
func judge(ctx context.Context, change activities.Change, want activities.Digest, at location) error {
	if err := activities.Judge(ctx, change); err != nil {
		return err
	}
	if want != "" && want != change.Digest {
		return activities.Errorf(activities.StaleApproval,
			"the checkpoint, or what %s holds, is not what was approved", at.name)
	}
	return nil
}

// beginRemake makes the record of a restore that makes a container again.
func (a *restore) beginRemake(ctx context.Context, t *journal.Token, e activities.Entry, p restoreParams, at location,
	wanted wanted, want activities.Digest) (*step, error) {
	if err := a.checkRemake(ctx, wanted.remake); err != nil {
		return nil, err
	}
	progress, stop := snapshot.Show(ctx, at.name)
	defer stop()
	before, err := a.scan(ctx, at, snapshot.Look{Progress: progress})
	if err != nil {
		return nil, explain(err)
	}
	if wanted.remake.Aside, err = a.findAside(ctx, wanted.remake, wanted.Content); err != nil {
		return nil, err
	}
	change, err := wanted.remake.describe(at, p.Checkpoint, before, wanted.Content)
	if err == nil {
		err = judge(ctx, change, want, at)
	}
	if err != nil {
		return nil, err
	}
	_, afterName := trees(e.Token)
	if err := a.store.Copy(p.Checkpoint, afterName); err != nil {
		return nil, err
	}
	rec := restoreRecord{
		Owned: journal.Own(ctx, e), where: p.where, At: at.path, Before: before.Digest(), After: wanted.Content.Digest(),
		Remake: wanted.remake,
		Result: activities.Result{
			Summary: wanted.remake.summary(at, p.Checkpoint, e.Token), After: wanted.Content.Digest(),
			Outputs: map[string]any{"changed": wanted.Content.Paths()}, Notes: change.Facts,
		},
	}
	if _, err := t.Create(journal.Record, &rec); err != nil {
		return nil, err
	}
	return a.load(t, e)
}

// putBack makes the folder hold what the step is to leave.
func (a *restore) putBack(ctx context.Context, t *journal.Token, e activities.Entry, step *step,
	at location) error {
	progress, stop := snapshot.Show(ctx, at.name)
	defer stop()
	r := snapshot.Restore{
		Root: at.root(), Want: step.after, From: a.store, Seen: step.before, Stage: at.stage(e.Token), Over: t.CheckOpen,
		Look: snapshot.Look{Leave: step.leaves, Progress: progress},
	}
	if err := at.checkSettled(ctx); err != nil {
		return err
	}
	differs, err := r.Run(ctx)
	err = errors.Join(err, r.Clear())
	if err == nil {
		err = at.checkSettled(ctx)
	}
	var newer *snapshot.DriftError
	switch {
	case errors.As(err, &newer):
		return activities.Errorf(activities.ActionDenied, "%s was changed by someone else while it was put back: %v",
			at.name, newer)
	case err != nil:
		return explain(err)
	case len(differs) > 0:
		return fmt.Errorf("%s is being changed by someone else: %s, among them %s, is not as it was put back", at.name,
			activities.CountOf(len(differs), "path"), differs[0])
	}
	return nil
}
