package terraform

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
	"github.com/seed-62bf7108/unwind/activities/terraform/plan"
	"github.com/seed-62bf7108/unwind/activities/terraform/record"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

// restoreAction is terraform.restore: it applies the configuration of a checkpoint to the present
// state, as terraform.apply does that of a folder, and puts back the files of the folder.
type restoreAction struct{ applyAction }

type restoreParams struct {
	Dir        string `json:"dir"                jsonschema:"absolute path of the folder with the configuration; below a folder that the worker allows"`
	Checkpoint string `json:"checkpoint"         jsonschema:"the checkpoint of it: an output of terraform.checkpoint"`
	Accepted   string `json:"accepted,omitempty" jsonschema:"the output of terraform.verify by which a person has accepted what the restore destroys or replaces; without it, the step asks itself"`
}

func (*restoreAction) Spec() activities.Spec {
	return activities.Spec{
		Name: RestoreAction,
		Summary: "Bring a Terraform configuration, and what it manages, back to a checkpoint. What Terraform cannot change " +
			"in place is made anew, with another id and without its data; the plan says so before.",
		Params: activities.ParamsSchema[restoreParams](), UndoParams: []string{"dir", "checkpoint"},
		Outputs: map[string]string{
			"added": "how many objects were made", "changed": "how many were changed", "destroyed": "how many were destroyed",
			"differs": "what is not as it was: addresses, with the names of attributes",
		},
		Keys: append(keys(), activities.Key{Prefix: "file:", Param: "dir", Path: true}),

		MayChange: []string{""}, // what its providers and provisioners do
		HostBound: true, Preflights: true, Risk: activities.High, Strategy: activities.Compensation,
		Undo: "As that of terraform.apply: what the step made is destroyed, then the configuration from before is applied " +
			"to the present state; the files of the folder are put back. Data inside a replaced or destroyed object does not " +
			"come back.",
		Redo: "It runs again: the checkpoint is gone back to, as long as it is kept.",
	}
}

// Preflight implements activities.Preflighter.
func (a *restoreAction) Preflight(ctx context.Context, o activities.Outlook) error {
	return a.preflight(ctx, o)
}

// Touches implements activities.Toucher.
func (a *restoreAction) Touches(_ context.Context, o activities.Outlook) ([]activities.Touch, error) {
	return a.touches(dirIn(o.With), nil)
}

// Release implements activities.Action.
func (a *restoreAction) Release(ctx context.Context, e activities.Entry) error {
	t, err := a.token(e)
	if err != nil {
		return err
	}
	var r record.Record
	found, err := t.Read(journal.Record, &r)
	if err == nil || activities.TypeOf(err) == activities.DamagedRecord { // it is not needed any more
		err = a.applyAction.Release(ctx, e)
	}
	if err == nil && found { // of a forward that was killed
		err = configuration.ClearStage(r.Dir, e.Token)
	}
	return err
}

// goal is what a restore goes back to.
type goal struct {
	*checkpoint

	// now is the configuration in the folder.
	now configuration.Bundle
	// halfway are the addresses that the configuration which is to be left would change still: nobody
	// knows another that has made the present state.
	halfway []string
	// accepted is what the step has been given, and acceptance what a person's acceptance would be;
	// empty where nothing has to be accepted.
	accepted, acceptance string
}

// destroys reports whether there was nothing, so that everything is to go.
func (g *goal) destroys() bool { return g != nil && g.state.IsEmpty() }

func (g *goal) isAccepted() bool {
	return g != nil && g.acceptance != "" && hmac.Equal([]byte(g.accepted), []byte(g.acceptance))
}

// meaning is what a digest of the plan covers besides.
func (g *goal) meaning() []any {
	if g == nil {
		return nil
	}
	return []any{g.name, g.now.Digest(), g.Files.Digest()}
}

// requestRestore reads what a restore asks for.
func (a *applyAction) requestRestore(ctx context.Context, s activities.Step) (r request, err error) {
	p, err := activities.DecodeParams[restoreParams](s.With)
	if err != nil {
		return r, err
	}
	dir, err := a.resolveFolder(p.Dir)
	if err != nil {
		return r, err
	}
	if err := configuration.CheckDefaultWorkspace(dir); err != nil {
		return r, err
	}
	r.named, r.to = p.Dir, &goal{accepted: p.Accepted}
	if r.to.checkpoint, err = a.findCheckpoint(ctx, p.Checkpoint, dir); err != nil {
		return r, err
	}
	if r.to.now, err = configuration.ReadFolder(dir); err != nil {
		return r, err
	}
	places, err := configuration.StateNames(dir)
	if err == nil && !slices.Equal(places, r.to.Places) {
		err = activities.Errorf(activities.Refused,
			"dir: %s keeps its state elsewhere than when %s was taken; move it back (terraform init -migrate-state)", dir,
			p.Checkpoint)
	}
	if err != nil {
		return r, err
	}
	if r.bundle = r.to.Made.Arrived(); r.to.destroys() {
		all, err := a.configurations(r.to.now)
		if err != nil {
			return r, err
		}
		r.bundle = all[len(all)-1]
	}
	return r, nil
}

