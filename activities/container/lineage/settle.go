package lineage

import (
	"context"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// startError is about a successor that is in its place, and that the engine does not start.
type startError struct{ error }

func (e *startError) Unwrap() error { return e.error }

// settle lets the successor take the place of the container that it was made from. Every step is by
// id, and nothing once it has been done. It starts the successor, and where it cannot, clears away
// the old one all the same.
func (l *Lineage) settle(ctx context.Context, s Successor, started func(Successor)) error {
	if s.Retire != "" {
		if err := l.stepAside(ctx, s); err != nil {
			return err
		}
	}
	point.Reach("container.exec:old-stopped")
	fresh, err := l.engine.ContainerInspect(ctx, s.ID)
	if engine.IsNotFound(err) { // someone has removed it since
		return nil
	}
	if err != nil {
		return engine.Explain("looking at the new container", err)
	}
	if fresh.Name != "/"+s.Name {
		if err := l.engine.ContainerRename(ctx, s.ID, s.Name); err != nil && !l.isRenamed(ctx, s) {
			return engine.Explain("giving the new container the name "+s.Name, err)
		}
	}
	point.Reach("container.exec:new-named")
	var unstarted error
	if s.Start && fresh.State.Status == container.StateCreated {
		if err := l.engine.ContainerStart(ctx, s.ID, container.StartOptions{}); err != nil && !engine.IsNotFound(err) {
			unstarted = &startError{engine.Explain("starting the new container "+s.Name, err)}
		} else {
			started(s)
		}
	}
	point.Reach("container.exec:new-started")
	if s.Retire != "" {
		if err := l.Remove(ctx, s.Retire); err != nil {
			return err
		}
		if err := l.DropImage(ctx, s.Stood); err != nil {
			return err
		}
	}
	return unstarted
}

// isRenamed says that another process has renamed it in the meantime.
func (l *Lineage) isRenamed(ctx context.Context, s Successor) bool {
	now, err := l.engine.ContainerInspect(ctx, s.ID)
	return err == nil && now.Name == "/"+s.Name
}

// stepAside frees the name, and then the ports and addresses, of the container that has to go, with
// every process in it.
func (l *Lineage) stepAside(ctx context.Context, s Successor) error {
	old, err := l.engine.ContainerInspect(ctx, s.Retire)
	if engine.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return engine.Explain("looking at the old container", err)
	}
	if old.Name == "/"+s.Name {
		err := l.engine.ContainerRename(ctx, s.Retire, "unwind-old-"+s.Retire[:12])
		if err != nil && !engine.IsNotFound(err) && !engine.IsInvalid(err) {
			return engine.Explain("setting the old container aside", err)
		}
	}
	point.Reach("container.exec:old-renamed")
	return l.kill(ctx, s.Retire, old.State.Paused)
}

// kill ends every process in a container and waits until they are gone.
func (l *Lineage) kill(ctx context.Context, id string, paused bool) error {
	if paused { // an engine refuses to kill what it has paused
		if err := l.engine.ContainerUnpause(ctx, id); err != nil && !engine.IsNotFound(err) && !engine.IsConflict(err) {
			return engine.Explain("unpausing the old container", err)
		}
	}
	err := l.engine.ContainerKill(ctx, id, "KILL")
	if err != nil && !engine.IsNotFound(err) && !engine.IsConflict(err) { // conflict: it does not run
		return engine.Explain("ending the old container", err)
	}
	over, failed := l.engine.ContainerWait(ctx, id, container.WaitConditionNotRunning)
	select {
	case <-over:
		return nil
	case err := <-failed:
		if engine.IsNotFound(err) {
			return nil
		}
		return engine.Explain("waiting for the old container's end", err)
	}
}

// Remove removes a container, never its volumes, and the checkpoint image that it alone was made
// from.
func (l *Lineage) Remove(ctx context.Context, id string) error {
	return l.removeWith(ctx, id, container.RemoveOptions{Force: true})
}

// RemoveMade removes a container that a step has made, running or not, with the volumes that were
// made for it alone, and the checkpoint that it alone stood on: steps have run in it perhaps.
func (l *Lineage) RemoveMade(ctx context.Context, id string) error {
	return l.removeWith(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
}

func (l *Lineage) removeWith(ctx context.Context, id string, how container.RemoveOptions) error {
	gone, err := l.engine.ContainerInspect(ctx, id)
	if engine.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return engine.Explain("looking at container "+id[:12], err)
	}
	err = l.engine.ContainerRemove(ctx, id, how)
	if err != nil && !engine.IsNotFound(err) && !engine.IsConflict(err) { // conflict: its removal is in progress
		return engine.Explain("removing container "+id[:12], err)
	}
	return l.DropImage(ctx, gone.Image)
}
