package folder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/blueprint"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// checkRemake refuses a container that could not be made again as it was.
func (w *world) checkRemake(ctx context.Context, m *remake) error {
	was, err := readContainer(m.Kept)
	if err != nil || was == nil {
		return err
	}
	name := engine.NameOf(*was)
	refuse := func(format string, args ...any) error {
		return activities.Errorf(activities.Refused, "container: %s cannot be made again as it was: %s", name,
			fmt.Sprintf(format, args...))
	}
	other, err := w.engine.ContainerInspect(ctx, was.ID)
	switch {
	case err == nil && !aside.Is(other):
		return activities.RefuseCurrent(containerKey+name,
			"container: the one that was kept as %s is called %s now; give it its name back (docker rename %[2]s %[1]s, once "+
				"what is called %[1]s now has another)", name, engine.NameOf(other))
	case err != nil && !engine.IsNotFound(err):
		return engine.Explain("looking for the container that was kept", err)
	}
	unknown, err := blueprint.Unknown(m.Kept)
	switch {
	case err != nil:
		return err
	case len(unknown) > 0:
		return refuse("this version of Unwind does not know its %s", strings.Join(unknown, ", "))
	case len(was.HostConfig.Links) > 0:
		return refuse("HostConfig.Links name containers in a way that no other can have; use a network")
	}
	if _, err := w.engine.ImageInspect(ctx, was.Image); engine.IsNotFound(err) {
		return refuse("the engine has not got its image %s any more (%s)", was.Image, was.Config.Image)
	} else if err != nil {
		return engine.Explain("looking for its image", err)
	}
	return w.checkSurroundings(ctx, was, refuse)
}

// checkSurroundings refuses a container of which something is gone that was there beside it.
func (w *world) checkSurroundings(ctx context.Context, was *container.InspectResponse,
	refuse func(format string, args ...any) error) error {
	for _, m := range was.Mounts {
		var err error
		switch m.Type {
		case mount.TypeVolume:
			_, err = w.engine.VolumeInspect(ctx, m.Name)
		case mount.TypeBind:
			_, err = os.Lstat(m.Source)
		case mount.TypeTmpfs:
		default:
			return refuse("its mount at %s is of type %s, of which it is not known what it is made of", m.Destination, m.Type)
		}
		if engine.IsNotFound(err) || errors.Is(err, fs.ErrNotExist) {
			return refuse("the %s %s is gone that it had at %s", m.Type, cmp.Or(m.Name, m.Source), m.Destination)
		}
		if err != nil {
			return engine.Explain("looking for what it had mounted at "+m.Destination, err)
		}
	}
	if was.NetworkSettings != nil {
		for in := range was.NetworkSettings.Networks {
			if _, err := w.engine.NetworkInspect(ctx, in, network.InspectOptions{}); engine.IsNotFound(err) {
				return refuse("network %s is gone that it was in; docker network create makes one", in)
			} else if err != nil {
				return engine.Explain("looking for network "+in, err)
			}
		}
	}
	for field, of := range sharesWith(was.HostConfig) {
		if _, err := w.engine.ContainerInspect(ctx, of); engine.IsNotFound(err) {
			return refuse("HostConfig.%s names container %s, which is gone", field, of)
		} else if err != nil {
			return engine.Explain("looking for container "+of, err)
		}
	}
	return nil
}

// sharesWith are the containers whose namespaces or volumes a container has, by the fields that name
// them.
func sharesWith(h *container.HostConfig) map[string]string {
	of := map[string]string{}
	if h.NetworkMode.IsContainer() {
		of["NetworkMode"] = h.NetworkMode.ConnectedContainer()
	}
	if h.IpcMode.IsContainer() {
		of["IpcMode"] = h.IpcMode.Container()
	}
	if h.PidMode.IsContainer() {
		of["PidMode"] = h.PidMode.Container()
	}
	for i, from := range h.VolumesFrom {
		name, _, _ := strings.Cut(from, ":")
		of[fmt.Sprintf("VolumesFrom[%d]", i)] = name
	}
	return of
}
