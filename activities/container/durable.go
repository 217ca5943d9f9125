package container

import (
	"context"
	"fmt"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// Commit writes the layers of committed steps into their containers' own filesystems, which a restart shows from the first
// instruction of a container's program on. The steps' checkpoints stay. Steps by docker commit have no layers, and are durable.
func (x *execAction) Commit(ctx context.Context, c activities.Commitment) (done activities.Committed, err error) {
	if err := x.here(ctx, c.Place); err != nil {
		return done, err
	}
	var order []string
	tokens := map[string][]string{}
	for _, token := range c.Tokens {
		t, err := x.journal.Token(token)
		if err != nil {
			return done, err
		}
		rec, found, err := readRecord(t)
		if damaged(err) { // its undo says so
			continue
		}
		if err != nil {
			return done, err
		}
		if !found || rec.ReadOnly || !rec.Chosen.Layers {
			continue
		}
		in := rec.Container.ID
		if tokens[in] == nil {
			order = append(order, in)
		}
		tokens[in] = append(tokens[in], token)
	}
	for _, in := range order {
		note, err := x.choice.layers.commit(ctx, in, tokens[in])
		if err != nil {
			return done, err
		}
		if note != "" {
			done.Notes = append(done.Notes, note)
		}
	}
	return done, nil
}

// commit makes what steps did in a container a part of its filesystem. The note says what is not yet.
func (l *layers) commit(ctx context.Context, id string, tokens []string) (note string, err error) {
	now, err := l.engine.ContainerInspect(ctx, id)
	if engine.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", engine.Explain("looking at the container", err)
	}
	off, err := l.commitIn(ctx, id, tokens)
	if err != nil {
		return "", err
	}
	point.Reach("container.exec:committed")
	switch {
	case off:
		return "", nil
	case !now.State.Running:
		return fmt.Sprintf("container %s does not run: what was done in it is written into its filesystem in the moment after its next start", nameOf(now)), nil
	}
	return "", nil
}

var _ activities.Committer = (*execAction)(nil)

// watchPause is how long the worker waits before it asks an engine again that has stopped telling what happens.
const watchPause = time.Second

// watch shows a container's layers again as soon as it has been started: by a person, by its engine, or by its host. It looks
// at all containers whenever it begins to listen, so that none that was started meanwhile is missed.
func (x *execAction) watch(ctx context.Context) {
	for ctx.Err() == nil {
		_ = x.listen(ctx) // it is asked again
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
}

// listen watches until the engine tells no more.
func (x *execAction) listen(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	started, ended := x.engine.Events(ctx, events.ListOptions{Filters: filters.NewArgs(
		filters.Arg("type", string(events.ContainerEventType)), filters.Arg("event", string(events.ActionStart)),
	)})
	known, err := x.choice.layers.home.containers()
	if err != nil {
		return err
	}
	for _, id := range known {
		x.choice.layers.showAgain(ctx, id)
	}
	for {
		select {
		case e := <-started:
			if over, err := x.choice.over(ctx, e.Actor.ID); over != nil && err == nil {
				go over.showAgain(ctx, e.Actor.ID)
			}
		case err := <-ended:
			return err
		}
	}
}

// showAgain shows the layers of a running container. Where it fails, whoever needs them next tries again and says why.
func (l *layers) showAgain(ctx context.Context, id string) {
	stands, err := l.home.stands(ctx, id)
	if !stands || err != nil {
		return
	}
	now, err := l.engine.ContainerInspect(ctx, id)
	if err == nil && now.State.Running {
		_ = l.settle(ctx, id)
	}
}
