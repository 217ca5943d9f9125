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
	at, err := a.locateThere(ctx, p.where)
	if err != nil {
		return r, err
	}
	defer at.close()
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
		if err := a.putBack(ctx, t, e, step, at); err != nil {
			return r, err
		}
		point.Reach("folder.restore:put-back")
		if _, err := t.Create(journal.Applied, &struct{}{}); err != nil {
			return r, err
		}
	}
	point.Reach("folder.restore:applied")
	return step.Result, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{at})
}

// begin keeps what the folder holds, and makes the record of a restore that may be made.
func (a *restore) begin(ctx context.Context, t *journal.Token, e activities.Entry, p restoreParams, at location,
	want activities.Digest) (step *step, err error) {
	wanted, look, err := a.wanted(ctx, p.Checkpoint, at)
	if err == nil {
		err = at.checkSettled(ctx)
	}
	if err != nil {
		return nil, err
	}
	progress, stop := snapshot.Show(ctx, at.name)
	defer stop()
	beforeName, afterName := trees(e.Token)
	before, err := a.store.Keep(ctx, at.root(), snapshot.Keeping{
		Name: beforeName, Over: t.CheckOpen, Label: look.label,
		Look: snapshot.Look{Leave: look.leaves, Progress: progress},
	})
	if err == nil {
		err = errors.Join(checkRights(before), t.CheckOpen())
	}
	if err != nil {
		return nil, errors.Join(explain(err), a.drop(beforeName))
	}
	change, err := describe(at, p.Checkpoint, before, wanted)
	if err == nil {
		err = activities.Judge(ctx, change)
	}
	if err == nil && want != "" && want != change.Digest {
		err = activities.Errorf(activities.StaleApproval,
			"the checkpoint, or what %s holds, is not what was approved", at.name)
	}
	if err == nil {
		err = a.store.Copy(p.Checkpoint, afterName)
	}
	if err != nil {
		return nil, errors.Join(err, a.drop(beforeName))
	}
	after, _, err := wanted.Around(before)
	if err != nil {
		return nil, err
	}
	changed := len(before.Differs(after))
	rec := restoreRecord{
		Owned: journal.Own(ctx, e), where: p.where, At: at.path, Before: before.Digest(), After: wanted.Digest(),
		Result: activities.Result{
			Summary: fmt.Sprintf("%s holds what %s has: %s put back", at.name, p.Checkpoint,
				activities.CountOf(changed, "path")),
			Outputs: map[string]any{"changed": changed}, After: wanted.Digest(), Notes: change.Facts,
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
