package unit

import (
	"context"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// box is a container that is a unit.
type box struct {
	engine engine.Client
	name   string
	absent bool
	pauses bool
}

func (u subject) openContainer() (box, error) {
	e, err := engine.Connect(u.Engine)
	return box{e, u.Container, u.absent, u.pauses}, err
}

// runs asks the engine. A container that it keeps restarting runs, and so does one that is paused,
// but for a step that pauses or resumes it; whether one runs that is being removed, say, is not known.
func (b box) runs(ctx context.Context) (bool, error) {
	c, err := b.engine.ContainerInspect(ctx, b.name)
	if engine.IsNotFound(err) && b.absent {
		return false, nil
	}
	if engine.IsNotFound(err) {
		return false, activities.RefuseCurrent("container:"+b.name,
			"unit: whether container %s runs is not known: the engine has none; docker ps --all lists those that it has", b.name)
	}
	if err != nil {
		return false, engine.Explain("looking at container "+b.name, err)
	}
	switch c.State.Status {
	case container.StateRunning:
		return true, nil
	case container.StatePaused:
		return !b.pauses, nil
	}
	if c.State.Status == container.StateRestarting && !b.pauses {
		return true, nil
	}
	if !engine.IsAtRest(c) {
		err = activities.Errorf(activities.ActionFailed, "whether container %s runs is not known: it is %s", b.name,
			c.State.Status)
	}
	return false, err
}

// switchTo starts or stops the container. Before a start it is stopped, though it looks as if it
// ran: the engine may still be at work on a stop that somebody has asked for and died.
func (b box) switchTo(ctx context.Context, run bool) error {
	err := b.engine.ContainerStop(ctx, b.name, container.StopOptions{})
	if engine.IsNotFound(err) && b.absent {
		return nil
	}
	if err != nil || !run {
		return engine.Explain("stopping container "+b.name, err)
	}
	return engine.Explain("starting container "+b.name, b.engine.ContainerStart(ctx, b.name, container.StartOptions{}))
}

// setPaused pauses or resumes the container. Before it is resumed it is paused, though it looks as if
// it ran: the engine may still be at work on a pause that somebody has asked for and died.
func (b box) setPaused(ctx context.Context, paused bool) error {
	err := b.engine.ContainerPause(ctx, b.name)
	if paused {
		c, lookErr := b.engine.ContainerInspect(ctx, b.name)
		if lookErr == nil && (c.State.Paused || engine.IsAtRest(c)) {
			return nil // it does not run as it is
		}
		return engine.Explain("pausing container "+b.name, err)
	}
	return engine.Explain("resuming container "+b.name, b.engine.ContainerUnpause(ctx, b.name))
}

// rests asks whether the container has been stopped.
func (b box) rests(ctx context.Context) (bool, error) {
	c, err := b.engine.ContainerInspect(ctx, b.name)
	return err == nil && engine.IsAtRest(c), engine.Explain("looking at container "+b.name, err)
}

// isThere asks whether there is a container with the name.
func (u subject) isThere(ctx context.Context) (bool, error) {
	b, err := u.openContainer()
	if err != nil {
		return false, err
	}
	id, err := engine.FindHolder(ctx, b.engine, b.name)
	return id != "", err
}
