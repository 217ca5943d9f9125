package dockercommit

import (
	"context"
	"os"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/stack"
)

// plenty is so much room that nobody weighs a container for it, which takes as long as to look at
// all its files.
const plenty = 16 << 30

// checkRoom says as an error that the engine's disk has too little room for an image of what the
// container has written, and for what the step will write. Where the engine is on another host its
// disk cannot be seen: then it says itself what it cannot do.
func (b *Backend) checkRoom(ctx context.Context, now container.InspectResponse) error {
	if !stack.InCgroup(now.State.Pid, now.ID) {
		return nil
	}
	root, err := b.engine.DataRoot(ctx)
	if err != nil {
		return err
	}
	if _, err := os.Stat(root); err != nil {
		return nil //nolint:nilerr // it is not for this worker to see
	}
	left, err := helper.RoomAt(root)
	if err != nil || left.Holds(helper.Room{Bytes: plenty, Inodes: helper.Least.Inodes}) {
		return err
	}
	weighed, _, err := b.engine.ContainerInspectWithRaw(ctx, now.ID, true)
	if err != nil {
		return engine.Explain("weighing the container", err)
	}
	need := helper.Least
	if weighed.SizeRw != nil {
		need.Bytes += *weighed.SizeRw
	}
	if left.Holds(need) {
		return nil
	}
	return activities.Errorf(activities.ActionFailed,
		"checkpoint of container %s: the container engine's disk, at %s, has %s left, and an image of what the "+
			"container has written needs %s; docker system df shows what takes the space", engine.NameOf(now), root, left, need)
}
