package folder

import (
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// compare is folder.compare. It changes nothing.
type compare struct{ verify }

type compareParams struct {
	where

	Checkpoint string `json:"checkpoint"     jsonschema:"the checkpoint to compare: an output of folder.checkpoint"`
	With       string `json:"with,omitempty" jsonschema:"the checkpoint to compare it with; by default what is there now"`
}

// maxDiff bounds the output diff, in bytes: all outputs of a step have to fit.
const maxDiff = activities.MaxOutputs / 2

func (*compare) Spec() activities.Spec {
	return activities.Spec{
		Name:    "folder.compare",
		Summary: "Says what differs between a checkpoint of a folder, a Docker volume or a container and another, or now.",
		Params:  activities.ParamsSchema[compareParams](),
		Outputs: map[string]string{
			"changed": "how many paths differ",
			"diff":    "the paths, a line each: + is new, - is gone, ~ is another; at most 8 KiB",
			"digest":  "a digest of all that it was compared with",
		},
		UndoParams: undoParams(), Keys: keys(),
		HostBound: true, Preflights: true, ReadOnly: true, Risk: activities.Low, Strategy: activities.NoUndo,
		Undo: "it changes nothing.",
	}
}

// Preflight implements activities.Preflighter.
func (a *compare) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := activities.DecodeParams[compareParams](o.With)
	if err != nil {
		return err
	}
	problems := []error{a.preflight(ctx, o, p.where)}
	for name, is := range map[string]string{"checkpoint": p.Checkpoint, "with": p.With} {
		if is != "" && !o.Awaits(name) && !isCheckpoint(is) {
			problems = append(problems, refuseName(is))
		}
	}
	return errors.Join(problems...)
}

func (a *compare) Plan(_ context.Context, _ activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := activities.DecodeParams[compareParams](s.With)
	return activities.Change{
		Summary: "compare " + p.key() + " as " + p.Checkpoint + " has it with " + p.other(), Strategy: activities.NoUndo,
		Undo: "it changes nothing", Risk: activities.Low, Unchanged: true, Keys: []string{p.key()},
		Digest: activities.DigestOf(s.With),
	}, err
}

func (p compareParams) other() string {
	if p.With == "" {
		return "what is there now"
	}
	return p.With
}

func (a *compare) Apply(ctx context.Context, _ activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	p, err := activities.DecodeParams[compareParams](s.With)
	if err != nil {
		return r, err
	}
	if want != "" && want != activities.DigestOf(s.With) {
		return r, activities.Errorf(activities.StaleApproval, "it is another comparison than the one that was approved")
	}
	at, err := a.locateThere(ctx, p.where)
	if err != nil {
		return r, err
	}
	defer at.close()
	was, look, err := a.wanted(ctx, p.Checkpoint, at)
	if err != nil {
		return r, err
	}
	var is snapshot.Content
	if p.With != "" {
		is, _, err = a.wanted(ctx, p.With, at)
	} else {
		progress, stop := snapshot.Show(ctx, at.name)
		is, err = a.store.Scan(ctx, at.root(), snapshot.Look{Leave: look.leaves, Progress: progress})
		stop()
	}
	if err != nil {
		return r, explain(err)
	}
	changed := was.Differs(is)
	return activities.Result{
		Summary: at.name + ": " + activities.CountOf(len(changed), "path") + " different between " + p.Checkpoint + " and " +
			p.other(),
		Outputs: map[string]any{"changed": len(changed), "diff": activities.HeadDiff(at.lines(changed, was, is), maxDiff),
			"digest": is.Digest()},
	}, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{at})
}
