package unit

import (
	"cmp"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

// Kind opens the world from a worker's config.
var Kind = activities.Kind{
	Sample: &Settings{Units: map[string]Unit{"app": {Systemd: "app.service"}}}, Attend: Attend,
}

// Settings are the section unit of a worker's config.
type Settings struct {
	// Units are the units that steps may stop and start, by name. Required.
	Units map[string]Unit `yaml:"units"`
	// Engine is the address of the Docker engine of units that are containers. Defaults to DOCKER_HOST,
	// else the default socket.
	Engine string `yaml:"engine"`
}

// Unit says how a unit is stopped and started: by systemd, by a Docker engine, or by three
// commands.
type Unit struct {
	// Container is the name of a container.
	Container string `yaml:"container" json:"container,omitempty"`
	// Engine is the address of its engine, as the section has it.
	Engine string `yaml:"-" json:"engine,omitempty"`
	// Systemd is the name of the unit of systemd, such as shop.service.
	Systemd string `yaml:"systemd" json:"systemd,omitempty"`
	// Start is the program that starts it, with its arguments and without a shell. It returns when the
	// unit runs, and does nothing where it already does.
	Start []string `yaml:"start" json:"start,omitempty"`
	// Stop is the program that stops it. It returns when the unit is stopped, and does nothing where it
	// already is.
	Stop []string `yaml:"stop" json:"stop,omitempty"`
	// Running is a program that exits with status 0 if the unit runs, and with 1 or 3 if it does not.
	// Any other status says that it could not be asked.
	Running []string `yaml:"running" json:"running,omitempty"`
	// Health says how to ask whether it works. Defaults to whether it runs; of a container, with the
	// health check of its image.
	Health Health `yaml:"health" json:"health,omitzero"`
}

// Health is one question: a URL, or a command.
type Health struct {
	// URL answers a GET with a status below 400.
	URL string `yaml:"url" json:"url,omitempty"`
	// Command is a program that exits with status 0.
	Command []string `yaml:"command" json:"command,omitempty"`
}

// World implements activities.Settings.
func (*Settings) World() string { return "unit" }

// Check implements activities.Settings.
func (s *Settings) Check(_ activities.Opening, bad activities.Bad) error {
	if len(s.Units) == 0 {
		bad("units", "name at least one unit")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Units)) {
		if err := activities.CheckName(name); err != nil {
			bad("units", "%v", err)
		}
		s.Units[name].check("units."+name, bad)
	}
	return nil
}

func (u Unit) check(field string, bad activities.Bad) {
	commands := map[string][]string{"start": u.Start, "stop": u.Stop, "running": u.Running}
	by := cmp.Or(u.Systemd, u.Container)
	if u.Systemd != "" && u.Container != "" {
		bad(field, "it has both systemd and container; give one of the two")
	}
	for _, what := range slices.Sorted(maps.Keys(commands)) {
		command := commands[what]
		switch {
		case by != "" && len(command) > 0:
			bad(field+"."+what, "it stands beside %s, which says the same; give one of the two", by)
		case by == "" && len(command) == 0:
			bad(field+"."+what, "is missing; give systemd, container, or all of start, stop and running")
		case len(command) > 0 && command[0] == "":
			bad(field+"."+what, "names no program")
		}
	}
	if u.Systemd != "" && filepath.Base(u.Systemd) != u.Systemd {
		bad(field+".systemd", "%q must be the name of a unit, such as shop.service", u.Systemd)
	}
	if u.Health.URL != "" {
		if len(u.Health.Command) > 0 {
			bad(field+".health", "it has both url and command; give one of the two")
		}
		if at, err := url.Parse(u.Health.URL); err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
			bad(field+".health.url", "%q must be a URL such as http://127.0.0.1:8080/health", u.Health.URL)
		}
	}
}

// withCommands is the unit with its commands written out.
func (u Unit) withCommands() Unit {
	if u.Systemd != "" {
		u.Start, u.Stop = []string{"systemctl", "start", "--", u.Systemd}, []string{"systemctl", "stop", "--", u.Systemd}
		u.Running = []string{"systemctl", "is-active", "--quiet", "--", u.Systemd}
	}
	return u
}

// Open implements activities.Settings.
func (s *Settings) Open(o activities.Opening) (activities.World, error) {
	units := map[string]Unit{}
	for name, u := range s.Units {
		u.Engine = cmp.Or(s.Engine, os.Getenv("DOCKER_HOST"))
		units[name] = u.withCommands()
	}
	return New(Config{State: filepath.Join(o.State, "unit"), Units: units, LookOnly: o.LookOnly})
}
