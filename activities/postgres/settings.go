package postgres

import (
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
)

// Kind opens the world from a worker's config.
var Kind = activities.Kind{Sample: &Settings{Databases: map[string]DatabaseSettings{"database": {DSN: "DSN"}}}}

// Settings are the section postgres of a worker's config.
type Settings struct {
	// Databases are those that steps may use, by the name that they use. Required.
	Databases map[string]DatabaseSettings `yaml:"databases"`
}

// DatabaseSettings are a database, and what steps may do to it.
type DatabaseSettings struct {
	// DSN is the name of the secret (in the config's secrets) that holds the connection string, such
	// as postgres://USER:PASSWORD@HOST/DATABASE. Required.
	DSN activities.OwnSecret `yaml:"dsn"`
	// Allow are the tables whose rows steps may change, as SCHEMA.TABLE, where * stands for any text.
	// Defaults to all.
	Allow []string `yaml:"allow"`
	// Deny are tables that steps may neither read nor change; it outranks allow. Defaults to none.
	Deny []string `yaml:"deny"`
	// Sensitive are columns whose values people are not shown, as SCHEMA.TABLE.COLUMN. Defaults to
	// none.
	Sensitive []string `yaml:"sensitive"`
}

// World implements activities.Settings.
func (*Settings) World() string { return "postgres" }

// Check implements activities.Settings.
func (s *Settings) Check(o activities.Opening, bad activities.Bad) error {
	for name, d := range s.Databases {
		if !o.Secrets.Has(string(d.DSN)) {
			bad("databases."+name+".dsn",
				"it is not the name of one of secrets; name the secret that holds the connection string")
		}
	}
	return s.Config(o).Validate()
}

// Config is what the settings mean.
func (s *Settings) Config(o activities.Opening) Config {
	databases := map[string]Database{}
	for name, d := range s.Databases {
		databases[name] = Database{
			DSN:   func() (string, error) { return o.Secrets.Read(d.DSN) },
			Allow: d.Allow, Deny: d.Deny, Sensitive: d.Sensitive,
		}
	}
	return Config{Databases: databases, State: filepath.Join(o.State, "postgres"), LookOnly: o.LookOnly}
}

// Open implements activities.Settings.
func (s *Settings) Open(o activities.Opening) (activities.World, error) { return New(s.Config(o)) }
