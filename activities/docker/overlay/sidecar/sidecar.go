package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/pkg/stdcopy"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
)

// Engine is the part of a Docker client that sidecars need.
type Engine interface {
	engine.Importer
	ContainerCreate(ctx context.Context, config *container.Config, host *container.HostConfig,
		net *network.NetworkingConfig, platform *ocispec.Platform, name string) (container.CreateResponse, error)
	ContainerAttach(ctx context.Context, container string, options container.AttachOptions) (types.HijackedResponse, error)
	ContainerStart(ctx context.Context, container string, options container.StartOptions) error
	ContainerList(ctx context.Context, options container.ListOptions) ([]container.Summary, error)
	ContainerRemove(ctx context.Context, container string, options container.RemoveOptions) error
	ImageList(ctx context.Context, options dockerimage.ListOptions) ([]dockerimage.Summary, error)
	ImageRemove(ctx context.Context, image string, options dockerimage.RemoveOptions) ([]dockerimage.DeleteResponse, error)
	ServerVersion(ctx context.Context) (types.Version, error)
}

// Remover is the part of a Docker client that Remove needs.
type Remover interface {
	ContainerList(ctx context.Context, options container.ListOptions) ([]container.Summary, error)
	ContainerRemove(ctx context.Context, container string, options container.RemoveOptions) error
	VolumeRemove(ctx context.Context, volume string, force bool) error
}

// Label is on each sidecar and its volume; its value is the home.
const Label = "unwind.overlay"

// Volume is the volume with the layers of a home.
func Volume(home string) string { return "unwind-layers-" + home }

// folder is where a sidecar mounts the volume.
const folder = "/layers"

// Starter starts sidecars on an engine. Those of one home share a volume, and so books and locks.
func Starter(e Engine, home string) helper.Starter {
	return func(ctx context.Context) (helper.Process, error) {
		p, err := ownProgram()
		if err != nil {
			return helper.Process{}, unfitFailure(err)
		}
		s := launch{e, home, p}
		id, err := s.createContainer(ctx)
		if err != nil {
			return helper.Process{}, err
		}
		started, err := s.startContainer(ctx, id)
		if err != nil {
			return started, errors.Join(err, removeContainer(context.WithoutCancel(ctx), e, id))
		}
		return started, nil
	}
}

func unfitFailure(err error) error { return &helper.Failure{Kind: helper.Unfit, Message: err.Error()} }

// launch is a sidecar being started.
type launch struct {
	engine  Engine
	home    string
	program *program
}

// createContainer makes the container, and imports the image if the engine lacks it.
func (s launch) createContainer(ctx context.Context) (string, error) {
	config, host := s.settings()
	for imported := false; ; imported = true {
		made, err := s.engine.ContainerCreate(ctx, config, host, nil, nil, "")
		switch {
		case err == nil:
			return made.ID, s.removeUnstarted(ctx, made.ID)
		case !cerrdefs.IsNotFound(err) || imported:
			return "", engineFailure("making it", err)
		}
		if err := s.importImage(ctx); err != nil {
			return "", err
		}
	}
}

// importImage imports the image if the engine's machine can run the program, and removes old
// images.
func (s launch) importImage(ctx context.Context) error {
	server, err := s.engine.ServerVersion(ctx)
	if err != nil {
		return err
	}
	if server.Os != runtime.GOOS || server.Arch != runtime.GOARCH {
		return unfitFailure(
			fmt.Errorf("the engine runs on %s/%s, where this worker's own program cannot make layers; run a worker built "+
				"for %[1]s/%[2]s", server.Os, server.Arch))
	}
	root, in := io.Pipe()
	defer root.Close()
	go func() { in.CloseWithError(s.program.writeTar(in)) }()
	id, err := engine.Import(ctx, s.engine, root, s.program.ref, "Unwind's overlay helper")
	if err != nil {
		return engineFailure("importing its image", err)
	}
	return s.removeOldImages(ctx, id)
}

// unusedAfter is the age at which an unused image of another program is removed. A worker that
// still needs it imports it again.
const unusedAfter = 24 * time.Hour

func (s launch) removeOldImages(ctx context.Context, own string) error {
	all, err := s.engine.ImageList(ctx,
		dockerimage.ListOptions{Filters: filters.NewArgs(filters.Arg("reference", Repository))})
	if err != nil {
		return err
	}
	now := int64(0) // by the engine's clock
	for _, i := range all {
		if i.ID == own {
			now = i.Created
		}
	}
	for _, i := range all {
		if now-i.Created <= int64(unusedAfter/time.Second) {
			continue
		}
		for _, ref := range i.RepoTags {
			if _, failed := s.engine.ImageRemove(ctx, ref, dockerimage.RemoveOptions{}); !cerrdefs.IsNotFound(failed) &&
				!cerrdefs.IsConflict(failed) {
				err = errors.Join(err, failed)
			}
		}
	}
	return err
}

