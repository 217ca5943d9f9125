package folder

import (
	"context"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// verify is folder.verify. It changes nothing.
type verify struct{ restore }

func (*verify) Spec() activities.Spec {
	return activities.Spec{
		Name:    "folder.verify",
		Summary: "Reads all of a checkpoint of a folder, and fails where it is damaged or could not be put back.",
		Params:  activities.ParamsSchema[restoreParams](),
		Outputs: map[string]string{"paths": "how many files, folders and links the checkpoint holds"},

		UndoParams: undoParams(), Keys: keys(),
		HostBound: true, Preflights: true, ReadOnly: true, Risk: activities.Low, Strategy: activities.NoUndo,
		Undo: "it changes nothing.",
	}
}

func (a *verify) Plan(_ context.Context, _ activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := activities.DecodeParams[restoreParams](s.With)
	return activities.Change{
		Summary: "verify checkpoint " + p.Checkpoint + " of " + p.key(), Strategy: activities.NoUndo,
		Risk: activities.Low,
		Undo: "it changes nothing", Unchanged: true, Keys: []string{p.key()}, Digest: activities.DigestOf(s.With),
	}, err
}

func (a *verify) Apply(ctx context.Context, _ activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	p, err := activities.DecodeParams[restoreParams](s.With)
	if err != nil {
		return r, err
	}
	if want != "" && want != activities.DigestOf(s.With) {
		return r, activities.Errorf(activities.StaleApproval, "it is another checkpoint than the one that was approved")
	}
	at, err := a.locateOrAbsent(ctx, p.where)
	if err != nil {
		return r, err
	}
	defer at.close()
	kept, err := a.wanted(ctx, p.Checkpoint, at)
	if err == nil && kept.remake != nil {
		err = a.checkRemake(ctx, kept.remake)
	}
	if err != nil {
		return r, err
	}
	content := kept.Content
	progress, stop := snapshot.Show(ctx, "checkpoint "+p.Checkpoint)
	defer stop()
	if err := a.store.Check(ctx, content, progress); err != nil {
		return r, explain(err)
	}
	return activities.Result{
		Summary: "checkpoint " + p.Checkpoint + " of " + at.name + " is whole: " +
			activities.CountOf(content.Paths(), "path"),
		Outputs: map[string]any{"paths": content.Paths()},
	}, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{at})
}

func (*verify) Undo(context.Context, activities.Entry, activities.Decision) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Nothing, Observed: "it changed nothing"}, nil
}

func (*verify) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.AsBefore, Detail: "it changes nothing"}, nil
}

func (*verify) Release(context.Context, activities.Entry) error { return nil }
