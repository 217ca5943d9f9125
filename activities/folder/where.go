package folder

import (
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
)

// where says which folder a step is about: exactly one is set.
type where struct {
	Path      string `json:"path,omitempty"      jsonschema:"absolute path of the folder"`
	Volume    string `json:"volume,omitempty"    jsonschema:"instead of path: the name of a Docker volume, for what it holds"`
	Container string `json:"container,omitempty" jsonschema:"instead of path: the name of a Docker container that is stopped, for what it and people have changed in the files of its image"`
}

// keys are those of the steps of this world, by parameter.
func keys() []activities.Key {
	return []activities.Key{
		{Prefix: fileKey, Param: pathParam, Path: true}, {Prefix: volumeKey, Param: volumeParam},
		{Prefix: containerKey, Param: containerParam},
	}
}

const (
	fileKey      = "file:"
	volumeKey    = "volume:"
	containerKey = "container:"

	pathParam      = "path"
	volumeParam    = "volume"
	containerParam = "container"
)

// undoParams are the parameters that name the folder, and others that an undo needs.
func undoParams(others ...string) []string {
	return append([]string{pathParam, volumeParam, containerParam}, others...)
}

func (f where) check() error {
	set := 0
	for _, name := range []string{f.Path, f.Volume, f.Container} {
		if name != "" {
			set++
		}
	}
	if set != 1 {
		return activities.Errorf(activities.Refused, "give one of path, volume and container, not %d of them", set)
	}
	return nil
}

// key is that of the folder, as it was given.
func (f where) key() string {
	switch {
	case f.Volume != "":
		return volumeKey + f.Volume
	case f.Container != "":
		return containerKey + f.Container
	}
	return fileKey + f.Path
}

// locate finds the folder, which need not be there, and nor need a container.
func (w *world) locate(ctx context.Context, f where) (at location, err error) {
	if err := f.check(); err != nil {
		return at, err
	}
	switch {
	case f.Volume != "":
		return w.locateVolume(ctx, f.Volume)
	case f.Container != "":
		return w.locateContainer(ctx, f.Container)
	}
	return w.locatePath(f.Path)
}

// locateThere is locate for a folder that must be there.
func (w *world) locateThere(ctx context.Context, f where) (at location, err error) {
	if at, err = w.locateOrAbsent(ctx, f); err == nil && at.absent {
		err = refuseAbsent(f.Container)
	}
	return at, err
}

// locateOrAbsent is locateThere, but for a container that need not be there.
func (w *world) locateOrAbsent(ctx context.Context, f where) (at location, err error) {
	if at, err = w.locate(ctx, f); err != nil || at.absent {
		return at, err
	}
	if why := at.unusable(); why != "" {
		at.close()
		if f.Path != "" {
			return at, w.refuseCurrent(f.Path, why)
		}
		return at, activities.RefuseCurrent(at.key, "%s: %s %s", at.name, at.path, why)
	}
	return at, nil
}

// awaits says that an earlier step is to name the folder.
func awaits(o activities.Outlook) bool {
	return o.Awaits(pathParam) || o.Awaits(volumeParam) || o.Awaits(containerParam)
}

// preflight looks at where the folder is, with what finds it.
func (w *world) preflight(ctx context.Context, o activities.Outlook, f where,
	find func(context.Context, where) (location, error)) error {
	problems := []error{activities.CheckPrograms(ctx, o.Checks)}
	if !awaits(o) {
		at, err := find(ctx, f)
		if err == nil {
			at.close()
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}