// capabilities are all that a sidecar has; docker's default set is dropped. An overlay works with
// the capabilities of the process that mounted it, so commands in the container need them too to
// write through it.
var capabilities = []string{
	"SYS_ADMIN",    // mounts, mount namespaces, and the trusted.* attributes that overlays are made of
	"SYS_PTRACE",   // roots, mounts and open files of other processes, in /proc
	"SYS_CHROOT",   // entering a mount namespace needs it too
	"KILL",         // ending processes that a step left, whoever they run as
	"DAC_OVERRIDE", // files and folders of others
	// Without it an overlay does not remember what a file is a copy of, and a new name of the file
	// gets another inode number.
	"DAC_READ_SEARCH",
	"FOWNER",  // their modes, times and attributes
	"FSETID",  // set-group-ID bits of copies
	"CHOWN",   // owners of copies
	"MKNOD",   // devices, and whiteouts
	"SETFCAP", // file capabilities of copies
}

func (s launch) settings() (*container.Config, *container.HostConfig) {
	labels := map[string]string{Label: s.home}
	return &container.Config{
			Image: s.program.ref, Entrypoint: []string{programAt, folder}, Labels: labels,
			Env:       []string{"LD_LIBRARY_PATH=" + librariesAt},
			OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		}, &container.HostConfig{
			AutoRemove: true, ReadonlyRootfs: true, NetworkMode: "none",
			PidMode:    "host",                            // the processes whose root it changes, none of which can end it
			UsernsMode: "host",                            // an engine with user namespaces would make it nobody there
			LogConfig:  container.LogConfig{Type: "none"}, // its output holds content of files
			CapDrop:    []string{"ALL"}, CapAdd: capabilities,
			// Docker's default profiles forbid mount and pivot_root whatever the capabilities.
			SecurityOpt: []string{"apparmor=unconfined", "seccomp=unconfined", "label=disable"},
			Mounts: []mount.Mount{{ // on the host's own filesystem: an overlay cannot have its upper layer on another
				Type: mount.TypeVolume, Source: Volume(s.home), Target: folder, VolumeOptions: &mount.VolumeOptions{NoCopy: true,
					Labels: labels},
			}},
		}
}

// leftAfter is the age at which a sidecar that was created but never started counts as left by a
// dead worker.
const leftAfter = time.Minute

// removeUnstarted removes sidecars that never started: the engine removes only those that ran.
func (s launch) removeUnstarted(ctx context.Context, made string) error {
	found, err := s.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("label", Label+"="+s.home), filters.Arg("status", container.StateCreated),
	)})
	now := int64(0) // by the engine's clock
	for _, c := range found {
		if c.ID == made {
			now = c.Created
		}
	}
	for _, c := range found {
		if now-c.Created > int64(leftAfter/time.Second) {
			err = errors.Join(err, removeContainer(ctx, s.engine, c.ID))
		}
	}
	return err
}

func removeContainer(ctx context.Context, e interface {
	ContainerRemove(ctx context.Context, container string, options container.RemoveOptions) error
}, id string) error {
	err := e.ContainerRemove(ctx, id, container.RemoveOptions{Force: true})
	if cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) { // it has removed itself, or is about to
		return nil
	}
	return err
}

// startContainer starts the container, attached from its first byte of output.
func (s launch) startContainer(ctx context.Context, id string) (helper.Process, error) {
	conn, err := s.engine.ContainerAttach(ctx, id,
		container.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return helper.Process{}, engineFailure("attaching to it", err)
	}
	if err := s.engine.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		conn.Close()
		return helper.Process{}, engineFailure("starting it", err)
	}
	out, in := io.Pipe()
	go func() {
		_, err := stdcopy.StdCopy(in, os.Stderr, conn.Reader)
		in.CloseWithError(err)
	}()
	return helper.Process{In: &input{conn}, Out: out, Wait: func() { out.Close(); conn.Close() }}, nil
}

// input is the standard input of an attached container.
type input struct{ conn types.HijackedResponse }

func (i *input) Write(p []byte) (int, error) { return i.conn.Conn.Write(p) }

// Close ends the input; the output continues.
func (i *input) Close() error { return i.conn.CloseWrite() }

// engineFailure tells an engine that refuses a sidecar from one that cannot start one now.
func engineFailure(doing string, err error) error {
	err = fmt.Errorf("the sidecar on the engine: %s: %w", doing, err)
	for _, final := range []func(error) bool{cerrdefs.IsPermissionDenied, cerrdefs.IsUnauthorized,
		cerrdefs.IsInvalidArgument, cerrdefs.IsNotImplemented} {
		if final(err) {
			return unfitFailure(err)
		}
	}
	return err
}

// removeLimit is how long Remove tries: an engine cannot end a sidecar while the kernel is still
// syncing its last layers.
const removeLimit = time.Minute

// Remove ends the sidecars of a home and removes its volume with all layers: for a home whose
// containers no longer exist.
func Remove(ctx context.Context, e Remover, home string) error {
	const pause = 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, removeLimit)
	defer cancel()
	for {
		left, err := e.ContainerList(ctx,
			container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", Label+"="+home))})
		if err == nil && len(left) == 0 {
			break
		}
		for _, c := range left { // one that is removing itself is listed until then
			err = errors.Join(err, removeContainer(ctx, e, c.ID))
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pause):
		}
	}
	if err := e.VolumeRemove(ctx, Volume(home), true); !cerrdefs.IsNotFound(err) {
		return err
	}
	return nil
}
