package terraform

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
	"github.com/seed-62bf7108/unwind/internal/confine"
)

// scene lets checks read a folder: the working copy, or the configuration's own.
type scene struct {
	dir string
	// named is the folder as the task file names it: paths in it mean dir.
	named string
	host  *workspace.Host
	// limits are those of programs.
	limits confine.Limits
}

func (s scene) Target() string { return s.named }

func (s scene) ReadFile(_ context.Context, path string) ([]byte, error) {
	if filepath.IsAbs(path) {
		rel, err := filepath.Rel(s.named, path)
		if err != nil || !filepath.IsLocal(rel) {
			return nil, activities.Errorf(activities.Refused, "%s is outside %s", path, s.named)
		}
		path = rel
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if info, err := root.Stat(path); err == nil && info.IsDir() {
		return nil, activities.ErrIsFolder
	}
	return root.ReadFile(path)
}

func (s scene) Run(ctx context.Context, argv []string) ([]byte, error) {
	args := make([]string, len(argv))
	for i, a := range argv {
		args[i] = strings.ReplaceAll(a, "{path}", s.dir)
	}
	return s.host.RunProgram(ctx, s.dir, s.limits, args)
}
