package folder

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/childenv"
	"github.com/seed-62bf7108/unwind/internal/shortlived"
)

// scene is what a step's checks see: the folder.
type scene struct{ location }

// Target is empty: a check names the file in the folder that it is about.
func (scene) Target() string { return "" }

// ReadFile reads a file in the folder, named from there or by its whole path.
func (s scene) ReadFile(_ context.Context, path string) ([]byte, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.path, path)
	}
	below, err := filepath.Rel(s.path, path)
	if err != nil || !filepath.IsLocal(below) {
		return nil, activities.Errorf(activities.Refused, "path: %q is not in %s", path, s.path)
	}
	dir, err := os.OpenRoot(s.root().At)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.ReadFile(below)
}

// Run runs a program on the worker's host, in the minimal environment.
func (s scene) Run(ctx context.Context, argv []string) ([]byte, error) {
	args := make([]string, len(argv))
	for i, arg := range argv {
		args[i] = strings.ReplaceAll(arg, "{path}", s.path)
	}
	return shortlived.Output(ctx, "/", childenv.Minimal(), args...)
}
