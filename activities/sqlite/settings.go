package sqlite

import (
	"os"
	"path/filepath"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// Kind opens the world from a worker's config.
var Kind = activities.Kind{Sample: &Settings{Roots: []string{os.TempDir()}}, Attend: Attend}

// Settings are the section sqlite of a worker's config.
type Settings struct {
	// Roots are the folders in which databases may be used. Required.
	Roots []string `yaml:"roots"`
	// Busy is how long a step waits for a database that another program has locked. Defaults to 10s.
	Busy time.Duration `yaml:"busy"`
}

// World implements activities.Settings.
func (*Settings) World() string { return "sqlite" }

// Check implements activities.Settings.
func (s *Settings) Check(_ activities.Opening, bad activities.Bad) error {
	activities.CheckRoots(s.Roots, bad)
	if s.Busy < 0 {
		bad("busy", "%s is negative", s.Busy)
	}
	return nil
}

// Open implements activities.Settings.
func (s *Settings) Open(o activities.Opening) (activities.World, error) {
	return New(Config{State: filepath.Join(o.State, "sqlite"), Roots: s.Roots, Busy: s.Busy, LookOnly: o.LookOnly})
}
