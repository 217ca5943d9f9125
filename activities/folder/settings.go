package folder

import (
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
)

// Kind opens the world from a worker's config.
var Kind = activities.Kind{Sample: &Settings{Roots: []string{os.TempDir()}}}

// Settings are the section folder of a worker's config.
type Settings struct {
	// Roots are the folders in which folders may be checkpointed and restored. Required.
	Roots []string `yaml:"roots"`
}

// World implements activities.Settings.
func (*Settings) World() string { return "folder" }

// Check implements activities.Settings.
func (s *Settings) Check(_ activities.Opening, bad activities.Bad) error {
	activities.CheckRoots(s.Roots, bad)
	return nil
}

// Open implements activities.Settings.
func (s *Settings) Open(o activities.Opening) (activities.World, error) {
	return New(Config{State: filepath.Join(o.State, "folder"), Roots: s.Roots, LookOnly: o.LookOnly})
}
