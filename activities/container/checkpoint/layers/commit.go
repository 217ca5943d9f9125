package layers

import (
	"context"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// Commit writes what steps did into the container's own filesystem, which a restart shows from the first instruction of its
// program on.
func (b *Backend) Commit(ctx context.Context, id string, tokens []string) (note string, err error) {
	now, err := b.engine.ContainerInspect(ctx, id)
	if engine.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", engine.Explain("looking at the container", err)
	}
	off, err := b.commitLayers(ctx, id, tokens)
	if err != nil {
		return "", err
	}
	point.Reach("container.exec:committed")
	switch {
	case off:
		return "", nil
	case !now.State.Running:
		return fmt.Sprintf("container %s does not run: what was done in it is written into its filesystem in the moment after its next start", engine.NameOf(now)), nil
	}
	return "", nil
}

// commitLayers makes what the steps of tokens have done in a container a part of its own filesystem. Off says that no layers
// stand over that any more.
func (b *Backend) commitLayers(ctx context.Context, id string, tokens []string) (off bool, err error) {
	a, err := b.ask(ctx, helper.Request{Op: helper.Commit, Container: id, Names: tokens})
	return a.Yes, err
}

// takeOff refuses where layers stay over a container: an image of it would lack them.
func (b *Backend) takeOff(ctx context.Context, id string) error {
	all, err := b.ask(ctx, helper.Request{Op: helper.Named, Container: id})
	if err != nil {
		return err
	}
	off, err := b.commitLayers(ctx, id, all.IDs)
	if err == nil && !off || helper.KindOf(err) == helper.InUse {
		err = activities.Errorf(activities.Refused, "an image of container %s would lack what processes that are left in its layers write; end them first", id[:12])
	}
	return err
}
