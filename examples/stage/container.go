package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"

	world "github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/docker/demoimage"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
)

// pingLimit is how long an engine may take to answer at all.
const pingLimit = 5 * time.Second

// furnish makes the files in the container that are older than the task.
const furnish = "mkdir -p /srv/app && echo 1.4.2 >/srv/app/VERSION && echo on >/srv/app/legacy.conf && chmod 604 " +
	"/srv/app/legacy.conf"

// setContainer makes an image from scratch, and a container of it with a few files.
func (s *Stage) setContainer(ctx context.Context, log io.Writer) error {
	engine, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return missingError{err.Error()}
	}
	s.closers = append(s.closers, func(context.Context) error { return engine.Close() })
	pinging, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	if _, err := engine.Ping(pinging); err != nil {
		return missingError{fmt.Sprintf("no Docker engine answers (%v); start one to see a container taken back", err)}
	}
	fmt.Fprintln(log, "making a small image and a container (the first time takes about half a minute)")
	name := "unwind-demo-" + s.name()
	base, err := demoimage.Build(ctx, engine, name+":latest")
	if err != nil {
		return missingError{err.Error()}
	}
	s.closers = append(s.closers, func(ctx context.Context) error { return removeImages(ctx, engine, base) })
	// after the worker and the container that the layers are mounted over
	s.closers = append(s.closers, func(ctx context.Context) error {
		home, err := world.Home(s.path(stateFolder))
		if err != nil {
			return err
		}
		return sidecar.Remove(ctx, engine, home)
	})
	made, err := engine.ContainerCreate(ctx, &container.Config{Image: base},
		&container.HostConfig{NetworkMode: network.NetworkNone}, nil, nil, name)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func(ctx context.Context) error { return removeContainers(ctx, engine, made.ID, name) })
	if err := engine.ContainerStart(ctx, made.ID, container.StartOptions{}); err != nil {
		return err
	}
	s.Container = name
	return inside(ctx, engine, made.ID, furnish)
}

// inside runs a command in a container to its end.
func inside(ctx context.Context, engine *client.Client, id, command string) error {
	made, err := engine.ContainerExecCreate(ctx, id,
		container.ExecOptions{Cmd: []string{"sh", "-c", command}, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	stream, err := engine.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer stream.Close()
	var said strings.Builder
	if _, err := stream.Reader.WriteTo(&said); err != nil {
		return err
	}
	for {
		seen, err := engine.ContainerExecInspect(ctx, made.ID)
		switch {
		case err != nil:
			return err
		case seen.Running:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		case seen.ExitCode != 0:
			return fmt.Errorf("%s: exit status %d: %s", command, seen.ExitCode, said.String())
		default:
			return nil
		}
	}
}

// removeContainers removes the container that was made, and the one that has its name now: a
// rollback makes another one.
func removeContainers(ctx context.Context, engine *client.Client, which ...string) error {
	var problems []error
	for _, id := range which {
		err := engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		if err != nil && !cerrdefs.IsNotFound(err) {
			problems = append(problems, fmt.Errorf("remove container %s: %w", id, err))
		}
	}
	return errors.Join(problems...)
}

// removeImages removes an image and everything made from it, such as the checkpoints of steps.
func removeImages(ctx context.Context, engine *client.Client, base string) error {
	all, err := engine.ImageList(ctx, image.ListOptions{All: true})
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	children := map[string][]string{}
	for _, i := range all {
		children[i.ParentID] = append(children[i.ParentID], i.ID)
	}
	var remove func(id string) error
	remove = func(id string) error {
		var problems []error
		for _, child := range children[id] {
			problems = append(problems, remove(child))
		}
		if _, err := engine.ImageRemove(ctx, id, image.RemoveOptions{Force: true}); err != nil && !cerrdefs.IsNotFound(err) {
			problems = append(problems, fmt.Errorf("remove image %s: %w", id, err))
		}
		return errors.Join(problems...)
	}
	return remove(base)
}
