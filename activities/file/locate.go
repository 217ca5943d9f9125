package file

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
)

// location is a path in a root, without symlinks except for its last part if the link itself is
// meant.
type location struct {
	*root
	rel string
}

func (s location) abs() string { return filepath.Join(s.path, s.rel) }

// locate resolves a parameter, also where a symlink at its end leads.
func (w *world) locate(field, path string) (location, error) { return w.locateBy(field, path, true) }

// locateItself resolves a parameter, and stays at a symlink at its end.
func (w *world) locateItself(field, path string) (location, error) {
	return w.locateBy(field, path, false)
}

func (w *world) locateBy(field, path string, follow bool) (location, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return location{}, w.refuse(field, path, "is not an absolute path")
	}
	left := 40 // the limit of Linux
	return w.resolve(field, path, filepath.Clean(path), "", follow, &left)
}

// resolve follows links; through is the last one that led to path, empty for none.
func (w *world) resolve(field, given, path, through string, follow bool, left *int) (location, error) {
	r, rel := w.rootOf(path)
	if r == nil && through != "" {
		return location{},
			w.refuseCurrent(field, given, "is outside the allowed roots: the symlink "+through+" leads to "+path)
	}
	if r == nil {
		return location{}, w.refuse(field, given, "is outside the allowed roots")
	}
	parts := strings.Split(rel, string(filepath.Separator))
	for i := range parts {
		here := filepath.Join(parts[:i+1]...)
		info, err := r.dir.Lstat(here)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return w.checkLocation(field, given, location{r, rel})
		case errors.Is(err, unix.ENOTDIR):
			return location{}, w.refuseCurrent(field, given,
				"leads through "+filepath.Join(r.path, filepath.Dir(here))+", which is not a folder")
		case err != nil:
			return location{}, err
		case info.Mode()&fs.ModeSymlink == 0 || i == len(parts)-1 && !follow:
			continue
		}
		if *left--; *left < 0 {
			return location{}, w.refuseCurrent(field, given, "leads through too many symlinks")
		}
		to, err := r.dir.Readlink(here)
		if err != nil {
			return location{}, err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(r.path, filepath.Dir(here), to)
		}
		return w.resolve(field, given, filepath.Join(append([]string{to}, parts[i+1:]...)...), filepath.Join(r.path, here),
			follow, left)
	}
	return w.checkLocation(field, given, location{r, rel})
}

// rootOf is the deepest root that contains a path.
func (w *world) rootOf(path string) (*root, string) {
	for _, r := range w.roots {
		for _, base := range []string{r.path, r.given} {
			if rel, err := filepath.Rel(base, path); err == nil && filepath.IsLocal(rel) {
				return r, rel
			}
		}
	}
	return nil, ""
}

func (w *world) checkLocation(field, given string, s location) (location, error) {
	switch {
	case s.rel == ".":
		return s, w.refuse(field, given, "is itself an allowed root")
	// also that of a root that is mounted here
	case slices.Contains(strings.Split(s.rel, string(filepath.Separator)), storeName):
		return s, w.refuse(field, given, "is in "+storeName+", which holds undo data")
	case !utf8.ValidString(s.rel):
		return s, w.refuse(field, given, "leads to a name that is not UTF-8")
	}
	for _, r := range w.roots {
		if rel, err := filepath.Rel(s.abs(), r.path); err == nil && filepath.IsLocal(rel) {
			return s, w.refuse(field, given, "contains the allowed root "+r.path)
		}
	}
	return s, nil
}

// refuseCurrent refuses a path for what there is on its way now.
func (w *world) refuseCurrent(field, path, why string) error {
	err := w.refuse(field, path, why)
	err.Current = keyOf(path)
	return err
}

// keyOf is the resource key of a path as a task file names it.
func keyOf(path string) string { return keyPrefix + filepath.Clean(path) }

func (w *world) refuse(field, path, why string) *activities.Error {
	given := make([]string, len(w.roots))
	for i, r := range w.roots {
		given[len(given)-1-i] = r.given
	}
	return activities.Errorf(activities.Refused, "%s: %q %s; this worker allows %s", field, path, why,
		strings.Join(given, ", "))
}