// readyGoal refuses a state that is not what became of the one in the checkpoint. Where everything
// is to go, that is under the configuration that has made it.
func (a *applyAction) readyGoal(ctx context.Context, e activities.Entry, ws *workspace.Workspace, now *state.State,
	r *request) (*workspace.Workspace, error) {
	then := record.MarkOf(r.to.state)
	if text := then.Regression(now); text != "" {
		return nil, activities.Errorf(activities.Refused,
			"checkpoint: since %s was taken, %s. What is not in it would be made again: put the right state back first",
			r.to.name, strings.ReplaceAll(text, "this worker left", "the checkpoint has"))
	}
	if !r.to.destroys() {
		return ws, nil
	}
	known, err := a.records.FindKnown(now)
	if err != nil || known == nil {
		return ws, err
	}
	r.bundle = *known
	r.bundle.Dir = r.to.Dir
	return a.openWorkspace(ctx, e, "forward", r.bundle, 0)
}

// describeGoal adds what only a restore does.
func (pr *planning) describeGoal(c *activities.Change) {
	to := pr.to
	files := configuration.Files(to.now.Files).Changes(to.Files)
	c.Summary = fmt.Sprintf("put %s back to %s: %s; %s of the folder differ", to.Dir, to.name, pr.tally(),
		activities.CountOf(len(files), "file"))
	c.Diff = strings.TrimSpace(strings.Join(files, "\n") + "\n" + c.Diff)
	c.Unchanged = pr.isUnchanged() && len(files) == 0
	c.Undo += " The files of the folder are put back."
	if len(to.halfway) > 0 {
		c.Undo += " That configuration does not make what there is now: applying it would change " +
			strings.Join(to.halfway, ", ") + "."
	}
	if len(to.Unsettled) > 0 && !pr.isUnchanged() {
		c.Ask = true
		c.Losses = append(c.Losses, "when the checkpoint was taken, its configuration did not make what there was: it would "+
			"have changed "+strings.Join(to.Unsettled, ", ")+"; the restore applies that as well")
	}
	for _, a := range pr.actions {
		if a.Kind == plan.Create && to.state.Has(a.Address) {
			c.Facts = append(c.Facts, a.Address+" is made anew: it gets another id, and what was in it does not come back")
		}
	}
	if to.isAccepted() {
		c.Ask = false
	}
}

// findAcceptance finds what a person's acceptance of the plan would be. It is of one plan for one
// state: nobody can make it who has not the key of this worker.
func (a *applyAction) findAcceptance(pr *planning) (err error) {
	if pr.to == nil {
		return nil
	}
	if c := pr.describeChange("", ""); c.Ask {
		pr.to.acceptance, err = a.records.Sign(RestoreAction, []any{pr.to.Dir, pr.to.name, pr.state.Lineage, pr.state.Serial,
			pr.actions, c.Losses, c.Facts})
	}
	return err
}

// placeFiles makes the folder hold the files of the checkpoint.
func (a *applyAction) placeFiles(ctx context.Context, t *journal.Token, r record.Record) error {
	_, c, _, err := a.records.Read(ctx, t)
	if err != nil {
		return err
	}
	err = configuration.Placement{Dir: r.Dir, Token: r.Entry.Token, Want: c.After, Seen: c.Before, Over: t.CheckOpen}.Run()
	if changed, is := errors.AsType[*configuration.ChangedError](err); is {
		return activities.Errorf(activities.ActionDenied, "%s: %v by someone else; it was not put back", r.Dir, changed)
	}
	point.Reach("terraform.restore:placed")
	return err
}

