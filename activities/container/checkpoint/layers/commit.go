package layers

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// Commit writes what steps did into the container's own filesystem, which a restart shows from the
// first instruction of its program on.
func (b *Backend) Commit(ctx context.Context, id string, tokens []string) (note string, err error) {
	now, err := b.engine.ContainerInspect(ctx, id)
	if engine.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", engine.Explain("looking at the container", err)
	}
	done, err := b.commitLayers(ctx, id, tokens)
	if err != nil {
		return "", err
	}
	point.Reach("container.exec:committed")
	var notes []string
	if !done.Yes && !now.State.Running {
		notes = append(notes,
			fmt.Sprintf(
				"container %s does not run: what was done in it is written into its filesystem in the moment after its next "+
					"start, but for what somebody else has changed by then", engine.NameOf(now)))
	}
	if len(done.Users) > 0 {
		notes = append(notes,
			fmt.Sprintf(
				"container %s: what steps have left running (%s) goes on in its layers. What that has written so far is in the "+
					"container's own filesystem; "+
					"what it writes from now on gets there after the next restart of the container, once a worker runs, or with the "+
					"next commit or release of records there, but for what somebody else has changed by then",
				engine.NameOf(now), listFew(done.Users)))
	}
	if len(done.Paths) > 0 {
		notes = append(notes,
			fmt.Sprintf(
				"container %s: somebody else has changed %s in its own filesystem, below the layers (as docker cp does). "+
					"That is newer and was kept: what the task has written there is not in the container", engine.NameOf(now),
				listFew(done.Paths)))
	}
	return strings.Join(notes, "; "), nil
}

// listFew lists some of many.
func listFew(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return strings.Join(all[:most], ", ") + fmt.Sprintf(" and %d more", len(all)-most)
}

// commitLayers makes what the steps of tokens have done in a container a part of its own
// filesystem.
func (b *Backend) commitLayers(ctx context.Context, id string, tokens []string) (helper.Answer, error) {
	return b.ask(ctx, helper.Request{Op: helper.Commit, Container: id, Names: tokens})
}

// takeOff refuses where layers stay over a container: an image of it would lack them.
func (b *Backend) takeOff(ctx context.Context, id string) error {
	all, err := b.ask(ctx, helper.Request{Op: helper.Named, Container: id})
	if err != nil {
		return err
	}
	done, err := b.commitLayers(ctx, id, all.IDs)
	if err == nil && !done.Yes || helper.KindOf(err) == helper.InUse {
		err = activities.Errorf(activities.Refused,
			"an image of container %s would lack what processes that are left in its layers write; end them first", id[:12])
	}
	return err
}
