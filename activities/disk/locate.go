package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// keyPrefix gives a disk the same key as its file.
const keyPrefix = "file:"

// locate returns the path of a file without symlinks, if a step may use it.
func (w *world) locate(given string) (string, error) {
	if !filepath.IsAbs(given) || strings.ContainsRune(given, 0) {
		return "", activities.Errorf(activities.Refused, "disk: %q must be an absolute path", given)
	}
	path, err := filepath.EvalSymlinks(given)
	if errors.Is(err, fs.ErrNotExist) {
		return "", activities.RefuseCurrent(keyPrefix+filepath.Clean(given), "disk: there is no %s", given)
	}
	if err != nil {
		return "", err
	}
	for _, root := range w.roots {
		if below, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(below) {
			return path, nil
		}
	}
	return "", activities.Errorf(activities.Refused,
		"disk: %s is in none of the folders that this worker's config allows (disk.roots: %s)", path,
		strings.Join(w.Roots, ", "))
}

// locateThere is locate for a regular file.
func (w *world) locateThere(given string) (string, error) {
	path, err := w.locate(given)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = activities.RefuseCurrent(keyPrefix+filepath.Clean(given),
			"disk: %s is not a regular file; only images in files can be kept", given)
	}
	return path, err
}

// refuseCurrent says of an error that it is about what there is now, which an earlier step may change.
func refuseCurrent(given string, err error) error {
	if e, is := errors.AsType[*activities.Error](err); is && e.Type == activities.Refused {
		e.Current = keyPrefix + filepath.Clean(given)
	}
	return err
}
