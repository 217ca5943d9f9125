package target

import (
	"context"
	"encoding/hex"
	"fmt"
	"path"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/lineage"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// Engine is that of the actions: a client which can list the files of containers.
type Engine interface {
	engine.Client
	manifest.Engine
}

// Find resolves the container of a step, or says why the step cannot run in it.
func Find(ctx context.Context, e engine.Client, l *lineage.Lineage, name string) (container.InspectResponse, error) {
	if isID(name) {
		standing, err := l.Standing(ctx, name)
		if err != nil {
			return container.InspectResponse{}, err
		}
		name = standing
	}
	return inspect(ctx, e, name)
}

func isID(name string) bool {
	_, err := hex.DecodeString(name)
	return err == nil && len(name) == 64
}

// KeyPrefix begins the keys of containers.
const KeyPrefix = "container:"

func inspect(ctx context.Context, e engine.Client, name string) (container.InspectResponse, error) {
	c, err := e.ContainerInspect(ctx, name)
	if engine.IsNotFound(err) {
		return c, activities.RefuseCurrent(KeyPrefix+name,
			"container: the engine has no container %q; docker ps --all lists those that it has", name)
	}
	if err != nil {
		return c, engine.Explain("looking for container "+name, err)
	}
	if !c.State.Running {
		return c, activities.RefuseCurrent(KeyPrefix+name, "container: %s is not running (%s); docker start %[1]s starts it",
			name, c.State.Status)
	}
	return c, CheckAwake(c, name)
}

// Preflight refuses a container in which no step can run now. It says nothing of one that is named
// by its id: finding out which container has taken its place can finish a change of places.
func Preflight(ctx context.Context, e engine.Client, name string) error {
	if isID(name) {
		return nil
	}
	_, err := inspect(ctx, e, name)
	return err
}

// CheckAwake refuses a container that an engine lets nobody make a copy of in peace.
func CheckAwake(c container.InspectResponse, name string) error {
	switch {
	case c.State.Paused:
		return activities.RefuseCurrent(KeyPrefix+name, "container: %s is paused; docker unpause %[1]s wakes it", name)
	case c.State.Restarting:
		return activities.RefuseCurrent(KeyPrefix+name, "container: %s keeps restarting; docker logs %[1]s may say why", name)
	}
	return nil
}

// NotRolledBack names what this container has that no rollback brings back.
func NotRolledBack(c container.InspectResponse, ignore []string) []string {
	var lost []string
	for _, m := range c.Mounts {
		switch {
		case !m.RW:
		case m.Type == mount.TypeVolume:
			lost = append(lost, fmt.Sprintf("volume %s at %s is not rolled back", m.Name, m.Destination))
		default:
			lost = append(lost, fmt.Sprintf("%s %s at %s is not rolled back", m.Type, m.Source, m.Destination))
		}
	}
	for at := range c.HostConfig.Tmpfs {
		lost = append(lost, fmt.Sprintf("tmpfs at %s is lost when the container is made anew", at))
	}
	return append(lost, NotCompared(ignore)...)
}

// NotCompared says what becomes of the paths that a step ignores.
func NotCompared(ignore []string) []string {
	if len(ignore) == 0 {
		return nil
	}
	return []string{"what is written below " + strings.Join(ignore, ", ") +
		" is neither compared nor kept: it is thrown away"}
}

// DefaultIgnore is what a step ignores that does not say so itself.
func DefaultIgnore() []string { return []string{"/tmp", "/run", "/var/log"} }

// CleanIgnore puts the paths to ignore into their shortest form.
func CleanIgnore(ignore []string) error {
	for i, at := range ignore {
		if ignore[i] = path.Clean(at); !path.IsAbs(at) || ignore[i] == "/" {
			return activities.Errorf(activities.Refused, "ignore: %q is not an absolute path below /", at)
		}
	}
	return nil
}
