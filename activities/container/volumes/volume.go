package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/mount"
	dockervolume "github.com/docker/docker/api/types/volume"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// Volume is one that a step keeps a copy of. Its paths are in the manifests of the step beside
// those of the container, after its name and a colon: so approvals cover them, and what others
// change in them is drift.
type Volume struct {
	Name string `json:"name"`
	// At is where the container has it, Root where the engine's host does.
	At   string `json:"at"`
	Root string `json:"root"`
	// Files and Bytes are what a copy of it takes.
	Files int   `json:"files,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`
	// Kept is the digest of what a copy holds.
	Kept activities.Digest `json:"kept,omitempty"`
}

func (v Volume) path(at string) string { return v.Name + ":" + at }

// Engine is what is asked about volumes.
type Engine interface {
	VolumeInspect(ctx context.Context, volume string) (dockervolume.Volume, error)
	ContainerList(ctx context.Context, options container.ListOptions) ([]container.Summary, error)
}

// wayOut is the way out of all that keeps volumes from being copied.
const wayOut = "leave volumes: snapshot out to have the step leave them as they are"

// Find finds the volumes that a container may write to, or says why no copies can be kept of them.
func Find(ctx context.Context, e Engine, target container.InspectResponse) (all []Volume, err error) {
	for _, m := range target.Mounts {
		if m.Type != mount.TypeVolume || !m.RW || slices.ContainsFunc(all, func(v Volume) bool { return v.Name == m.Name }) {
			continue
		}
		if os.Geteuid() != 0 {
			return nil, activities.Errorf(activities.Refused,
				"volumes: snapshot of volume %s needs a worker that is root on the engine's host; run one there, or %s", m.Name,
				wayOut)
		}
		v, err := e.VolumeInspect(ctx, m.Name)
		if err != nil {
			return nil, engine.Explain("looking at volume "+m.Name, err)
		}
		if v.Driver != "local" || len(v.Options) > 0 {
			return nil, activities.Errorf(activities.Refused,
				"volumes: snapshot knows volumes in folders of the engine alone, and %s is of driver %s with options %v; %s",
				m.Name, v.Driver, v.Options, wayOut)
		}
		if err := checkFolder(target.State.Pid, m.Destination, v.Mountpoint); err != nil {
			return nil, activities.Errorf(activities.Refused,
				"volumes: volume %s is not at %s on this worker's host (%v); run the worker on the engine's host, or %s", m.Name,
				v.Mountpoint, err, wayOut)
		}
		all = append(all, Volume{Name: m.Name, At: m.Destination, Root: v.Mountpoint})
	}
	who, err := findWriter(ctx, e, all, target.ID)
	if err == nil && who != "" {
		err = activities.Errorf(activities.Refused,
			"volumes: %s, so that a copy could not tell its changes from the step's; stop it, or %s", who, wayOut)
	}
	return all, err
}

// checkFolder makes sure that a folder of this host is what a process of the container has at a
// path, and is no mount of its own here: then it can be gone when nobody uses it.
func checkFolder(pid int, at, folder string) error {
	root, err := unix.Open(filepath.Join("/proc", strconv.Itoa(pid), "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC,
		0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	inside, err := unix.Openat2(root, at,
		&unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return err
	}
	defer unix.Close(inside)
	var there, here unix.Stat_t
	if err := errors.Join(unix.Fstat(inside, &there), unix.Stat(folder, &here)); err != nil {
		return err
	}
	if there.Dev != here.Dev || there.Ino != here.Ino {
		return errors.New("the container has another folder")
	}
	var mounted, around unix.Statx_t
	if err := errors.Join(unix.Statx(unix.AT_FDCWD, folder, 0, unix.STATX_MNT_ID, &mounted),
		unix.Statx(unix.AT_FDCWD, filepath.Dir(folder), 0, unix.STATX_MNT_ID, &around)); err != nil {
		return err
	}
	if mounted.Mnt_id != around.Mnt_id {
		return errors.New("something is mounted there")
	}
	return nil
}

// findWriter says which other container runs that may write to one of the volumes; empty: none
// does.
func findWriter(ctx context.Context, e Engine, all []Volume, but string) (string, error) {
	for _, v := range all {
		users, err := e.ContainerList(ctx, container.ListOptions{Filters: filters.NewArgs(filters.Arg("volume", v.Name))})
		if err != nil {
			return "", engine.Explain("looking for other containers with volume "+v.Name, err)
		}
		for _, c := range users {
			writes := slices.ContainsFunc(c.Mounts, func(m container.MountPoint) bool { return m.Name == v.Name && m.RW })
			if c.ID != but && writes {
				return fmt.Sprintf("container %s runs and may write to volume %s",
					strings.TrimPrefix(strings.Join(c.Names, " "), "/"), v.Name), nil
			}
		}
	}
	return "", nil
}

// Cost says what a copy takes.
func (v Volume) Cost() string {
	return fmt.Sprintf("a copy of volume %s (at %s) is kept until the step's record is dropped: %s, %s", v.Name, v.At,
		activities.CountOf(v.Files, "path"), activities.CountOf(v.Bytes, "byte"))
}

// Without is a container without the volumes that a copy is kept of.
func Without(c container.InspectResponse, kept []Volume) container.InspectResponse {
	c.Mounts = slices.DeleteFunc(slices.Clone(c.Mounts), func(m container.MountPoint) bool {
		return slices.ContainsFunc(kept, func(v Volume) bool { return v.Name == m.Name })
	})
	return c
}

// DescribeUndo says of an undo which volumes it brings back.
func DescribeUndo(kept []Volume) string {
	if len(kept) == 0 {
		return ""
	}
	var names []string
	for _, v := range kept {
		names = append(names, v.Name)
	}
	return " What differs in volumes " + strings.Join(names, ", ") + " is put back from copies."
}
