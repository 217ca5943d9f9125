package layers

import (
	"context"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
)

// watchPause is how long the worker waits before it asks an engine again that has stopped telling
// what happens.
const watchPause = time.Second

// Watch shows a container's layers again as soon as it has been started: by a person, by its
// engine, or by its host. It looks at all containers whenever it begins to listen, so that none
// that was started meanwhile is missed.
func (b *Backend) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		_ = b.listen(ctx) // it is asked again
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
}

// listen watches until the engine tells no more.
func (b *Backend) listen(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	started, ended := b.engine.Events(ctx, events.ListOptions{Filters: filters.NewArgs(
		filters.Arg("type", string(events.ContainerEventType)), filters.Arg("event", string(events.ActionStart)),
	)})
	known, err := b.notes.list()
	if err != nil {
		return err
	}
	for _, id := range known {
		b.showAgain(ctx, id)
	}
	for {
		select {
		case e := <-started:
			if covered, err := b.isOver(ctx, e.Actor.ID); covered && err == nil {
				go b.showAgain(ctx, e.Actor.ID)
			}
		case err := <-ended:
			return err
		}
	}
}

// showAgain shows the layers of a running container. Where it fails, whoever needs them next tries
// again and says why.
func (b *Backend) showAgain(ctx context.Context, id string) {
	covered, err := b.isOver(ctx, id)
	if !covered || err != nil {
		return
	}
	now, err := b.engine.ContainerInspect(ctx, id)
	if err == nil && now.State.Running {
		_ = b.showLayers(ctx, id)
	}
}
