package file

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// content is one file to write.
type content struct {
	Path    string  `json:"path,omitempty" jsonschema:"absolute path of the file to write; missing folders are made"`
	Content *string `json:"content,omitempty" jsonschema:"the new content; it stands in the task's history"`
	Source  string  `json:"source,omitempty" jsonschema:"absolute path of a file on the same host to copy from, for what is large or private"`
	Mode    string  `json:"mode,omitempty" jsonschema:"permissions in octal, such as 0644; left out: those of the file that is replaced, else 0644"`
}

type writeParams struct {
	content
	Files []content `json:"files,omitempty" jsonschema:"several files, all or none of which are written; instead of path"`
}

type removeParams struct {
	Path  string   `json:"path,omitempty" jsonschema:"absolute path of the file or folder to delete, with all that is in it"`
	Paths []string `json:"paths,omitempty" jsonschema:"several of them; instead of path"`
}

// fileToWrite is a file to write, located.
type fileToWrite struct {
	location
	given  string
	text   []byte
	source *location
	mode   uint32 // 0: that of the replaced file
}

func (w *world) filesToWrite(s activities.Step) ([]fileToWrite, error) {
	if len(s.With) > activities.MaxInline {
		return nil, activities.Errorf(activities.Refused,
			"content: the parameters have %s, more than %d; put the content into a file below an allowed root and name it "+
				"as source: instead", activities.CountOf(len(s.With), "byte"), activities.MaxInline)
	}
	p, err := activities.DecodeParams[writeParams](s.With)
	if err != nil {
		return nil, err
	}
	all, names, err := p.list()
	if err != nil {
		return nil, err
	}
	out := make([]fileToWrite, len(all))
	for i, c := range all {
		if out[i], err = w.locateFile(names(i), c); err != nil {
			return nil, err
		}
	}
	return out, oneRoot(out, func(x fileToWrite) location { return x.location })
}

func (w *world) locateFile(field string, c content) (x fileToWrite, err error) {
	x.given = c.Path
	if x.location, err = w.locate(field+"path", c.Path); err != nil {
		return x, err
	}
	switch {
	case (c.Content == nil) == (c.Source == ""):
		return x, activities.Errorf(activities.Refused, "%scontent: give one of content and source for %s", field, c.Path)
	case c.Content != nil:
		x.text = []byte(*c.Content)
	default:
		source, err := w.locate(field+"source", c.Source)
		if err != nil {
			return x, err
		}
		x.source = &source
	}
	if c.Mode != "" {
		mode, err := strconv.ParseUint(c.Mode, 8, 32)
		if err != nil || mode == 0 || mode > 0o7777 {
			return x, activities.Errorf(activities.Refused, "%smode: %q is not an octal mode such as \"0644\"", field, c.Mode)
		}
		x.mode = uint32(mode)
	}
	return x, nil
}

// pathToDelete is a path to delete, located.
type pathToDelete struct {
	location
	given string
}

func (w *world) pathsToDelete(s activities.Step) ([]pathToDelete, error) {
	p, err := activities.DecodeParams[removeParams](s.With)
	if err != nil {
		return nil, err
	}
	paths, names, err := p.list()
	if err != nil {
		return nil, err
	}
	out := make([]pathToDelete, len(paths))
	for i, path := range paths {
		at, err := w.locateItself(names(i), path)
		if err != nil {
			return nil, err
		}
		out[i] = pathToDelete{at, path}
	}
	return out, oneRoot(out, func(x pathToDelete) location { return x.location })
}

// oneRoot refuses paths in two roots, and paths that are equal or contain one another.
func oneRoot[T any](all []T, at func(T) location) error {
	for i := range all {
		for j := range i {
			a, b := at(all[j]), at(all[i])
			if a.root != b.root {
				return activities.Errorf(activities.Refused,
					"%s and %s are in two roots; a step can change only one: make it two steps", a.abs(), b.abs())
			}
			if isWithin(a.rel, b.rel) || isWithin(b.rel, a.rel) {
				return activities.Errorf(activities.Refused, "%s and %s: one is, or is in, the other; name each file once", a.abs(),
					b.abs())
			}
		}
	}
	return nil
}

func isWithin(folder, path string) bool {
	return path == folder || strings.HasPrefix(path, folder+string(filepath.Separator))
}
