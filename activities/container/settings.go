package container

import "github.com/seed-62bf7108/unwind/activities"

// Kind opens the world from a worker's config.
var Kind = activities.Kind{Sample: &Settings{}, Attend: Attend}

// Settings are the section container of a worker's config.
type Settings struct {
	// Engine is the Docker engine's address. Defaults to DOCKER_HOST, else the default socket.
	Engine string `yaml:"engine"`
	// Layers is "auto", "never" or "require": whether checkpoints of running containers are layers
	// over their root, exact and made in milliseconds by a helper container on the engine. Auto falls
	// back to docker commit where layers do not work: on an old kernel, or for a container whose own
	// processes use its files. Require refuses instead, and a worker whose engine has no layers does
	// not start. Defaults to "auto".
	Layers LayersMode `yaml:"layers"`
}

// World implements activities.Settings.
func (*Settings) World() string { return "container" }

// Check implements activities.Settings.
func (s *Settings) Check(_ activities.Opening, bad activities.Bad) error {
	if !s.Layers.Valid() {
		bad("layers", "%q must be %s, %s or %s", s.Layers, LayersAuto, LayersNever, LayersRequire)
	}
	return nil
}

// Open implements activities.Settings.
func (s *Settings) Open(o activities.Opening) (activities.World, error) {
	return New(Config{State: o.State, Host: s.Engine, Layers: s.Layers, LookOnly: o.LookOnly})
}
