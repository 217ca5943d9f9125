package container

import (
	"context"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// viewUndisturbed looks at the container of a step after ending what the step has left running in
// it, which would go on writing meanwhile. It returns the container's inspection too.
func (x *execAction) viewUndisturbed(ctx context.Context, t *journal.Token, rec stepRecord, token string) (target.View,
	container.InspectResponse, error) {
	ended, backend := false, x.backends.Of(rec.Backend)
	now, present, err := x.viewBy(ctx, t, rec, func(present container.InspectResponse) (m manifest.Manifest, err error) {
		if !present.State.Running || present.State.Paused {
			return backend.ReadManifest(ctx, token, present.ID, rec.Ignore)
		}
		m, ended, err = backend.EndAndRead(ctx, token, present.ID, rec.Ignore)
		return m, err
	})
	point.Reach("container.exec:left-ended")
	if err == nil && ended && now.After != nil {
		now.AdoptOwn()
	}
	return now, present, err
}
