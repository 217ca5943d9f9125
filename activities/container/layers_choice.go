package container

import (
	"context"
	"errors"
	"sync"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/helper"
)

// choice decides for each container which backend takes the next checkpoint of it.
type choice struct {
	// nearby are layers by a helper on this host, sidecar those by one on the engine.
	nearby, sidecar *layers
	// wanted is the one of them that the worker's config asks for; nil is docker commit.
	wanted *layers

	mu     sync.Mutex
	probed bool
	unfit  string // why this host has no layers
}

// chosen is the backend that a step's checkpoint is taken by. Why says why it is not the one that the config asks for.
type chosen struct {
	Layers bool `json:"layers,omitempty"`
	// Sidecar says that a sidecar on the engine has the layers, and no helper on the worker's host.
	Sidecar bool   `json:"sidecar,omitempty"`
	Why     string `json:"why,omitempty"`
}

// over are the layers that a container has; nil where it has none.
func (c *choice) over(ctx context.Context, id string) (*layers, error) {
	for _, l := range []*layers{c.nearby, c.sidecar} {
		if stands, err := l.home.stands(ctx, id); stands || err != nil {
			return l, err
		}
	}
	return nil, nil
}

// layersOf are those that a choice has fallen on.
func (c *choice) layersOf(by chosen) *layers {
	if by.Sidecar {
		return c.sidecar
	}
	return c.nearby
}

// of looks at a container. One that has layers goes on with these, whatever the config says now: its engine knows nothing
// of what is in them, and no other helper does.
func (c *choice) of(ctx context.Context, target container.InspectResponse) (chosen, error) {
	by, err := c.over(ctx, target.ID)
	if err != nil || by == nil && c.wanted == nil {
		return chosen{}, err
	}
	fit := helper.Request{Op: helper.Fit, Container: target.ID}
	stands := by != nil
	if stands {
		err = by.patiently(ctx, fit, prepared(target))
	} else {
		if mayMount(target) {
			return chosen{Why: "its processes may mount filesystems (it is privileged, or has SYS_ADMIN), and no layer takes a mount back"}, nil
		}
		by = c.wanted
		if why, err := c.probe(ctx); why != "" || err != nil {
			return chosen{Why: why}, err
		}
		_, err = by.askOf(ctx, target, fit)
	}
	switch {
	case err == nil:
		return chosen{Layers: true, Sidecar: by == c.sidecar}, nil
	case helper.KindOf(err) == helper.Unfit && !stands:
		return chosen{Why: reason(err)}, nil
	case helper.KindOf(err) == helper.Unfit:
		return chosen{}, activities.Errorf(activities.Refused,
			"container: %s has layers of earlier steps over its root, and can have no more: %s; once their records are released, its layers are written into it", nameOf(target), reason(err))
	}
	return chosen{}, err
}

// probe says once why this host has no layers.
func (c *choice) probe(ctx context.Context) (why string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probed {
		return c.unfit, nil
	}
	_, err = c.wanted.helper.Ask(ctx, helper.Request{Op: helper.Probe})
	if helper.KindOf(err) == helper.Unfit {
		c.unfit, err = reason(err), nil
	}
	c.probed = err == nil
	return c.unfit, err
}

// reason is what a helper has said.
func reason(err error) string {
	if f, ok := errors.AsType[*helper.Failure](err); ok {
		return f.Message
	}
	return err.Error()
}

// fact is what a plan says of the choice; empty where the config asks for nothing and gets it.
func (c chosen) fact() string {
	switch {
	case c.Sidecar:
		return "the checkpoint is a layer over the container's root (overlay), made by a sidecar container on the engine"
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
		return x.choice.layersOf(rec.Chosen)
	}
	return x.backend
}
