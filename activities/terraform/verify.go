package terraform

import (
	"context"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
)

// verifyAction is terraform.verify. It changes nothing: it plans what a restore would do, and has a
// person accept what that destroys, before anything is stopped for it.
type verifyAction struct{ *world }

type verifyParams struct {
	Dir        string `json:"dir"        jsonschema:"absolute path of the folder with the configuration; below a folder that the worker allows"`
	Checkpoint string `json:"checkpoint" jsonschema:"the checkpoint of it: an output of terraform.checkpoint"`
}

func (*verifyAction) Spec() activities.Spec {
	return activities.Spec{
		Name: VerifyAction,
		Summary: "Read all of a checkpoint of a Terraform configuration, with its providers, and plan the way back. A plan " +
			"that destroys or replaces objects waits for a person.",
		Params: activities.ParamsSchema[verifyParams](), UndoParams: []string{"dir"},
		Outputs: map[string]string{
			"accepted": "for terraform.restore: that a person has accepted this plan; empty where nothing has to be accepted",
			"plan":     "what the restore would do to how many objects",
		},
		Keys: keys(), HostBound: true, Preflights: true, ReadOnly: true, Risk: activities.Low, Strategy: activities.NoUndo,
		Undo: "It changes nothing.",
		Redo: "The checkpoint is read again.",
	}
}

// Preflight implements activities.Preflighter.
func (a *verifyAction) Preflight(ctx context.Context, o activities.Outlook) error {
	return a.preflight(ctx, o)
}

// Touches implements activities.Toucher.
func (a *verifyAction) Touches(_ context.Context, o activities.Outlook) ([]activities.Touch, error) {
	return a.touches(dirIn(o.With), nil)
}

// foresee plans the restore, and calls do with it and what it would change.
func (a *verifyAction) foresee(ctx context.Context, e activities.Entry, s activities.Step,
	do func(*planning, activities.Change) error) error {
	return a.look(ctx, e, func(w *world) error {
		pr, err := (&applyAction{w}).prepare(ctx, e, s)
		if err != nil {
			return err
		}
		digest, err := pr.digest()
		if err != nil {
			return err
		}
		c := pr.describeChange(digest, "")
		c.Summary = "verify " + pr.to.name + ", which would " + c.Summary
		c.Strategy, c.Undo, c.Risk, c.Unchanged = activities.NoUndo, "it changes nothing", activities.Low, true
		return do(pr, c)
	})
}

// Plan says what a restore would do.
func (a *verifyAction) Plan(ctx context.Context, e activities.Entry, s activities.Step) (c activities.Change,
	err error) {
	err = a.foresee(ctx, e, s, func(pr *planning, would activities.Change) error {
		text, err := pr.ws.CLI.ShowPlanFileRaw(ctx, pr.file)
		if err != nil {
			return pr.ws.FailedError(ctx, "show", stream.Report{}, err)
		}
		c = would
		c.Diff = strings.TrimSpace(c.Diff + "\n" + strings.TrimSpace(text))
		return nil
	})
	return c, err
}

// Apply reads the checkpoint, and plans. What has to be accepted by a person was approved at the
// gate of this step, or is refused.
func (a *verifyAction) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	err = a.foresee(ctx, e, s, func(pr *planning, c activities.Change) error {
		if want != "" && want != c.Digest {
			return staleApproval(pr.to.Dir)
		}
		if err := activities.Judge(ctx, c); err != nil {
			return err
		}
		r = activities.Result{
			Summary: "checkpoint " + pr.to.name + " of " + pr.to.Dir + " is whole; the way back: " + pr.tally(),
			Outputs: map[string]any{"accepted": pr.to.acceptance, "plan": pr.tally()},
			Notes:   append(c.Losses, c.Facts...),
		}
		return activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live,
			scene{pr.to.Dir, pr.to.Dir, a.host, a.host.CheckLimits()})
	})
	return r, err
}

// Undo implements activities.Action.
func (a *verifyAction) Undo(ctx context.Context, e activities.Entry, _ activities.Decision) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Nothing, Observed: "it changed nothing"}, a.forgetLook(ctx, e)
}

// Observe implements activities.Action.
func (*verifyAction) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.AsBefore, Detail: "it changes nothing"}, nil
}

// Release implements activities.Action.
func (*verifyAction) Release(context.Context, activities.Entry) error { return nil }