// addArrival adds to the result of a restore what is not as it was.
func (a *applyAction) addArrival(ctx context.Context, t *journal.Token, r record.Record, now *state.State,
	result *activities.Result) error {
	_, c, _, err := a.records.Read(ctx, t)
	if err != nil {
		return err
	}
	then, err := state.ParseHidden(ctx, c.Goal)
	if err != nil {
		return err
	}
	differs := then.Changes(now)
	counts := map[string]any{"differs": differs}
	for _, name := range []string{"added", "changed", "destroyed"} {
		counts[name] = result.Outputs[name]
	}
	result.Outputs = counts
	result.Summary = fmt.Sprintf("%s is back at %s: %s; ", r.Dir, r.Checkpoint, result.Summary)
	if len(differs) == 0 {
		result.Summary += "objects, attributes and outputs are as they were"
		return nil
	}
	result.Summary += "not as it was: " + strings.Join(differs, ", ")
	for _, line := range differs {
		result.Notes = append(result.Notes, "not as it was: "+line)
	}
	return nil
}

// takeBackFiles undoes a restore: objects by what undoes any other step, and then the files.
func (a *applyAction) takeBackFiles(t *journal.Token, r record.Record, c record.Contents, d activities.Decision,
	turn int, objects func() (activities.Undone, error)) (u activities.Undone, err error) {
	if err := configuration.ClearStage(r.Dir, r.Entry.Token); err != nil { // a forward that was under way does no more
		return u, err
	}
	point.Reach("terraform.restore:fenced")
	drift, seen, err := findNewer(r, c)
	if err != nil {
		return u, err
	}
	if drift != nil {
		accepted, err := acceptDrift(t, d, drift)
		if err != nil || !accepted {
			return activities.Undone{Outcome: activities.Drifted, Drift: drift,
				Observed: "files of the folder have changed since the step; nothing was touched"}, err
		}
	}
	if u, err = objects(); err != nil || !u.Outcome.Settles() {
		return u, err
	}
	changed := c.Before.Differs(c.After)
	if len(changed) == 0 {
		return u, nil
	}
	if drift == nil {
		seen = c.After
	}
	now, err := configuration.ReadFolder(r.Dir)
	if err != nil {
		return u, err
	}
	err = configuration.Placement{Dir: r.Dir, Token: r.Entry.Token,
		Want: configuration.Files(now.Files).Back(c.Before, c.After), Seen: seen,
		Over: func() error { return run.CheckFence(t, turn) }}.Run()
	if changed, is := errors.AsType[*configuration.ChangedError](err); is {
		return u, fmt.Errorf("%s: %w", r.Dir, changed)
	}
	if err != nil {
		return u, err
	}
	point.Reach("terraform.restore:files-back")
	if u.Outcome == activities.Nothing {
		u.Outcome, u.Observed = activities.Restored, "no object was changed"
	}
	u.Observed += "; " + activities.CountOf(len(changed), "file") + " of the folder as before"
	return u, nil
}

// findNewer compares the files of the folder with what the step left, or found if it did not get that
// far; seen is what there is.
func findNewer(r record.Record, c record.Contents) (drift *activities.Drift, seen configuration.Files, err error) {
	now, err := configuration.ReadFolder(r.Dir)
	if err != nil {
		return nil, nil, err
	}
	seen = now.Files
	newer := seen.Newer(seen.Back(c.Before, c.After), c.After)
	if len(newer) == 0 {
		return nil, seen, nil
	}
	at := maps.Clone(seen)
	maps.DeleteFunc(at, func(path string, _ configuration.BundleFile) bool { return !slices.Contains(newer, path) })
	lines := "! file " + strings.Join(newer, "\n! file ")
	return &activities.Drift{Digest: activities.DigestOf([]byte(lines), []byte(at.Digest())), Diff: lines}, seen, nil
}

// observeFiles adds what the files of the folder are to what was seen of objects.
func observeFiles(seen activities.Observation, r record.Record, c record.Contents) (activities.Observation, error) {
	drift, now, err := findNewer(r, c)
	if err != nil {
		return seen, err
	}
	changed := c.Before.Differs(c.After)
	like := func(want configuration.Files) bool {
		differ := now.Differs(want)
		return !slices.ContainsFunc(changed, func(at string) bool { return slices.Contains(differ, at) })
	}
	switch {
	case seen.State != activities.AsLeft && seen.State != activities.AsBefore:
		return seen, nil
	case drift != nil:
		return activities.Observation{State: activities.Elsewise, Drift: drift,
			Detail: "files of the folder have changed since the step"}, nil
	case like(c.After) && (seen.State == activities.AsLeft || r.Back == record.Nowhere):
		seen.State = activities.AsLeft
	case like(c.Before) && (seen.State == activities.AsBefore || r.Back == record.Nowhere):
		seen.State = activities.AsBefore
	default:
		return activities.Observation{State: activities.Elsewise,
			Detail: "the files of the folder are not as the objects are"}, nil
	}
	return seen, nil
}
