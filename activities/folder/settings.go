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
	// Roots are the folders in which folders may be checkpointed and restored. Required, but where
	// there is an engine.
	Roots []string `yaml:"roots"`
	// Engine is the address of the Docker engine whose volumes and stopped containers may be
	// checkpointed and restored, such as unix:///var/run/docker.sock. The worker must be root on the
	// engine's host. Defaults to none.
	Engine string `yaml:"engine"`
}

// World implements activities.Settings.
func (*Settings) World() string { return "folder" }

// Check implements activities.Settings.
func (s *Settings) Check(_ activities.Opening, bad activities.Bad) error {
	if s.Engine == "" || len(s.Roots) > 0 {
		activities.CheckRoots(s.Roots, bad)
	}
	return nil
}

// Open implements activities.Settings.
func (s *Settings) Open(o activities.Opening) (activities.World, error) {
	return New(Config{State: filepath.Join(o.State, "folder"), Roots: s.Roots, Engine: s.Engine,
		Others: []string{filepath.Join(o.State, "container")}, LookOnly: o.LookOnly})
}
