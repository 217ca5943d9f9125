package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
)

// asksEngine is an error where this worker cannot read an engine's files.
func (w *world) asksEngine() error {
	switch {
	case w.engine == nil:
		return activities.Errorf(activities.Refused,
			"this worker knows folders only: folder.engine in its config names the Docker engine whose volumes and containers "+
				"steps may keep and put back")
	case os.Geteuid() != 0:
		return activities.Errorf(activities.Refused,
			"volumes and the files of containers are root's: the worker must be root on the engine's host")
	}
	return nil
}

// locateVolume finds the folder of a volume.
func (w *world) locateVolume(ctx context.Context, name string) (at location, err error) {
	if err := w.asksEngine(); err != nil {
		return at, err
	}
	const tries = 3 // what is written into it meanwhile changes its times
	for range tries {
		v, err := w.engine.VolumeInspect(ctx, name)
		if engine.IsNotFound(err) {
			return at, activities.RefuseCurrent(volumeKey+name,
				"volume: the engine has no volume %q; docker volume ls lists those that it has", name)
		}
		if err != nil {
			return at, engine.Explain("looking at volume "+name, err)
		}
		if v.Driver != "local" || len(v.Options) > 0 {
			return at, activities.Errorf(activities.Refused,
				"volume: %s is of driver %s with options %v; only volumes in folders of the engine can be kept", name, v.Driver,
				v.Options)
		}
		if isMadeAt(v.Mountpoint, v.CreatedAt) {
			at = location{path: v.Mountpoint, name: "volume " + name, key: volumeKey + name}
			at.settled = func(ctx context.Context) error { return w.checkWriters(ctx, name) }
			at.parent, err = os.Open(filepath.Dir(v.Mountpoint))
			return at, err
		}
	}
	return at, activities.Errorf(activities.Refused,
		"volume: %s is not in a folder of this worker's host; run the worker on the engine's host", name)
}

// isMadeAt says that a folder of this host is that of a volume of which an engine gives this time:
// it reads it from the folder.
func isMadeAt(folder, time string) bool {
	for _, dir := range []string{folder, filepath.Dir(folder)} {
		var st unix.Stat_t
		if unix.Lstat(dir, &st) != nil {
			return false
		}
		if isTime(st.Ctim, time) || isTime(st.Mtim, time) {
			return true
		}
	}
	return false
}

func isTime(ts unix.Timespec, said string) bool {
	at, err := time.Parse(time.RFC3339, said)
	return err == nil && at.Unix() == ts.Sec
}

// checkWriters is an error where a container runs that may write to a volume.
func (w *world) checkWriters(ctx context.Context, name string) error {
	users, err := w.engine.ContainerList(ctx, container.ListOptions{Filters: filters.NewArgs(filters.Arg("volume", name))})
	if err != nil {
		return engine.Explain("looking for containers with volume "+name, err)
	}
	for _, c := range users {
		if slices.ContainsFunc(c.Mounts, func(m container.MountPoint) bool { return m.Name == name && m.RW }) {
			return activities.RefuseCurrent(volumeKey+name, "volume: container %s runs and may write to %s; stop it first",
				strings.TrimPrefix(strings.Join(c.Names, " "), "/"), name)
		}
	}
	return nil
}

// The storage drivers of which it is known where they keep what has changed in a container.
const (
	overlay2    = "overlay2"
	fuseOverlay = "fuse-overlayfs"
)

// locateContainer finds the folder in which an engine keeps what has changed in the files of a
// container. One that is not there has none.
func (w *world) locateContainer(ctx context.Context, name string) (at location, err error) {
	if err := w.asksEngine(); err != nil {
		return at, err
	}
	c, said, err := w.engine.ContainerInspectWithRaw(ctx, name, false)
	switch {
	case engine.IsNotFound(err):
		return location{name: "container " + name, key: containerKey + name, absent: true}, nil
	case err != nil:
		return at, engine.Explain("looking for container "+name, err)
	case c.HostConfig.AutoRemove:
		return at, activities.Errorf(activities.Refused,
			"container: the engine removes %s as soon as it stops, with all that is to be kept; make it without AutoRemove "+
				"(docker run without --rm)", name)
	}
	covered, err := sidecar.Covers(ctx, w.engine, c.ID)
	if err != nil {
		return at, engine.Explain("looking for layers over container "+name, err)
	}
	if covered {
		return at, activities.RefuseCurrent(containerKey+name,
			"container: steps of a task that has not ended have changed %s, and what they did is in layers; end the task first",
			name)
	}
	at, err = w.locateFiles(ctx, c)
	at.name, at.key, at.said = "container "+name, containerKey+name, said
	return at, err
}

// locateFiles finds the folder in which an engine keeps what has changed in the files of a container
// that is there.
func (w *world) locateFiles(ctx context.Context, c container.InspectResponse) (at location, err error) {
	name := engine.NameOf(c)
	root, err := w.engine.DataRoot(ctx)
	if err != nil {
		return at, engine.Explain("asking for the engine's folder", err)
	}
	if _, err := os.Lstat(filepath.Join(root, "containers", c.ID)); err != nil {
		return at, activities.Errorf(activities.Refused,
			"container: %s is not in %s of this worker's host (%v); run the worker on the engine's host", name, root, err)
	}
	upper := c.GraphDriver.Data["UpperDir"]
	if driver := c.GraphDriver.Name; upper == "" || driver != overlay2 && driver != fuseOverlay {
		return at, activities.Errorf(activities.Refused,
			"container: the engine keeps the files of %s by %q, of which it is not known where; use the storage driver %s",
			name, driver, overlay2)
	}
	// fuse-overlayfs may hold back what has been written until it is unmounted
	at = location{path: upper, name: "container " + name, image: filepath.SplitList(c.GraphDriver.Data["LowerDir"]),
		restless: c.GraphDriver.Name != overlay2}
	at.settled = func(ctx context.Context) error { return w.checkStopped(ctx, c) }
	at.parent, err = os.Open(filepath.Dir(upper))
	if errors.Is(err, fs.ErrNotExist) {
		err = activities.Errorf(activities.Refused, "container: %s of %s is not on this worker's host", upper, name)
	}
	return at, err
}

// refuseAbsent refuses a container that is not there.
func refuseAbsent(name string) error {
	return activities.RefuseCurrent(containerKey+name,
		"container: the engine has no container %q; docker ps --all lists those that it has", name)
}

// checkStopped is an error where a container runs, or has run since it was inspected: then its
// files are in use.
func (w *world) checkStopped(ctx context.Context, was container.InspectResponse) error {
	name := engine.NameOf(was)
	now, err := w.engine.ContainerInspect(ctx, was.ID)
	switch {
	case engine.IsNotFound(err):
		return refuseAbsent(name)
	case err != nil:
		return engine.Explain("looking for container "+name, err)
	case !engine.IsAtRest(now):
		return activities.RefuseCurrent(containerKey+name,
			"container: %s is %s, and its files are in use; stop it first (docker stop %[1]s)", name, now.State.Status)
	case !was.State.Running && now.State.StartedAt != was.State.StartedAt:
		return fmt.Errorf("container %s was started meanwhile, and its files were in use", name)
	}
	return nil
}
