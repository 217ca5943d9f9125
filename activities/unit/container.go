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
}

func (u Unit) openContainer() (box, error) {
	e, err := engine.Connect(u.Engine)
	return box{e, u.Container}, err
}

// runs asks the engine. A container that it keeps restarting runs, and so does one that is paused;
// whether one runs that is being removed, say, is not known.
func (b box) runs(ctx context.Context) (bool, error) {
	c, err := b.engine.ContainerInspect(ctx, b.name)
	if engine.IsNotFound(err) {
		return false, activities.RefuseCurrent("container:"+b.name,
			"unit: whether container %s runs is not known: the engine has none; docker ps --all lists those that it has", b.name)
	}
	if err != nil {
		return false, engine.Explain("looking at container "+b.name, err)
	}
	switch c.State.Status {
	case container.StateRunning, container.StateRestarting, container.StatePaused:
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
	if err := b.engine.ContainerStop(ctx, b.name, container.StopOptions{}); err != nil || !run {
		return engine.Explain("stopping container "+b.name, err)
	}
	return engine.Explain("starting container "+b.name, b.engine.ContainerStart(ctx, b.name, container.StartOptions{}))
}
