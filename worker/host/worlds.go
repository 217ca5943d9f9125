package host

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/disk"
	"github.com/seed-62bf7108/unwind/activities/etcd"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/activities/mcpserver"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/redis"
	"github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/activities/stripe"
	"github.com/seed-62bf7108/unwind/activities/terraform"
	"github.com/seed-62bf7108/unwind/activities/unit"
	"github.com/seed-62bf7108/unwind/activities/wait"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// Kinds are the kinds of worlds that a config can open. A program that has others adds them before
// it calls [Hooks].
var Kinds = []activities.Kind{
	file.Kind, folder.Kind, container.Kind, terraform.Kind, stripe.Kind, sqlite.Kind, postgres.Kind, redis.Kind, etcd.Kind,
	mcpserver.Kind, unit.Kind, environmentKind, disk.Kind,
}

// Hooks lets the program run a worker: some worlds start the program itself as a supervisor that
// outlives the worker. Call it first in main and in TestMain: in a supervisor it never returns.
func Hooks() {
	for _, k := range Kinds {
		if k.Attend != nil {
			k.Attend()
		}
	}
}

// WorldNames are the names of the worlds that a config can open.
func WorldNames() (names []string) {
	for _, k := range Kinds {
		names = append(names, k.Name())
	}
	return names
}

// worldNames are the names of the worlds that the config opens.
func (c Config) worldNames() (names []string) {
	for _, s := range c.Worlds {
		names = append(names, s.World())
	}
	return names
}

// SettingsOf are the settings of one world, such as *file.Settings; the zero value if the config
// does not open it.
func SettingsOf[S activities.Settings](c Config) (of S) {
	for _, s := range c.Worlds {
		if found, is := s.(S); is {
			return found
		}
	}
	return of
}

// With is the config with these settings in the place of those of the same world, or besides all
// others.
func (c Config) With(s activities.Settings) Config {
	others := c.Without(s.World())
	others.Worlds = append(others.Worlds, s)
	return others
}

// Without is the config without a world.
func (c Config) Without(world string) Config {
	c.Worlds = slices.DeleteFunc(slices.Clone(c.Worlds), func(s activities.Settings) bool { return s.World() == world })
	return c
}

// Opening is what the worker offers its worlds.
func (c Config) Opening() activities.Opening {
	return activities.Opening{State: c.State, Secrets: workerSecrets{c}, Hidden: c.hiddenPaths()}
}

// openWorlds opens the worlds of the config for a worker of a server.
func (c Config) openWorlds(server recovery.Server) ([]activities.World, error) {
	if err := os.MkdirAll(c.State, 0o700); err != nil {
		return nil, fmt.Errorf("config: state: %w", err)
	}
	return openAll(addEnvironment(c.Worlds), c.Opening(), server)
}

// lookAtWorlds opens the worlds of the config to look only.
func (c Config) lookAtWorlds() ([]activities.World, error) {
	o := c.Opening()
	o.LookOnly = true
	return openAll(c.Worlds, o, recovery.Server{})
}

// addEnvironment adds the world of environments where no step may use any: a rollback of one needs it.
func addEnvironment(settings []activities.Settings) []activities.Settings {
	isIt := func(s activities.Settings) bool { return s.World() == environmentKind.Name() }
	if slices.ContainsFunc(settings, isIt) {
		return settings
	}
	return append(slices.Clone(settings), &EnvironmentSettings{})
}

// openAll opens worlds of settings, and the one that has none.
func openAll(settings []activities.Settings, o activities.Opening, server recovery.Server) ([]activities.World, error) {
	worlds := []activities.World{wait.New()}
	var problems []error
	for _, s := range settings {
		open := s.Open
		if e, is := s.(*EnvironmentSettings); is {
			open = func(o activities.Opening) (activities.World, error) { return e.openOn(o, server) }
		}
		w, err := open(o)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		worlds = append(worlds, w)
	}
	return worlds, errors.Join(problems...)
}
