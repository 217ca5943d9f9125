package disk

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

// Kind opens the world from a worker's config.
var Kind = activities.Kind{Sample: &Settings{Roots: []string{os.TempDir()}}, Attend: Attend}

// Settings are the section disk of a worker's config.
type Settings struct {
	// Roots are the folders in which disks, and the images below them, may be used. Required.
	Roots []string `yaml:"roots"`
	// Machines are those whose disks may be checkpointed while they run, by name. Defaults to none: a
	// disk that a machine has open is refused.
	Machines map[string]Machine `yaml:"machines"`
}

// Machine says how a machine of QEMU is asked while it runs.
type Machine struct {
	// QMP is the absolute path of the socket of its monitor, for Unwind alone, as of QEMU's option
	// -qmp unix:PATH,server=on,wait=off. Required.
	QMP string `yaml:"qmp" json:"qmp"`
	// Agent is the absolute path of the socket of its guest agent. With it, the filesystems in the
	// guest are frozen for the moment of a checkpoint. Defaults to none: a checkpoint is as after a loss of
	// power.
	Agent string `yaml:"agent" json:"agent,omitempty"`
}

// World implements activities.Settings.
func (*Settings) World() string { return "disk" }

// Check implements activities.Settings.
func (s *Settings) Check(_ activities.Opening, bad activities.Bad) error {
	activities.CheckRoots(s.Roots, bad)
	for _, name := range slices.Sorted(maps.Keys(s.Machines)) {
		m := s.Machines[name]
		if err := activities.CheckName(name); err != nil {
			bad("machines", "%v", err)
		}
		if !filepath.IsAbs(m.QMP) {
			bad("machines."+name+".qmp", "%q must be the absolute path of a socket", m.QMP)
		}
		if m.Agent != "" && !filepath.IsAbs(m.Agent) {
			bad("machines."+name+".agent", "%q must be the absolute path of a socket", m.Agent)
		}
	}
	return nil
}

// Open implements activities.Settings.
func (s *Settings) Open(o activities.Opening) (activities.World, error) {
	return New(Config{
		State: filepath.Join(o.State, "disk"), Roots: s.Roots, Machines: s.Machines, LookOnly: o.LookOnly,
	})
}
