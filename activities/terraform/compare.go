package terraform

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
)

// compareAction is terraform.compare. It changes nothing.
type compareAction struct{ *world }

type compareParams struct {
	Dir        string `json:"dir"            jsonschema:"absolute path of the folder with the configuration; below a folder that the worker allows"`
	Checkpoint string `json:"checkpoint"     jsonschema:"the checkpoint to compare: an output of terraform.checkpoint"`
	With       string `json:"with,omitempty" jsonschema:"the checkpoint to compare it with; by default what is there now"`
}

func (p compareParams) other() string {
	if p.With == "" {
		return "what is there now"
	}
	return p.With
}

func (*compareAction) Spec() activities.Spec {
	return activities.Spec{
		Name: CompareAction,
		Summary: "Say what differs between a checkpoint of a Terraform configuration and another, or now: objects by their " +
			"address, with the names of attributes, outputs, and files of the folder.",
		Params: activities.ParamsSchema[compareParams](), UndoParams: []string{"dir"},
		Outputs: map[string]string{
			"changed": "how many objects, outputs and files differ",
			"diff": "these, a line each: + is new, - is gone, ~ is another, ! is no longer as the state says; never values; " +
				"at most 8 KiB",
			"digest": "a digest of all that it was compared with",
		},
		Keys: keys(), HostBound: true, ReadOnly: true, Preflights: true, Risk: activities.Low, Strategy: activities.NoUndo,
		Undo: "It changes nothing.",
		Redo: "They are compared again.",
	}
}

// Preflight implements activities.Preflighter.
func (a *compareAction) Preflight(ctx context.Context, o activities.Outlook) error {
	return a.preflight(ctx, o)
}

// Touches implements activities.Toucher.
func (a *compareAction) Touches(_ context.Context, o activities.Outlook) ([]activities.Touch, error) {
	return a.touches(dirIn(o.With), nil)
}

func (a *compareAction) describe(s activities.Step) (p compareParams, c activities.Change, err error) {
	if p, err = activities.DecodeParams[compareParams](s.With); err != nil {
		return p, c, err
	}
	if err := a.checkInstalled(); err != nil {
		return p, c, err
	}
	p.Dir, err = a.resolveFolder(p.Dir)
	return p, activities.Change{
		Summary:  "compare " + p.Dir + " as " + p.Checkpoint + " has it with " + p.other(),
		Strategy: activities.NoUndo, Undo: "it changes nothing", Risk: activities.Low, Unchanged: true,
		Keys: []string{"terraform:" + p.Dir}, Digest: activities.DigestOf(s.With, []byte(p.Dir)),
	}, err
}

// Plan implements activities.Action.
func (a *compareAction) Plan(_ context.Context, _ activities.Entry, s activities.Step) (activities.Change, error) {
	_, c, err := a.describe(s)
	return c, err
}

// Apply compares.
func (a *compareAction) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	p, c, err := a.describe(s)
	if err != nil {
		return r, err
	}
	if want != "" && want != c.Digest {
		return r, staleApproval(p.Dir)
	}
	was, err := a.findCheckpoint(ctx, p.Checkpoint, p.Dir)
	if err != nil {
		return r, err
	}
	var lines []string
	var digest activities.Digest
	if p.With == "" {
		err = a.look(ctx, e, func(w *world) (err error) {
			lines, digest, err = w.compareNow(ctx, e, was)
			return err
		})
	} else {
		var is *checkpoint
		if is, err = a.findCheckpoint(ctx, p.With, p.Dir); err == nil {
			lines = append(was.state.Changes(is.state), was.Files.Changes(is.Files)...)
			digest = activities.DigestOf([]byte(is.state.Digest()), []byte(is.Files.Digest()))
		}
	}
	if err != nil {
		return r, err
	}
	return activities.Result{
			Summary: fmt.Sprintf("%s: %s different between %s and %s", p.Dir, activities.CountOf(len(lines), "place"),
				p.Checkpoint, p.other()),
			Outputs: map[string]any{"changed": len(lines), "digest": digest,
				"diff": activities.HeadDiff(strings.Join(lines, "\n"), activities.MaxOutputs/2)},
		}, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live,
			scene{p.Dir, p.Dir, a.host, a.host.CheckLimits()})
}

// compareNow compares a checkpoint with the state, the objects and the files that are there now. It
// looks under the configuration that has made the state, or else that of the folder.
func (w *world) compareNow(ctx context.Context, e activities.Entry, was *checkpoint) (lines []string,
	digest activities.Digest, err error) {
	b, err := configuration.ReadFolder(was.Dir)
	if err != nil {
		return nil, "", err
	}
	var now *state.State
	var moved []string
	var values []byte
	err = w.underEach(b, func(under configuration.Bundle) error {
		ws, err := w.openWorkspace(ctx, e, "forward", under, 0)
		if err != nil {
			return err
		}
		if now, err = ws.PullState(ctx); err != nil {
			return err
		}
		made, err := w.records.FindKnown(now)
		if err == nil && made != nil {
			made.Dir = was.Dir
			ws, err = w.openWorkspace(ctx, e, "prior", made.Arrived(), 0)
		}
		if err != nil {
			return err
		}
		moved, values, err = ws.ChangedObjects(ctx)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	lines = was.state.Changes(now)
	if was.state.Exists() && was.state.Lineage != now.Lineage {
		lines = append(lines, "~ lineage of the state")
	}
	for _, address := range moved {
		lines = append(lines, "! "+address+" is no longer as the state says")
	}
	files := configuration.Files(b.Files)
	return append(lines, was.Files.Changes(files)...),
		activities.DigestOf([]byte(now.Digest()), []byte(files.Digest()), values), nil
}

// Undo implements activities.Action.
func (a *compareAction) Undo(ctx context.Context, e activities.Entry,
	_ activities.Decision) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Nothing, Observed: "it changed nothing"}, a.forgetLook(ctx, e)
}

// Observe implements activities.Action.
func (*compareAction) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.AsBefore, Detail: "it changes nothing"}, nil
}

// Release implements activities.Action.
func (*compareAction) Release(context.Context, activities.Entry) error { return nil }
