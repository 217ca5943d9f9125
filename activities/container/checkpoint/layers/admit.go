package layers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
)

// Mode says when a checkpoint is a layer.
type Mode string

// The modes. Empty is Auto.
const (
	Auto    Mode = "auto"    // wherever layers work
	Never   Mode = "never"   // only over containers that have layers already
	Require Mode = "require" // always: a worker without layers does not start, and a step that cannot have one is refused
)

// Valid says whether it is one of the modes.
func (m Mode) Valid() bool { return slices.Contains([]Mode{"", Auto, Never, Require}, m) }

// probe is what is known of an engine: whether layers work on it.
type probe struct {
	mu    sync.Mutex
	known bool
	unfit string // why there are none
}

const (
	never    = "the worker's config says layers: never; leave that out"
	mayMount = "its processes may mount filesystems, and no layer takes a mount back; run it without --privileged and " +
		"SYS_ADMIN"
)

// Admit implements [checkpoint.Selective]. A container that has layers goes on with them, whatever
// the config says now: its engine knows nothing of what is in them.
func (b *Backend) Admit(ctx context.Context, target container.InspectResponse) (obstacle string, err error) {
	noted, err := b.notes.has(target.ID)
	if err != nil {
		return "", err
	}
	if noted { // it most often is one that goes on
		if a, err := b.ask(ctx, helper.Request{Op: helper.Fit, Container: target.ID}); err == nil && a.Yes {
			return "", nil
		}
	}
	covered, err := b.isOver(ctx, target.ID)
	if err != nil {
		return "", err
	}
	if covered {
		return "", b.admitAgain(ctx, target)
	}
	obstacle, err = b.findObstacle(ctx, target)
	if err == nil && obstacle != "" && b.mode == Require {
		return "", activities.Errorf(activities.Refused,
			"container: %s cannot have the layer that the worker's config requires (layers: require): %s; or write layers: "+
				"auto, and docker commit is used", engine.NameOf(target), obstacle)
	}
	return obstacle, err
}

// admitAgain admits a container that has layers.
func (b *Backend) admitAgain(ctx context.Context, target container.InspectResponse) error {
	err := b.askPatiently(ctx, helper.Request{Op: helper.Fit, Container: target.ID}, readyBy(target))
	if helper.KindOf(err) == helper.Unfit {
		return activities.Errorf(activities.Refused,
			"container: %s has layers of earlier steps over its root, and can have no more: %s; when their task commits, "+
				"they are written into it, and when its records are released it may have checkpoints by docker commit",
			engine.NameOf(target), reason(err))
	}
	return err
}

// findObstacle says why a container cannot have its first layer; empty where it can.
func (b *Backend) findObstacle(ctx context.Context, target container.InspectResponse) (why string, err error) {
	if b.mode == Never {
		return never, nil
	}
	if engine.MayMount(target) {
		return mayMount, nil
	}
	why, err = b.probeEngine(ctx)
	if b.mode != Require && isDefinite(err) {
		return err.Error(), nil
	}
	if why != "" || err != nil {
		return why, err
	}
	_, err = b.askOf(ctx, target, helper.Request{Op: helper.Fit, Container: target.ID})
	if helper.KindOf(err) == helper.Unfit {
		return reason(err), nil
	}
	return "", err
}

// probeEngine says once why this engine has no layers.
func (b *Backend) probeEngine(ctx context.Context) (why string, err error) {
	b.probe.mu.Lock()
	defer b.probe.mu.Unlock()
	if b.probe.known {
		return b.probe.unfit, nil
	}
	_, err = b.helper.Ask(ctx, helper.Request{Op: helper.Probe})
	if helper.KindOf(err) == helper.Unfit {
		b.probe.unfit, err = reason(err), nil
	}
	b.probe.known = err == nil
	return b.probe.unfit, err
}

// isDefinite says that an engine answers and a sidecar does not work on it. It may do so later: the
// next step tries again.
func isDefinite(err error) bool {
	return cerrdefs.IsInternal(err) || cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) ||
		errors.Is(err, helper.ErrEnded)
}

// CanAsk says whether a sidecar can be asked, without waiting for the first.
func (b *Backend) CanAsk() bool {
	if !b.probe.mu.TryLock() {
		return false
	}
	defer b.probe.mu.Unlock()
	return b.probe.known && b.probe.unfit == ""
}

// Prepare starts the first sidecar, so that no step waits for the engine to get its image. Where
// layers are required it waits for it, and fails without them.
func (b *Backend) Prepare(ctx context.Context) error {
	switch b.mode {
	case Never:
		return nil
	case Require:
	default:
		go func() { _, _ = b.probeEngine(context.WithoutCancel(ctx)) }() // a step that needs the answer asks again
		return nil
	}
	why, err := b.probeEngine(ctx)
	if err == nil && why != "" {
		err = errors.New(why)
	}
	if err != nil {
		return fmt.Errorf(
			"container.layers: require: layers do not work here: %w; or write layers: auto, and docker commit is used", err)
	}
	return nil
}

// reason is what a helper has said.
func reason(err error) string {
	if f, ok := errors.AsType[*helper.Failure](err); ok {
		return f.Message
	}
	return err.Error()
}
