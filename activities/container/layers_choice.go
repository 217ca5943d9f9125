package container

import (
	"context"
	"errors"
	"fmt"
	"sync"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/container/readonly"
)

// choice decides for each container whether its next checkpoint is a layer or an image.
type choice struct {
	mode   LayersMode
	layers *layers

	mu     sync.Mutex
	probed bool
	unfit  string // why this engine has no layers
}

// chosen is the backend that a step's checkpoint is taken by. Why says why it is not a layer, and what would make it one.
type chosen struct {
	Layers bool   `json:"layers,omitempty"`
	Why    string `json:"why,omitempty"`
}

// over are the layers that a container has; nil where it has none.
func (c *choice) over(ctx context.Context, id string) (*layers, error) {
	stands, err := c.layers.home.stands(ctx, id)
	if !stands || err != nil {
		return nil, err
	}
	return c.layers, nil
}

const (
	never    = "the worker's config says layers: never; leave that out"
	mayMount = "its processes may mount filesystems, and no layer takes a mount back; run it without --privileged and SYS_ADMIN"
)

// of looks at a container. One that has layers goes on with them, whatever the config says now: its engine knows nothing of
// what is in them.
func (c *choice) of(ctx context.Context, target container.InspectResponse) (chosen, error) {
	over, err := c.over(ctx, target.ID)
	if err != nil {
		return chosen{}, err
	}
	if over != nil {
		return c.again(ctx, target)
	}
	why, err := c.whyNot(ctx, target)
	switch {
	case err != nil:
		return chosen{}, err
	case why == "":
		return chosen{Layers: true}, nil
	case c.mode == LayersRequire:
		return chosen{}, activities.Errorf(activities.Refused,
			"container: %s cannot have the layer that the worker's config requires (layers: require): %s; or write layers: auto, and docker commit is used", nameOf(target), why)
	}
	return chosen{Why: why}, nil
}

// again is the choice for a container that has layers.
func (c *choice) again(ctx context.Context, target container.InspectResponse) (chosen, error) {
	err := c.layers.patiently(ctx, helper.Request{Op: helper.Fit, Container: target.ID}, prepared(target))
	if helper.KindOf(err) == helper.Unfit {
		return chosen{}, activities.Errorf(activities.Refused,
			"container: %s has layers of earlier steps over its root, and can have no more: %s; when their task commits, they are written into it, and when its records are released it may have checkpoints by docker commit", nameOf(target), reason(err))
	}
	return chosen{Layers: err == nil}, err
}

// whyNot says why a container cannot have its first layer; empty where it can.
func (c *choice) whyNot(ctx context.Context, target container.InspectResponse) (why string, err error) {
	if c.mode == LayersNever {
		return never, nil
	}
	if readonly.MayMount(target) {
		return mayMount, nil
	}
	why, err = c.probe(ctx)
	if c.mode != LayersRequire && isDefinite(err) {
		return err.Error(), nil
	}
	if why != "" || err != nil {
		return why, err
	}
	_, err = c.layers.askOf(ctx, target, helper.Request{Op: helper.Fit, Container: target.ID})
	if helper.KindOf(err) == helper.Unfit {
		return reason(err), nil
	}
	return "", err
}

// probe says once why this engine has no layers.
func (c *choice) probe(ctx context.Context) (why string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probed {
		return c.unfit, nil
	}
	_, err = c.layers.helper.Ask(ctx, helper.Request{Op: helper.Probe})
	if helper.KindOf(err) == helper.Unfit {
		c.unfit, err = reason(err), nil
	}
	c.probed = err == nil
	return c.unfit, err
}

// isDefinite says that an engine answers and a sidecar does not work on it. It may do so later: the next step tries again.
func isDefinite(err error) bool {
	return cerrdefs.IsInternal(err) || cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) || errors.Is(err, helper.ErrEnded)
}

// able says whether a sidecar can be asked, without waiting for the first.
func (c *choice) able() bool {
	if !c.mu.TryLock() {
		return false
	}
	defer c.mu.Unlock()
	return c.probed && c.unfit == ""
}

// prepare starts the first sidecar, so that no step waits for the engine to get its image. Where layers are required it waits
// for it, and fails without them.
func (c *choice) prepare(ctx context.Context) error {
	switch c.mode {
	case LayersNever:
		return nil
	case LayersRequire:
	default:
		go func() { _, _ = c.probe(context.WithoutCancel(ctx)) }() // a step that needs the answer asks again
		return nil
	}
	why, err := c.probe(ctx)
	if err == nil && why != "" {
		err = errors.New(why)
	}
	if err != nil {
		return fmt.Errorf("container.layers: require: layers do not work here: %w; or write layers: auto, and docker commit is used", err)
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

// fact is what a plan, a result and a report say of the choice; empty for records of steps that only read.
func (c chosen) fact() string {
	switch {
	case c.Layers:
		return "the checkpoint is a layer over the container's root (overlay)"
	case c.Why != "":
		return "the checkpoint is taken by docker commit, not by a layer: " + c.Why
	}
	return ""
}

// keeper is the backend that has the checkpoint of a record.
func (x *execAction) keeper(rec record) checkpoints {
	if rec.Chosen.Layers {
		return x.choice.layers
	}
	return x.backend
}
