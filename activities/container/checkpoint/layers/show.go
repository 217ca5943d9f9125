package layers

import (
	"context"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
)

// startLimit bounds how long a container may need until its first process is one that lets layers
// stand.
const startLimit = 10 * time.Second

// start starts the container where it does not run and is not to stay so, and has its layers shown
// again.
func (b *Backend) start(ctx context.Context, was container.InspectResponse, stopped bool) error {
	if was.State.Running || stopped {
		return nil
	}
	if err := b.engine.ContainerStart(ctx, was.ID, container.StartOptions{}); err != nil {
		return engine.Explain("starting container "+engine.NameOf(was), err)
	}
	return b.showLayers(ctx, was.ID)
}

// showLayers has the layers shown that a restart has taken away.
func (b *Backend) showLayers(ctx context.Context, id string) error {
	return b.askPatiently(ctx, helper.Request{Op: helper.Stacked, Container: id}, time.Now().Add(startLimit))
}

// askPatiently asks again until then: where a container has been started, its first process may
// prepare itself for a moment, and use its files while it does.
func (b *Backend) askPatiently(ctx context.Context, r helper.Request, until time.Time) error {
	for {
		_, err := b.ask(ctx, r)
		if helper.KindOf(err) != helper.Unfit || time.Now().After(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// readyBy is when a container must be ready for layers, if it is to be at all.
func readyBy(now container.InspectResponse) time.Time {
	began, _ := time.Parse(time.RFC3339Nano, now.State.StartedAt) // else it has long been
	return began.Add(startLimit)
}
