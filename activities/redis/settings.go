package redis

import (
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
)

// Kind opens the world from a worker's config.
var Kind = activities.Kind{Sample: &Settings{Databases: map[string]DatabaseSettings{"database": {URL: "URL"}}}}

// Settings are the section redis of a worker's config.
type Settings struct {
	// Databases are those that steps may use, by the name that they use. Required.
	Databases map[string]DatabaseSettings `yaml:"databases"`
}

// DatabaseSettings are a logical database of a server, and what steps may do to it.
type DatabaseSettings struct {
	// URL is the name of the secret (in the config's secrets) that holds the address, such as
	// redis://USER:PASSWORD@HOST:6379/0. Required.
	URL activities.OwnSecret `yaml:"url"`
	// Allow are the keys that steps may change, as patterns where * stands for any text. Defaults to
	// all.
	Allow []string `yaml:"allow"`
	// Deny are keys that steps may neither read nor change; it outranks allow. Defaults to none.
	Deny []string `yaml:"deny"`
	// Sensitive are keys whose content people are not shown. Defaults to none.
	Sensitive []string `yaml:"sensitive"`
}

// World implements activities.Settings.
func (*Settings) World() string { return "redis" }

// Check implements activities.Settings.
func (s *Settings) Check(o activities.Opening, bad activities.Bad) error {
	for name, d := range s.Databases {
		if !o.Secrets.Has(string(d.URL)) {
			bad("databases."+name+".url", "it is not the name of one of secrets; name the secret that holds the address")
		}
	}
	return s.config(o).Validate()
}

func (s *Settings) config(o activities.Opening) Config {
	databases := map[string]Database{}
	for name, d := range s.Databases {
		databases[name] = Database{
			URL:   func() (string, error) { return o.Secrets.Read(d.URL) },
			Allow: d.Allow, Deny: d.Deny, Sensitive: d.Sensitive,
		}
	}
	return Config{Databases: databases, State: filepath.Join(o.State, "redis"), LookOnly: o.LookOnly}
}

// Open implements activities.Settings.
func (s *Settings) Open(o activities.Opening) (activities.World, error) { return New(s.config(o)) }
