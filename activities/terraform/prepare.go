package terraform

import (
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
	"github.com/seed-62bf7108/unwind/activities/terraform/plan"
	"github.com/seed-62bf7108/unwind/activities/terraform/record"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/seed-62bf7108/unwind/activities"
)

// planning is a step that is planned and whose undo is prepared; nothing has been touched.
type planning struct {
	ws     *workspace.Workspace
	bundle configuration.Bundle
	state  *state.State // before the step
	said   stream.Report
	// file is the saved plan, shown what it says, and actions what it does.
	file    string
	shown   *tfjson.Plan
	actions []plan.Action
	back    record.UndoPlan
	prior   *configuration.Bundle
	// regression says how the state is not what this worker left there; empty where it is.
	regression string
	// programs describes what the plan would run besides providers; sources are the data sources among
	// it.
	programs, sources []string
	// notes go into the report: how the bundle was found.
	notes []string
	// to is what a restore goes back to; nil for any other step.
	to *goal
}

const planFile = "unwind.tfplan"

// prepare reads the configuration and the state, plans, and makes sure that the step can be undone.
func (a *applyAction) prepare(ctx context.Context, e activities.Entry, s activities.Step) (*planning, error) {
	if err := a.checkInstalled(); err != nil {
		return nil, err
	}
	r, err := a.request(ctx, e, s)
	if err != nil {
		return nil, err
	}
	ws, err := a.openWorkspace(ctx, e, "forward", r.bundle, 0)
	if err != nil {
		return nil, err
	}
	now, err := ws.PullState(ctx)
	if err == nil && r.to != nil {
		ws, err = a.readyGoal(ctx, e, ws, now, &r)
	}
	if err != nil {
		return nil, err
	}
	if err := activities.RunChecks(ctx, s.Checks, activities.Staged, activities.Live,
		scene{ws.Dir, r.named, a.host, ws.CheckLimits(ws.Dir)}); err != nil {
		return nil, err
	}
	place, err := ws.Place()
	if err != nil {
		return nil, err
	}
	mark, err := a.records.ReadMark(place)
	if err != nil {
		return nil, err
	}
	pr := &planning{ws: ws, bundle: r.bundle, state: now, file: filepath.Join(ws.Dir, planFile), notes: r.notes,
		regression: mark.Regression(now), to: r.to}
	if pr.said, err = ws.Plan(ctx, tfexec.Out(pr.file), tfexec.Destroy(r.to.destroys())); err != nil {
		return nil, err
	}
	if pr.shown, pr.actions, err = ws.ShowPlan(ctx, pr.file); err != nil {
		return nil, err
	}
	pr.programs, pr.sources = plan.FindPrograms(pr.shown)
	if err := pr.checkImports(); err != nil {
		return nil, err
	}
	if err := a.chooseUndoPlan(ctx, e, r.previous, pr); err != nil {
		return nil, err
	}
	return pr, a.findAcceptance(pr)
}

// request is what a step asks for.
type request struct {
	// bundle is what is applied, and named the folder as the step names it.
	bundle configuration.Bundle
	named  string
	notes  []string
	// previous is the configuration that has made the present state, as far as the step says.
	previous *Previous
	to       *goal
}

// request reads what a step asks for.
func (a *applyAction) request(ctx context.Context, e activities.Entry, s activities.Step) (r request, err error) {
	if e.Action != Action {
		return a.requestRestore(ctx, s)
	}
	p, err := activities.DecodeParams[Params](s.With)
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
	r = request{named: p.Dir, previous: p.Previous}
	r.bundle, r.notes, err = a.configuration(ctx, e, dir, p)
	return r, err
}

// isUnchanged reports whether the plan does nothing.
func (pr *planning) isUnchanged() bool { return len(pr.actions) == 0 && !pr.said.Outputs }

// onlyAdds reports whether nothing that was there before would change: objects may be made,
// imported and moved.
func (pr *planning) onlyAdds() bool {
	return !pr.said.Outputs &&
		!slices.ContainsFunc(pr.actions, func(a plan.Action) bool { return a.Kind != plan.Create && a.Kind != plan.Keep })
}

// checkImports refuses an import to an address that another object leaves in the same plan: the
// undo could not tell them apart.
func (pr *planning) checkImports() error {
	for _, a := range pr.actions {
		if a.Imported && pr.state.Has(a.Address) {
			return activities.Errorf(activities.Refused,
				"the plan imports an object to %s and moves the one that is there: import it in a step of its own", a.Address)
		}
	}
	return nil
}

// drifted are the objects from before that the plan changes and that are not as the state says: an
// undo goes back to the state.
func (pr *planning) drifted() []string {
	var all []string
	for _, rc := range pr.shown.ResourceDrift {
		if rc.Change == nil || rc.Change.Actions.NoOp() {
			continue
		}
		if slices.ContainsFunc(pr.actions,
			func(a plan.Action) bool { return a.Address == rc.Address && a.Kind != plan.Keep }) {
			all = append(all, rc.Address)
		}
	}
	slices.Sort(all)
	return all
}

// configuration is what the step applies: the one in dir; or, if it redoes a rolled back step, the
// one that was applied then.
func (a *applyAction) configuration(ctx context.Context, e activities.Entry, dir string,
	p Params) (b configuration.Bundle, notes []string, err error) {
	if e.Redoes != "" {
		earlier, err := a.journal.Token(e.Redoes)
		if err != nil {
			return b, nil, err
		}
		_, c, found, err := a.records.Read(ctx, earlier)
		if err != nil {
			return b, nil, err
		}
		if found && c.Forward.Dir == dir {
			return c.Forward, []string{"the configuration is the one that the rolled back step applied; its objects are new"},
				nil
		}
		notes = []string{
			"the configuration that the rolled back step applied is no longer kept; the one in the folder was used"}
	}
	b, err = configuration.Read(dir, p.Vars, p.VarFiles, p.Backend)
	return b, notes, err
}

