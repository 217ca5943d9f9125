package terraform

import (
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"

	"github.com/hashicorp/terraform-exec/tfexec"
	tfjson "github.com/hashicorp/terraform-json"

	"github.com/seed-62bf7108/unwind/activities"
)

// planning is a step that is planned and whose undo is prepared; nothing has been touched.
type planning struct {
	ws     *workspace
	bundle bundle
	state  *state // before the step
	said   report
	// file is the saved plan.
	file  string
	back  undoPlan
	prior *bundle
	// notes go into the report: how the bundle was found.
	notes []string
}

const planFile = "unwind.tfplan"

// prepare reads the configuration and the state, plans, and makes sure that the step can be undone.
func (a *applyAction) prepare(ctx context.Context, e activities.Entry, s activities.Step) (*planning, error) {
	if err := a.checkInstalled(); err != nil {
		return nil, err
	}
	p, err := activities.DecodeParams[Params](s.With)
	if err != nil {
		return nil, err
	}
	dir, err := a.resolveFolder(p.Dir)
	if err != nil {
		return nil, err
	}
	if err := defaultWorkspace(dir); err != nil {
		return nil, err
	}
	b, notes, err := a.configuration(ctx, e, dir, p)
	if err != nil {
		return nil, err
	}
	ws, err := a.workspace(ctx, e, "forward", b, 0)
	if err != nil {
		return nil, err
	}
	now, err := ws.pullState(ctx)
	if err != nil {
		return nil, err
	}
	if err := activities.RunChecks(ctx, s.Checks, activities.Staged, activities.Live, scene{ws.dir, p.Dir}); err != nil {
		return nil, err
	}
	pr := &planning{ws: ws, bundle: b, state: now, file: filepath.Join(ws.dir, planFile), notes: notes}
	if pr.said, err = ws.plan(ctx, tfexec.Out(pr.file)); err != nil {
		return nil, err
	}
	return pr, a.chooseUndoPlan(ctx, e, p.Previous, pr)
}

// configuration is what the step applies: the one in dir; or, if it redoes a rolled back step, the one that was applied
// then.
func (a *applyAction) configuration(ctx context.Context, e activities.Entry, dir string, p Params) (b bundle, notes []string, err error) {
	if e.Redoes != "" {
		earlier, err := a.journal.Token(e.Redoes)
		if err != nil {
			return b, nil, err
		}
		_, c, found, err := a.readRecord(ctx, earlier)
		if err != nil {
			return b, nil, err
		}
		if found && c.Forward.Dir == dir {
			return c.Forward, []string{"the configuration is the one that the rolled back step applied; its objects are new"}, nil
		}
		notes = []string{"the configuration that the rolled back step applied is no longer kept; the one in the folder was used"}
	}
	b, err = readBundle(dir, p.Vars, p.VarFiles, p.Backend)
	return b, notes, err
}

// chooseUndoPlan decides how the step will be undone, and proves of it what can be proved.
func (a *applyAction) chooseUndoPlan(ctx context.Context, e activities.Entry, previous *Previous, pr *planning) (err error) {
	switch {
	case pr.said.unchanged():
		pr.back = nowhere
		return nil
	case pr.state.empty():
		pr.back = toNothing
		return nil
	case previous != nil:
		dir, err := a.resolveFolder(previous.Dir)
		if err != nil {
			return err
		}
		b, err := readBundle(dir, previous.Vars, previous.VarFiles, pr.bundle.Backend)
		if err != nil {
			return err
		}
		b.Dir = pr.bundle.Dir
		pr.back, pr.prior = toPrevious, &b
	default:
		if pr.prior, err = a.findKnown(pr.state); err != nil {
			return err
		}
		pr.back = toKnown
	}
	if pr.prior == nil {
		if pr.back = bySubtract; !pr.said.onlyAdds() {
			return unpreparedError(pr.bundle.Dir, pr.state)
		}
		return nil
	}
	return a.proveUndoPlan(ctx, e, pr)
}

// proveUndoPlan initialises the previous configuration, with the providers of the step, and plans it: that must work, and
// one that was only named must make exactly the present state.
func (a *applyAction) proveUndoPlan(ctx context.Context, e activities.Entry, pr *planning) error {
	pr.prior.lockLike(pr.lock())
	ws, err := a.workspace(ctx, e, "prior", *pr.prior, 0)
	if err != nil {
		return err
	}
	said, err := ws.plan(ctx, tfexec.Refresh(false))
	if err != nil {
		return err
	}
	if pr.back == toPrevious && !said.unchanged() {
		return activities.Errorf(activities.Refused, "previous: that configuration does not make the present state (applying it would "+
			"change %v), so an undo could not go back to it", addressesOf(said.actions()))
	}
	return nil
}

// lock is the lock file of the providers that init chose for the step.
func (pr *planning) lock() bundleFile { return readLock(pr.ws.dir) }

func addressesOf(ps []plannedChange) []string {
	var all []string
	for _, p := range ps {
		all = append(all, p.Address)
	}
	return all
}

// digest covers what the plan would do to which state.
func (pr *planning) digest(ctx context.Context) (activities.Digest, *tfjson.Plan, error) {
	if err := pr.ws.unsupervised(); err != nil {
		return "", nil, err
	}
	plan, err := pr.ws.tf.ShowPlanFile(ctx, pr.file)
	if err != nil {
		return "", nil, pr.ws.failedError(ctx, "show", report{}, err)
	}
	hideSecrets(ctx, sensitiveInPlan(plan))
	var changes []any
	for _, rc := range plan.ResourceChanges {
		changes = append(changes, rc.Address, rc.DeposedKey, rc.Change)
	}
	meaning, err := json.Marshal([]any{changes, plan.OutputChanges, pr.state.Lineage, pr.state.Serial, pr.back})
	if err != nil {
		return "", nil, err
	}
	return activities.DigestOf([]byte(pr.bundle.digest()), meaning), plan, nil
}

// record makes the undo record.
func (pr *planning) record(ctx context.Context, want activities.Digest) (record, error) {
	c := secretParts{Forward: pr.bundle, Prior: pr.prior, State: pr.state.raw, Secrets: pr.secrets(ctx)}
	c.Forward.lockLike(pr.lock())
	sealed, err := pr.ws.seal.encrypt("record", c)
	return record{
		Version: recordVersion, Want: want, Dir: pr.bundle.Dir,
		Had: pr.state.exists() || pr.ws.state != "" && isFile(pr.ws.state), Backup: pr.ws.state != "" && isFile(pr.ws.state+".backup"),
		Lineage: pr.state.Lineage, Serial: pr.state.Serial, Addresses: slices.Sorted(maps.Keys(pr.state.managed())),
		Planned: pr.said.actions(), Unchanged: pr.back == nowhere, Back: pr.back, Sealed: sealed,
	}, err
}

// secrets are the values that an undo must hide too: those among the variables that the masker hides now, because an undo
// does not get them again, and the sensitive ones of the previous state.
func (pr *planning) secrets(ctx context.Context) []string {
	m := activities.MaskerFrom(ctx)
	found := pr.state.sensitive()
	for _, v := range stringLeaves(pr.bundle.Vars) {
		if m.String(v) != v {
			found = append(found, v)
		}
	}
	if pr.prior != nil {
		for _, v := range stringLeaves(pr.prior.Vars) {
			if m.String(v) != v {
				found = append(found, v)
			}
		}
	}
	return found
}
