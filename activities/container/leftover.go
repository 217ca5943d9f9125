package container

import (
	"context"

	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/container/lineage"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// endLeftovers ends what a step has left running in its container: it would go on writing while its undo looks.
func (x *execAction) endLeftovers(ctx context.Context, rec stepRecord, token string) (ended bool, err error) {
	id, err := x.lineage.Standing(ctx, rec.Container.ID)
	if err != nil {
		return false, err
	}
	now, err := x.engine.ContainerInspect(ctx, id)
	if engine.IsNotFound(err) || err == nil && (lineage.IsPutAside(now) || !now.State.Running || now.State.Paused) {
		return false, nil
	}
	if err != nil {
		return false, engine.Explain("looking at the container", err)
	}
	return x.backends.Of(rec.Backend).EndProcesses(ctx, token, id)
}

// viewUndisturbed looks at the container of a step when nothing of the step's goes on writing there.
func (x *execAction) viewUndisturbed(ctx context.Context, t *journal.Token, rec stepRecord, token string) (target.View, error) {
	ended, err := x.endLeftovers(ctx, rec, token)
	if err != nil {
		return target.View{}, err
	}
	point.Reach("container.exec:left-ended")
	now, err := x.view(ctx, t, rec)
	if err == nil && ended && now.After != nil {
		now.AdoptOwn()
	}
	return now, err
}
