package terraform

import (
	"context"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/record"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

// findDrift compares what there is with what the step left: the state, and through a refresh the
// objects themselves. For a step that did not finish, only what it was not going to touch counts.
// Nil: no drift.
func (w *world) findDrift(ctx context.Context, ws *workspace.Workspace, r record.Record,
	now *state.State) (*activities.Drift, error) {
	was, done, err := w.records.ReadLeft(ctx, ws.Token)
	if err != nil {
		return nil, err
	}
	var lines []string
	if done {
		lines = was.Changes(now)
		if was.Lineage != now.Lineage {
			lines = append(lines, "~ lineage of the state")
		}
	} else {
		lines = r.ForeignChanges(now)
	}
	moved, values, err := ws.ChangedObjects(ctx)
	if err != nil {
		return nil, err
	}
	for _, address := range moved {
		if done || !r.PlansFor(address) {
			lines = append(lines, "! "+address+" is no longer as the state says")
		}
	}
	if len(lines) == 0 {
		return nil, nil
	}
	return &activities.Drift{
		Digest: activities.DigestOf([]byte(strings.Join(lines, "\n")), []byte(now.Digest()), values),
		Diff:   strings.Join(lines, "\n"),
	}, nil
}
