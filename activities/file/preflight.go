package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

// Preflight looks at where the step's paths lead, without staging anything.
func (a *action) Preflight(ctx context.Context, o activities.Outlook) error {
	return errors.Join(a.preflight(a.world, o), activities.CheckPrograms(ctx, o.Checks))
}

func (writeVerb) preflight(w *world, o activities.Outlook) error {
	p, err := activities.DecodeParams[writeParams](o.With)
	if err != nil {
		return err
	}
	if slices.Contains(o.Later, "files") { // of the list itself nothing is known
		return nil
	}
	all, names, err := p.list()
	if err != nil {
		return err
	}
	var problems []error
	var found []fileToWrite
	for i, c := range all {
		name := names(i)
		if c.Path == "" && o.Awaits(name+"path") {
			continue
		}
		if c.Content == nil && o.Awaits(name+"content") || c.Source == "" && o.Awaits(name+"source") {
			c.Content = new(string)
		}
		x, err := w.locateFile(name, c)
		if err == nil && x.source != nil {
			err = x.source.checkSource(name+"source", c.Source)
		}
		if err == nil {
			found = append(found, x)
		}
		problems = append(problems, err)
	}
	return errors.Join(errors.Join(problems...), oneRoot(found, func(x fileToWrite) location { return x.location }))
}

// checkSource refuses a source that cannot be copied.
func (s location) checkSource(field, given string) error {
	info, err := s.dir.Stat(s.rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuseAbsent(field, given)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return activities.RefuseCurrent(keyOf(given), "%s: %s is not a regular file", field, given)
	}
	return nil
}

func (deleteVerb) preflight(w *world, o activities.Outlook) error {
	p, err := activities.DecodeParams[removeParams](o.With)
	if err != nil || o.AwaitsAny() {
		return err
	}
	paths, names, err := p.list()
	if err != nil {
		return err
	}
	var problems []error
	var found []pathToDelete
	for i, path := range paths {
		at, err := w.locateItself(names(i), path)
		if err == nil {
			_, err = at.dir.Lstat(at.rel)
			found = append(found, pathToDelete{at, path})
			if errors.Is(err, fs.ErrNotExist) {
				err = refuseAbsent(names(i), path)
			}
		}
		problems = append(problems, err)
	}
	return errors.Join(errors.Join(problems...), oneRoot(found, func(x pathToDelete) location { return x.location }))
}

// list returns the files that the parameters name, and a function that names the field of each.
func (p writeParams) list() ([]content, func(i int) string, error) {
	if len(p.Files) == 0 {
		return []content{p.content}, func(int) string { return "" }, nil
	}
	if p.content != (content{}) {
		return nil, nil,
			activities.Errorf(activities.Refused, "files: give either path with content or source, or a list of files, not both")
	}
	return p.Files, func(i int) string { return fmt.Sprintf("files[%d].", i) }, nil
}

// list returns the paths that the parameters name, and a function that names the field of each.
func (p removeParams) list() ([]string, func(i int) string, error) {
	switch {
	case len(p.Paths) == 0 && p.Path == "", len(p.Paths) > 0 && p.Path != "":
		return nil, nil, activities.Errorf(activities.Refused, "path: give one path, or a list of paths")
	case len(p.Paths) == 0:
		return []string{p.Path}, func(int) string { return "path" }, nil
	}
	return p.Paths, func(i int) string { return fmt.Sprintf("paths[%d]", i) }, nil
}
