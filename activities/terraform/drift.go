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

// drift compares what is there with what the step left: the state, and through a refresh the objects themselves. For a
// step that did not come to its end, only what it was not going to touch counts. Nil: no drift.
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
		lines = r.foreign(now)
	}
	moved, values, err := ws.moved(ctx)
	if err != nil {
		return nil, err
	}
	for _, address := range moved {
		if done || !r.plans(address) {
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

// foreign are the things in the state that neither were there before nor were planned.
func (r record) foreign(now *state) []string {
	var lines []string
	for address := range now.managed() {
		if !slices.Contains(r.Addresses, address) && !r.plans(address) {
			lines = append(lines, "+ "+address)
		}
	}
	if r.Lineage != "" && now.exists() && now.Lineage != r.Lineage {
		lines = append(lines, "~ lineage of the state")
	}
	slices.Sort(lines)
	return lines
}

// plans says that the step was going to touch the object at address.
func (r record) plans(address string) bool {
	address, _, _ = strings.Cut(address, " (deposed")
	return slices.ContainsFunc(r.Planned, func(p plannedChange) bool { return p.Address == address })
}

// moved are the addresses of objects that are not as the state says, and a digestible form of how.
func (ws *workspace) moved(ctx context.Context) ([]string, []byte, error) {
	file := filepath.Join(ws.dir, "unwind.refresh.tfplan")
	said, err := ws.plan(ctx, tfexec.RefreshOnly(true), tfexec.Out(file))
	if err != nil || len(said.Drifted) == 0 {
		return nil, nil, err
	}
	if err := ws.plainly(); err != nil {
		return nil, nil, err
	}
	plan, err := ws.tf.ShowPlanFile(ctx, file)
	if err != nil {
		return nil, nil, ws.failed(ctx, "show", report{}, err)
	}
	hide(ctx, sensitiveInPlan(plan))
	values, err := json.Marshal(plan.ResourceDrift)
	slices.Sort(said.Drifted) // terraform tells them in any order, and a person decides on their digest
	return said.Drifted, values, err
}
