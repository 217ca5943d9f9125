package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	dockervolume "github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/seed-62bf7108/unwind/activities"
)

// Client is everything that is asked of a Docker engine. The client module is
// frozen and has a successor: a change of modules would touch what is here. rememberingClient
// implements it.
type Client interface { //nolint:interfacebloat // it is one client, and each method of it is used
	// EngineID returns the engine's own id: another engine behind the same address has another one.
	EngineID(ctx context.Context) (string, error)
	// DataRoot returns the folder on the engine's host that holds its images and containers.
	DataRoot(ctx context.Context) (string, error)
	ServerVersion(ctx context.Context) (types.Version, error)

	ContainerInspect(ctx context.Context, container string) (container.InspectResponse, error)
	ContainerInspectWithRaw(ctx context.Context, container string, size bool) (container.InspectResponse, []byte, error)
	ContainerList(ctx context.Context, options container.ListOptions) ([]container.Summary, error)
	ContainerAttach(ctx context.Context, container string, options container.AttachOptions) (types.HijackedResponse, error)
	ContainerExport(ctx context.Context, container string) (io.ReadCloser, error)
	CopyFromContainer(ctx context.Context, container, path string) (io.ReadCloser, container.PathStat, error)

	// Events delivers the events from its return until ctx or the engine ends.
	Events(ctx context.Context, options events.ListOptions) (<-chan events.Message, <-chan error)

	ContainerExecCreate(ctx context.Context, container string,
		options container.ExecOptions) (container.ExecCreateResponse, error)
	ContainerExecAttach(ctx context.Context, exec string, options container.ExecAttachOptions) (types.HijackedResponse,
		error)
	ContainerExecInspect(ctx context.Context, exec string) (container.ExecInspect, error)

	ContainerCreate(ctx context.Context, config *container.Config, host *container.HostConfig,
		net *network.NetworkingConfig, platform *ocispec.Platform, name string) (container.CreateResponse, error)
	ContainerStart(ctx context.Context, container string, options container.StartOptions) error
	ContainerStop(ctx context.Context, container string, options container.StopOptions) error
	ContainerUpdate(ctx context.Context, container string, config container.UpdateConfig) (container.UpdateResponse, error)
	ContainerPause(ctx context.Context, container string) error
	ContainerUnpause(ctx context.Context, container string) error
	ContainerKill(ctx context.Context, container, signal string) error
	ContainerWait(ctx context.Context, container string, condition container.WaitCondition) (<-chan container.WaitResponse,
		<-chan error)
	ContainerRename(ctx context.Context, container, name string) error
	ContainerRemove(ctx context.Context, container string, options container.RemoveOptions) error
	NetworkInspect(ctx context.Context, network string, options network.InspectOptions) (network.Inspect, error)
	NetworkConnect(ctx context.Context, network, container string, config *network.EndpointSettings) error

	ContainerCommit(ctx context.Context, container string, options container.CommitOptions) (container.CommitResponse,
		error)
	ImageImport(ctx context.Context, source image.ImportSource, ref string, options image.ImportOptions) (io.ReadCloser,
		error)
	ImageInspect(ctx context.Context, image string, _ ...client.ImageInspectOption) (image.InspectResponse, error)
	ImageList(ctx context.Context, options image.ListOptions) ([]image.Summary, error)
	ImageTag(ctx context.Context, image, ref string) error
	ImageRemove(ctx context.Context, image string, options image.RemoveOptions) ([]image.DeleteResponse, error)

	VolumeInspect(ctx context.Context, volume string) (dockervolume.Volume, error)
	VolumeList(ctx context.Context, options dockervolume.ListOptions) (dockervolume.ListResponse, error)
}

// Connect makes a client for the engine at host, by default DOCKER_HOST or else the usual socket.
// It sends nothing yet.
func Connect(host string) (Client, error) {
	options := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host != "" {
		options = append(options, client.WithHost(host))
	}
	d := &rememberingClient{}
	c, err := client.NewClientWithOpts(append(options, d.countDials)...)
	if err != nil {
		return nil, fmt.Errorf("container engine: %w", err)
	}
	d.Client = c
	return d, nil
}

// Explain turns an engine's error into one that says what failed, where, and the way out. An engine
// that does not answer may be back soon, so that error is retried.
func Explain(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "permission denied while trying to connect"):
		return activities.Errorf(activities.ActionFailed,
			"%s: the worker's user may not use the container engine's socket (%v); add the user to the group that owns the "+
				"socket (docker, as a rule), or run the worker as root", doing, err)
	case client.IsErrConnectionFailed(err):
		return activities.Errorf(activities.ActionFailed,
			"%s: the container engine does not answer (%v); start it, or name another: container.engine in the worker's "+
				"config, or DOCKER_HOST in its environment", doing, err)
	case strings.Contains(err.Error(), syscall.ENOSPC.Error()):
		return activities.Errorf(activities.ActionFailed,
			"%s: the container engine's disk is full (%v); docker system df shows what takes the space", doing, err)
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}

// IsNotFound also knows how an engine tells that an image went while it was removing it: as an
// internal error.
func IsNotFound(err error) bool {
	return cerrdefs.IsNotFound(err) || err != nil && strings.Contains(err.Error(), "unrecognized image ID")
}

// IsBeingRemoved says that somebody else is removing the image that was asked for: its layer is
// gone already, and its name not yet. The engine calls that an internal error.
func IsBeingRemoved(err error) bool {
	return err != nil && strings.Contains(err.Error(), "layer does not exist")
}

func IsConflict(err error) bool { return cerrdefs.IsConflict(err) }

func IsInvalid(err error) bool { return cerrdefs.IsInvalidArgument(err) }

// WhyUnstartable returns the engine's reason if it did not start a container because of what is in
// it or missing from it: its program, its user, or a place for a mount. A retry would not help. It
// is empty for any other error.
func WhyUnstartable(err error) string {
	// it reports a missing user or group as an error of its own
	if err == nil || !IsInvalid(err) && !strings.Contains(err.Error(), "unable to find ") {
		return ""
	}
	for cause := err; cause != nil; cause = errors.Unwrap(err) {
		err = cause
	}
	return err.Error()
}

// IsAtRest says that nothing of a container runs, and nothing is being done to it: only of what is
// known to be so.
func IsAtRest(c container.InspectResponse) bool {
	return c.State.Status == container.StateExited || c.State.Status == container.StateCreated
}

// NameOf returns a container's name as people write it.
func NameOf(c container.InspectResponse) string { return strings.TrimPrefix(c.Name, "/") }

// FindHolder finds the id of the container that has a name, and is empty where none has.
func FindHolder(ctx context.Context, e Client, name string) (string, error) {
	c, err := e.ContainerInspect(ctx, name)
	if IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", Explain("looking for container "+name, err)
	}
	return c.ID, nil
}
