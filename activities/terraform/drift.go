package terraform

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/seed-62bf7108/unwind/activities"
)

// drift compares what there is with what the step left: the state, and through a refresh the objects themselves. For a step
// that did not finish, only what it was not going to touch counts. Nil: no drift.
func (ws *workspace) drift(ctx context.Context, r record, now *state) (*activities.Drift, error) {
	was, done, err := ws.readLeft(ctx, ws.token)
	if err != nil {
		return nil, err
	}
	var lines []string
	if done {
		lines = was.changes(now)
		if was.Lineage != now.Lineage {
			lines = append(lines, "~ lineage of the state")
		}
	} else {
		lines = r.foreignChanges(now)
	}
	moved, values, err := ws.changedObjects(ctx)
	if err != nil {
		return nil, err
	}
	for _, address := range moved {
		if done || !r.plansFor(address) {
			lines = append(lines, "! "+address+" is no longer as the state says")
		}
	}
	if len(lines) == 0 {
		return nil, nil
	}
	return &activities.Drift{
		Digest: activities.DigestOf([]byte(strings.Join(lines, "\n")), []byte(now.digest()), values),
		Diff:   strings.Join(lines, "\n"),
	}, nil
}

// foreignChanges are the things in the state that were neither there before nor planned.
func (r record) foreignChanges(now *state) []string {
	var lines []string
	for address := range now.managed() {
		if !slices.Contains(r.Addresses, address) && !r.plansFor(address) {
			lines = append(lines, "+ "+address)
		}
	}
	if r.Lineage != "" && now.exists() && now.Lineage != r.Lineage {
		lines = append(lines, "~ lineage of the state")
	}
	slices.Sort(lines)
	return lines
}

// plansFor reports whether the step was going to touch the object at address.
func (r record) plansFor(address string) bool {
	address, _, _ = strings.Cut(address, " (deposed")
	return slices.ContainsFunc(r.Planned, func(p plannedChange) bool { return p.Address == address })
}

// changedObjects are the addresses of objects that differ from the state, and a digestible form of how.
func (ws *workspace) changedObjects(ctx context.Context) ([]string, []byte, error) {
	file := filepath.Join(ws.dir, "unwind.refresh.tfplan")
	said, err := ws.plan(ctx, tfexec.RefreshOnly(true), tfexec.Out(file))
	if err != nil || len(said.Drifted) == 0 {
		return nil, nil, err
	}
	if err := ws.unsupervised(); err != nil {
		return nil, nil, err
	}
	plan, err := ws.tf.ShowPlanFile(ctx, file)
	if err != nil {
		return nil, nil, ws.failedError(ctx, "show", report{}, err)
	}
	hideSecrets(ctx, sensitiveInPlan(plan))
	values, err := json.Marshal(plan.ResourceDrift)
	slices.Sort(said.Drifted) // terraform lists them in any order, and a person decides on their digest
	return said.Drifted, values, err
}
