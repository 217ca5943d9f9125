package folder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// location is a folder that a step may use. Its parent is open, so that no link can lead elsewhere.
type location struct {
	path   string // without symlinks
	parent *os.File
	// name is what messages call it, key what others know it by.
	name, key string
	// settled is an error where it must not be put back now, or has been in use since it was located;
	// nil: it may always be.
	settled func(context.Context) error
	// image is that of a container: what is not in the folder is in it; nil: this is all.
	image lowers
	// restless is what can be read only while it is settled.
	restless bool
	// said is what the engine says of a container.
	said json.RawMessage
	// absent is a container that is not there: it has a name and a key, and no folder.
	absent bool
}

// checkSettled asks settled.
func (l location) checkSettled(ctx context.Context) error {
	if l.settled == nil {
		return nil
	}
	return l.settled(ctx)
}

func (l location) close() {
	if l.parent != nil {
		l.parent.Close()
	}
}

// root is the folder for package snapshot.
func (l location) root() snapshot.Root {
	return snapshot.Root{Path: l.path, At: l.beside(filepath.Base(l.path))}
}

// beside is the path of a name beside the folder.
func (l location) beside(name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", l.parent.Fd(), name)
}

// stage is where a step stages what it puts into the folder.
func (l location) stage(token string) string { return l.beside(".unwind-" + token) }

// locatePath finds the folder that has a path.
func (w *world) locatePath(given string) (at location, err error) {
	if !filepath.IsAbs(given) || strings.ContainsRune(given, 0) {
		return at, w.refuse(given, "is not an absolute path")
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(filepath.Clean(given)))
	if errors.Is(err, fs.ErrNotExist) {
		return at, w.refuseCurrent(given, "is in a folder that is not there")
	}
	if err != nil {
		return at, err
	}
	path := filepath.Join(parent, filepath.Base(given))
	in := slices.IndexFunc(w.roots, func(r root) bool {
		below, err := filepath.Rel(r.path, path)
		return err == nil && filepath.IsLocal(below) && below != "."
	})
	if in < 0 {
		return at, w.refuse(given, "is not a folder in one of the folders")
	}
	r := w.roots[in]
	below, err := filepath.Rel(r.path, parent)
	if err != nil {
		return at, err
	}
	if slices.Contains(strings.Split(path, string(filepath.Separator)), ".unwind") {
		return at, w.refuse(given, "is in .unwind, which holds undo data")
	}
	dir, err := r.dir.Open(below)
	return location{path: path, parent: dir, name: "folder " + path, key: fileKey + path}, err
}

// unusable says why no folder can be read or put back here; empty: one can.
func (l location) unusable() string {
	var of unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, l.root().At, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &of)
	switch {
	case errors.Is(err, unix.ENOENT):
		return "is not there"
	case err != nil:
		return "cannot be read: " + err.Error()
	case of.Mode&unix.S_IFMT != unix.S_IFDIR:
		return "is not a folder; of a link to one, name where it leads"
	case of.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return "is where something is mounted, and beside it is another filesystem; name a folder in it"
	}
	return ""
}

// refuseCurrent refuses a path for what there is on its way now.
func (w *world) refuseCurrent(path, why string) error {
	err := w.refuse(path, why)
	err.Current = fileKey + filepath.Clean(path)
	return err
}

func (w *world) refuse(path, why string) *activities.Error {
	given := make([]string, len(w.roots))
	for i, r := range w.roots {
		given[i] = r.given
	}
	return activities.Errorf(activities.Refused, "path: %q %s; this worker allows folders below %s", path, why,
		strings.Join(given, ", "))
}