// chooseUndoPlan decides how the step will be undone, and proves of it what can be proved.
func (a *applyAction) chooseUndoPlan(ctx context.Context, e activities.Entry, previous *Previous,
	pr *planning) (err error) {
	switch {
	case pr.isUnchanged():
		pr.back = record.Nowhere
		return nil
	case pr.state.IsEmpty():
		pr.back = record.ToNothing
		return nil
	case previous != nil:
		dir, err := a.resolveFolder(previous.Dir)
		if err != nil {
			return err
		}
		b, err := configuration.Read(dir, previous.Vars, previous.VarFiles, pr.bundle.Backend)
		if err != nil {
			return err
		}
		b.Dir = pr.bundle.Dir
		pr.back, pr.prior = record.ToPrevious, &b
	default:
		if pr.prior, err = a.records.FindKnown(pr.state); err != nil {
			return err
		}
		pr.back = record.ToKnown
		if pr.prior == nil && pr.to != nil {
			pr.back, pr.prior = record.ToPrevious, &pr.to.now
		}
	}
	if pr.prior == nil {
		if pr.back = record.BySubtract; !pr.onlyAdds() {
			return unpreparedError(pr.bundle.Dir, pr.state)
		}
		return nil
	}
	return a.proveUndoPlan(ctx, e, pr)
}

// proveUndoPlan initialises the previous configuration, with the providers of the step, and plans
// it: that must work, and one that was only named must make exactly the present state.
func (a *applyAction) proveUndoPlan(ctx context.Context, e activities.Entry, pr *planning) error {
	pr.prior.LockLike(pr.lock())
	ws, err := a.openWorkspace(ctx, e, "prior", pr.prior.Settled(), 0)
	if err != nil {
		return err
	}
	said, err := ws.Plan(ctx, tfexec.Refresh(false))
	if err != nil {
		return err
	}
	tainted := pr.state.Tainted()
	changed := slices.DeleteFunc(addressesOf(said.Actions()), func(address string) bool { return tainted[address] })
	if pr.back == record.ToPrevious && (len(changed) > 0 || said.Outputs) {
		if pr.to != nil { // a configuration that was applied half is what one goes back from
			pr.to.halfway = append(changed, pr.to.halfway...)
			return nil
		}
		return activities.Errorf(activities.Refused,
			"previous: that configuration does not make the present state (applying it would "+
				"change %v), so an undo could not go back to it", changed)
	}
	return nil
}

// lock is the lock file of the providers that init chose for the step.
func (pr *planning) lock() configuration.BundleFile { return configuration.ReadLock(pr.ws.Dir) }

func addressesOf(ps []stream.PlannedChange) []string {
	var all []string
	for _, p := range ps {
		all = append(all, p.Address)
	}
	return all
}

// digest covers what the plan would do to which state.
func (pr *planning) digest() (activities.Digest, error) {
	var changes []any
	for _, rc := range pr.shown.ResourceChanges {
		changes = append(changes, rc.Address, rc.PreviousAddress, rc.DeposedKey, rc.Change)
	}
	meaning, err := json.Marshal([]any{changes, pr.shown.OutputChanges, pr.state.Lineage, pr.state.Serial, pr.back,
		pr.regression, pr.to.meaning()})
	return activities.DigestOf([]byte(pr.bundle.Digest()), meaning), err
}

// record makes the undo record.
func (a *applyAction) record(ctx context.Context, pr *planning, want activities.Digest) (record.Record, error) {
	c := record.Contents{Forward: pr.bundle, Prior: pr.prior, State: pr.state.Raw, Secrets: pr.secrets(ctx)}
	c.Forward.LockLike(pr.lock())
	r := record.Record{
		Want: want, Dir: pr.bundle.Dir,
		Had: pr.state.Exists() || pr.ws.HasStateFile(), Backup: pr.ws.HasBackupFile(),
		Lineage: pr.state.Lineage, Serial: pr.state.Serial, Addresses: slices.Sorted(maps.Keys(pr.state.Managed())),
		Planned: pr.actions, Drifted: pr.drifted(), Unchanged: pr.back == record.Nowhere, Back: pr.back, Sources: pr.sources,
	}
	if pr.to != nil {
		r.Checkpoint, r.Destroys = pr.to.name, pr.to.destroys()
		c.Before, c.After, c.Goal = pr.to.now.Files, pr.to.Files, pr.to.State
	}
	return r, a.records.Seal(&r, c)
}

// secrets are the values that an undo must hide too: those among the variables that the masker
// hides now, because an undo does not get them again, and the sensitive ones of the previous state.
func (pr *planning) secrets(ctx context.Context) []string {
	m := activities.MaskerFrom(ctx)
	found := pr.state.Sensitive()
	for _, v := range state.StringLeaves(pr.bundle.Vars) {
		if m.String(v) != v {
			found = append(found, v)
		}
	}
	if pr.prior != nil {
		for _, v := range state.StringLeaves(pr.prior.Vars) {
			if m.String(v) != v {
				found = append(found, v)
			}
		}
	}
	return found
}

// unpreparedError refuses a step that could not be undone.
func unpreparedError(dir string, s *state.State) error {
	return activities.Errorf(activities.Refused,
		"the state of %s holds %s, made by a configuration that this worker does not "+
			"know, so the step could not be undone. Name a folder with that configuration in previous, or apply it unchanged "+
			"through "+
			"%s first: from then on it is known", dir, activities.CountOf(len(s.Managed()), "object"), Action)
}
