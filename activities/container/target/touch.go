package target

import (
	"context"

	"github.com/docker/docker/api/types/mount"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// Touches names a container by its full id and by its name, and all that is mounted in it: a
// command may write there. Nothing is named of a container that does not exist.
func Touches(ctx context.Context, e engine.Client, name string) ([]activities.Touch, error) {
	c, err := e.ContainerInspect(ctx, name)
	if engine.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, engine.Explain("looking for container "+name, err)
	}
	touches := []activities.Touch{{Name: KeyPrefix + c.ID}, {Name: KeyPrefix + engine.NameOf(c)}}
	for _, m := range c.Mounts {
		if m.Type == mount.TypeVolume {
			touches = append(touches, activities.Touch{Name: "volume:" + m.Name, Reads: !m.RW})
		}
		if m.Source != "" {
			touches = append(touches, activities.Touch{Path: m.Source, Reads: !m.RW})
		}
	}
	return touches, nil
}
