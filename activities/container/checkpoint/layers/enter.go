package layers

import (
	"context"
	"fmt"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities/container/command"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
)

// Enter makes a command one that starts in the door of the step.
func (b *Backend) Enter(ctx context.Context, token string, in container.InspectResponse,
	c command.Command) (command.Command, error) {
	if c.Workdir == "" {
		c.Workdir = in.Config.WorkingDir
	}
	if c.Workdir == "" {
		c.Workdir = "/"
	}
	a, err := b.ask(ctx, helper.Request{Op: helper.Enter, Container: in.ID, Name: token, Workdir: c.Workdir})
	if err != nil {
		return c, fmt.Errorf("entering the container: %w", err)
	}
	c.Workdir = a.Path
	return c, nil
}
