// Package aside sets containers aside, and brings them back: one in whose place a step puts another
// is kept, under a name of the step's token, until the step is undone or its record is released.
//
// An engine takes a name atomically, and for one container only. That is the fence between the
// calls of tokens: once a container is back, or forward again, something holds each of the names by
// which a late forward or a late undo could still move it.
package aside

import (
	"context"
	"errors"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// Container is one that a step sets aside.
type Container struct {
	Engine engine.Client
	Token  string
	// ID is the container, and Name what it is called in its place.
	ID, Name string
	// Restarts is when the engine starts it again by itself.
	Restarts container.RestartPolicy
	// Left is the name under which a later step had left it aside; empty: none had.
	Left string
	// Images are ids of images for what only holds a name: somebody may have removed one.
	Images []string
	// Reach reports the point after a side effect.
	Reach func(what string)
}

// ErrGone says that somebody has removed a container that was set aside.
var ErrGone = errors.New("the container that was set aside has been removed by somebody")

// SetAside renames the container, and has the engine not start it by itself: it would come back with
// the engine, or count its end as a failure. Done again, it does what is left.
func (c Container) SetAside(ctx context.Context) error {
	now, err := c.Engine.ContainerInspect(ctx, c.ID)
	if err != nil {
		return engine.Explain("looking at the old container", err)
	}
	if engine.NameOf(now) != NameFor(c.Token) {
		c.Reach("before-aside")
		if err := c.Engine.ContainerRename(ctx, c.ID, NameFor(c.Token)); err != nil {
			return engine.Explain("setting the old container aside", err)
		}
	}
	c.Reach("old-renamed")
	return c.StopRestarts(ctx, NameFor(c.Token))
}

// BringBack gives the container its name again. It ends when no forward, no other undo of the token
// and no undo of the step that had left it aside can do anything to it any more: the names by which
// they could are taken. Ready is called with the name that only an undo gives it, before it has its
// own.
func (c Container) BringBack(ctx context.Context, ready func(ctx context.Context, name string) error) error {
	back := ReturnName(c.Token)
	for {
		holder, err := engine.FindHolder(ctx, c.Engine, back)
		if err != nil || holder != "" && holder != c.ID { // it is done
			return err
		}
		now, err := c.Engine.ContainerInspect(ctx, c.ID)
		if engine.IsNotFound(err) {
			return ErrGone
		}
		if err != nil {
			return engine.Explain("looking at the old container", err)
		}
		if engine.NameOf(now) != back {
			c.Reach("before-return")
			if err := c.Engine.ContainerRename(ctx, c.ID, back); err != nil {
				return engine.Explain("taking the old container back", err)
			}
		}
		c.Reach("old-returning")
		if fenced, err := c.holdOwn(ctx); err != nil {
			return err
		} else if !fenced { // another call was quicker
			continue
		}
		c.Reach("forward-fenced")
		if err := ready(ctx, back); err != nil {
			return err
		}
		if err := c.Engine.ContainerRename(ctx, c.ID, c.Name); err != nil {
			return engine.Explain("giving the old container its name "+c.Name, err)
		}
		c.Reach("old-named")
		if fenced, err := c.Hold(ctx, back); err != nil || fenced {
			c.Reach("undo-fenced")
			return err
		}
	}
}

// holdOwn takes the names that the container had while it was aside for the token.
func (c Container) holdOwn(ctx context.Context) (taken bool, err error) {
	if taken, err = c.Hold(ctx, NameFor(c.Token)); err == nil && taken && c.Left != "" {
		taken, err = c.Hold(ctx, c.Left)
	}
	return taken, err
}

// LeftBy is the name under which a later step has left the container aside; empty: none has, or it
// is gone.
func (c Container) LeftBy(ctx context.Context) (name string, err error) {
	now, err := c.Engine.ContainerInspect(ctx, c.ID)
	if engine.IsNotFound(err) {
		return "", nil
	}
	if name = engine.NameOf(now); err != nil || !leftNames.MatchString(name) || OwnerOf(name) != c.Token {
		return "", engine.Explain("looking at the old container", err)
	}
	return name, nil
}

// ErrLate says that a container is not where a forward would bring it from: the step was undone.
var ErrLate = errors.New("the container is not where it was set aside any more")

// BringForward gives the container the name of its place for a step of the token, from the name
// under which an earlier one has set it aside. It ends when no call of an earlier step can move it
// any more, see [FormerName]. On its way it has a name of the step: a forward that comes
// late moves there what only holds the former name, and puts that back.
func (c Container) BringForward(ctx context.Context, from, way string) error {
	for {
		now, err := c.Engine.ContainerInspect(ctx, c.ID)
		if err != nil {
			return engine.Explain("looking at the container that was kept", err)
		}
		switch engine.NameOf(now) {
		case from:
			if err := c.startForward(ctx, from, way); err != nil {
				return err
			}
			fallthrough
		case way:
			c.Reach("before-forward")
			if err := c.Engine.ContainerRename(ctx, way, c.Name); err != nil {
				return engine.Explain("giving the container that was kept the name "+c.Name, err)
			}
		case c.Name:
		default:
			return ErrLate
		}
		c.Reach("forward-named")
		if fenced, err := c.Hold(ctx, FormerName(from)); err != nil || fenced {
			c.Reach("former-held")
			return err
		}
	}
}

// startForward gives the container its name of the way.
func (c Container) startForward(ctx context.Context, from, way string) error {
	if err := c.RestoreRestarts(ctx, from); err != nil {
		return err
	}
	c.Reach("before-way")
	if err := c.Engine.ContainerRename(ctx, from, way); err != nil {
		return engine.Explain("bringing forward the container that was kept", err)
	}
	holder, err := engine.FindHolder(ctx, c.Engine, way)
	if err != nil || holder == c.ID {
		return err
	}
	return errors.Join(ErrLate, engine.Explain("holding the name "+from, c.Engine.ContainerRename(ctx, way, from)))
}

// RestoreRestarts has the engine start the container again by itself as before.
func (c Container) RestoreRestarts(ctx context.Context, name string) error {
	if c.Restarts.IsNone() {
		return nil
	}
	return c.setRestarts(ctx, name, c.Restarts)
}

// StopRestarts has the engine not start the container with a name by itself.
func (c Container) StopRestarts(ctx context.Context, name string) error {
	if c.Restarts.IsNone() {
		return nil
	}
	return c.setRestarts(ctx, name, container.RestartPolicy{Name: container.RestartPolicyDisabled})
}

// setRestarts is by name: what comes late finds another container there.
func (c Container) setRestarts(ctx context.Context, name string, policy container.RestartPolicy) error {
	_, err := c.Engine.ContainerUpdate(ctx, name, container.UpdateConfig{RestartPolicy: policy})
	return engine.Explain("setting when container "+name+" is started again", err)
}

// holdCommand is nothing that any image has.
const holdCommand = "/unwind-holds-this-name"

// Hold takes a name for good, so that the container cannot get it any more. It is not taken
// where the container has it.
func (c Container) Hold(ctx context.Context, name string) (taken bool, err error) {
	for _, image := range c.Images {
		_, err = c.Engine.ContainerCreate(ctx, &container.Config{Image: image, Entrypoint: []string{holdCommand}},
			&container.HostConfig{NetworkMode: "none"}, nil, nil, name)
		if !engine.IsNotFound(err) {
			break
		}
	}
	if err != nil && !engine.IsConflict(err) {
		return false, engine.Explain("taking the name "+name, err)
	}
	holder, err := c.Engine.ContainerInspect(ctx, name)
	return err == nil && holder.ID != c.ID, engine.Explain("looking at "+name, err)
}
