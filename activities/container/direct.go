package container

import (
	"context"
	"os"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/stack"
)

// direct reads a file of a running container without its engine, which starts a program for each: through the mounts of
// the container's first process. It is not ok where this worker is not root on the engine's host, or the container does
// not run: then the engine can tell.
func direct(ctx context.Context, e engine, id, at string) (f stack.File, ok bool) {
	if os.Geteuid() != 0 {
		return f, false
	}
	was, err := e.ContainerInspect(ctx, id)
	if err != nil || !was.State.Running {
		return f, false
	}
	t, err := stack.Open(was.State.Pid)
	if err != nil {
		return f, false
	}
	defer t.Close()
	if !stack.InCgroup(was.State.Pid, was.ID) {
		return f, false
	}
	// The number may have gone to another process before it was opened. From here on that is no matter.
	if now, err := e.ContainerInspect(ctx, id); err != nil || !sameRun(was, now) {
		return f, false
	}
	f, err = t.Read(at, maxProgram)
	return f, err == nil
}

// sameRun says that a container has the first process that it had.
func sameRun(was, now container.InspectResponse) bool {
	return was.ID == now.ID && now.State.Running && was.State.Pid == now.State.Pid && was.State.StartedAt == now.State.StartedAt
}
