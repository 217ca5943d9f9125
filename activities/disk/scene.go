package disk

import (
	"context"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/childenv"
	"github.com/seed-62bf7108/unwind/internal/shortlived"
)

// scene is what a step's checks see: what programs on the host can see.
type scene struct{ disk string }

func (s scene) Target() string { return s.disk }

func (scene) ReadFile(context.Context, string) ([]byte, error) {
	return nil, activities.Errorf(activities.Refused, "a disk has no file that can be read; check it by a command")
}

// Run runs a program on the worker's host, in the minimal environment.
func (s scene) Run(ctx context.Context, argv []string) ([]byte, error) {
	args := make([]string, len(argv))
	for i, arg := range argv {
		args[i] = strings.ReplaceAll(arg, "{path}", s.disk)
	}
	return shortlived.Output(ctx, "/", childenv.Minimal(), args...)
}
