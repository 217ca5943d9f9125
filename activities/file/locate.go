package file

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
)

// spot is a place in a root: a path without symlinks, but for its last part where that is meant itself.
type spot struct {
	*root
	rel string
}

func (s spot) abs() string { return filepath.Join(s.path, s.rel) }

// locate finds the place that a parameter names. follow says that a symlink at the end is followed.
func (w *world) locate(field, path string, follow bool) (spot, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return spot{}, w.refuse(field, path, "is not an absolute path")
	}
	left := 40 // as many symlinks as Linux follows
	return w.walk(field, path, filepath.Clean(path), follow, &left)
}

func (w *world) walk(field, given, path string, follow bool, left *int) (spot, error) {
	r, rel := w.owner(path)
	if r == nil {
		return spot{}, w.refuse(field, given, "is outside of the allowed roots")
	}
	parts := strings.Split(rel, string(filepath.Separator))
	for i := range parts {
		here := filepath.Join(parts[:i+1]...)
		info, err := r.dir.Lstat(here)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return w.checked(field, given, spot{r, rel})
		case errors.Is(err, unix.ENOTDIR):
			return spot{}, w.refuse(field, given, "leads through "+filepath.Join(r.path, filepath.Dir(here))+", which is no folder")
		case err != nil:
			return spot{}, err
		case info.Mode()&fs.ModeSymlink == 0 || i == len(parts)-1 && !follow:
			continue
		}
		if *left--; *left < 0 {
			return spot{}, w.refuse(field, given, "leads through too many symlinks")
		}
		to, err := r.dir.Readlink(here)
		if err != nil {
			return spot{}, err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(r.path, filepath.Dir(here), to)
		}
		return w.walk(field, given, filepath.Join(append([]string{to}, parts[i+1:]...)...), follow, left)
	}
	return w.checked(field, given, spot{r, rel})
}

// owner is the deepest root that holds a path.
func (w *world) owner(path string) (*root, string) {
	for _, r := range w.roots {
		for _, base := range []string{r.path, r.given} {
			if rel, err := filepath.Rel(base, path); err == nil && filepath.IsLocal(rel) {
				return r, rel
			}
		}
	}
	return nil, ""
}

func (w *world) checked(field, given string, s spot) (spot, error) {
	switch first, _, _ := strings.Cut(s.rel, string(filepath.Separator)); {
	case s.rel == ".":
		return s, w.refuse(field, given, "is an allowed root itself")
	case first == storeName:
		return s, w.refuse(field, given, "is in "+storeName+", which holds what undo needs")
	case !utf8.ValidString(s.rel):
		return s, w.refuse(field, given, "leads to a name that is not UTF-8")
	}
	for _, r := range w.roots {
		if rel, err := filepath.Rel(s.abs(), r.path); err == nil && filepath.IsLocal(rel) {
			return s, w.refuse(field, given, "holds the allowed root "+r.path)
		}
	}
	return s, nil
}

func (w *world) refuse(field, path, why string) error {
	given := make([]string, len(w.roots))
	for i, r := range w.roots {
		given[len(given)-1-i] = r.given
	}
	return activities.Errorf(activities.Refused, "%s: %q %s; this worker allows %s", field, path, why, strings.Join(given, ", "))
}
