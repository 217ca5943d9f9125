package terraform

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
)

// Preflight looks for the program and the folder; it does not start terraform.
func (a *applyAction) Preflight(ctx context.Context, o activities.Outlook) error {
	if _, err := activities.DecodeParams[Params](o.With); err != nil {
		return err
	}
	return a.preflight(ctx, o)
}

// preflight looks for what each action needs.
func (w *world) preflight(ctx context.Context, o activities.Outlook) error {
	problems := []error{w.checkInstalled(), activities.CheckPrograms(ctx, o.Checks)}
	if !o.Awaits("dir") {
		_, err := w.resolveFolder(dirIn(o.With))
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// Touches names where the configuration keeps its state: another folder may keep it there too. And
// it names what the configuration reads outside of its folder.
func (a *applyAction) Touches(_ context.Context, o activities.Outlook) ([]activities.Touch, error) {
	p, err := activities.DecodeParams[Params](o.With)
	if err != nil {
		return nil, err
	}
	return a.touches(p.Dir, p.Backend)
}

// touches names what a step on a folder touches; backend is what it adds to the settings there.
func (w *world) touches(dir string, backend map[string]string) ([]activities.Touch, error) {
	if dir == "" {
		return nil, nil
	}
	dir, err := w.resolveFolder(dir)
	if err != nil {
		return nil, err
	}
	backends, err := configuration.Backends(dir, backend)
	var touches []activities.Touch
	for _, b := range backends {
		switch file := b.StateFile(); {
		case file == "":
			touches = append(touches, activities.Touch{Name: b.Name()})
		case filepath.IsAbs(file):
			touches = append(touches, activities.Touch{Path: file})
		default:
			touches = append(touches, activities.Touch{Path: filepath.Join(dir, file)})
		}
	}
	reads, failed := configuration.FindReads(dir)
	for _, path := range reads.Paths {
		touches = append(touches, activities.Touch{Path: path, Reads: true})
	}
	return touches, errors.Join(err, failed)
}
