package container

import (
	"context"
	"errors"
	"fmt"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// isLost says that a container has been removed, with what its checkpoint lay over: no rollback can
// make it anew. One that was put aside, or has another name, is not.
func (x *execAction) isLost(rec stepRecord, now target.View, present container.InspectResponse) bool {
	return now.Gone && present.ContainerJSONBase == nil && !x.backends.Of(rec.Backend).Traits().Images
}

// settleLost undoes what is left of a step whose container is lost: what it did in volumes.
func (x *execAction) settleLost(ctx context.Context, t *journal.Token, rec stepRecord, before manifest.Manifest,
	d activities.Decision) (activities.Undone, error) {
	name := engine.NameOf(rec.Container)
	undone := activities.Undone{
		Outcome: activities.Compensated,
		Observed: fmt.Sprintf(
			"container %s (%s) has been removed, and with it the layers of the step: there is nothing to undo in it", name,
			rec.Container.ID[:12]),
		Losses: []string{"container " + name + " is not made anew"},
	}
	if len(rec.Volumes) == 0 {
		return undone, nil
	}
	seen, err := x.mayOverwrite(ctx, t, rec, d)
	if err != nil {
		return activities.Undone{}, err
	}
	differs, err := x.copies(t, rec).Restore(ctx, checkpoint.UndoTurn, "", seen)
	if newer := (*snapshot.DriftError)(nil); errors.As(err, &newer) {
		return x.driftOfVolumes(ctx, t, rec, before)
	}
	if err != nil {
		return activities.Undone{}, err
	}
	undone.Observed += "; its volumes hold what they held before"
	if len(differs) > 0 {
		undone.Outcome = activities.Residue
		undone.Observed = fmt.Sprintf("not as before the step: %s in volumes of %s, which has been removed",
			activities.CountOf(len(differs), "path"), name)
		undone.Losses = append(manifest.Few(differs), undone.Losses...)
	}
	return undone, nil
}
