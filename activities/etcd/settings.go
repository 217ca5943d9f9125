package etcd

import "github.com/seed-62bf7108/unwind/activities"

// Kind opens the world from a worker's config.
var Kind = activities.Kind{
	Sample: &Settings{
		Databases: map[string]DatabaseSettings{"database": {Endpoints: []string{"http://127.0.0.1:2379"}, User: "worker",
			Password: "PASSWORD"}}}}

// Settings are the section etcd of a worker's config.
type Settings struct {
	// Databases are those that steps may use, by the name that they use. Required.
	Databases map[string]DatabaseSettings `yaml:"databases"`
}

// DatabaseSettings are an etcd cluster, or a part of one, and what steps may do to it.
type DatabaseSettings struct {
	// Endpoints are the addresses of the members, such as https://10.0.0.1:2379. Required.
	Endpoints []string `yaml:"endpoints"`
	// User is the worker's user. Defaults to none.
	User string `yaml:"user"`
	// Password is the name of the secret (in the config's secrets) that holds that of the user.
	// Required with user.
	Password activities.OwnSecret `yaml:"password"`
	// TLS are the files for https:// endpoints. Defaults to the certificates that the machine trusts.
	TLS TLS `yaml:"tls"`
	// Namespace is what all keys of the database begin with, and what steps leave out. Defaults to the
	// whole cluster.
	Namespace string `yaml:"namespace"`
	// Allow are the keys that steps may change, as patterns where * stands for any text. Defaults to
	// all.
	Allow []string `yaml:"allow"`
	// Deny are keys that steps may neither read nor change; it outranks allow. Defaults to none.
	Deny []string `yaml:"deny"`
	// Sensitive are keys whose values people are not shown. Defaults to none.
	Sensitive []string `yaml:"sensitive"`
}

// World implements activities.Settings.
func (*Settings) World() string { return "etcd" }

// Check implements activities.Settings.
func (s *Settings) Check(o activities.Opening, bad activities.Bad) error {
	for name, d := range s.Databases {
		if d.Password != "" && !o.Secrets.Has(string(d.Password)) {
			bad("databases."+name+".password", "it is not the name of one of secrets; name the secret that holds the password")
		}
	}
	return s.config(o).Validate()
}

func (s *Settings) config(o activities.Opening) Config {
	databases := map[string]Database{}
	for name, d := range s.Databases {
		made := Database{
			Endpoints: d.Endpoints, User: d.User, TLS: d.TLS, Namespace: d.Namespace, Allow: d.Allow, Deny: d.Deny,
			Sensitive: d.Sensitive,
		}
		if d.Password != "" {
			made.Password = func() (string, error) { return o.Secrets.Read(d.Password) }
		}
		databases[name] = made
	}
	return Config{Databases: databases, LookOnly: o.LookOnly}
}

// Open implements activities.Settings.
func (s *Settings) Open(o activities.Opening) (activities.World, error) { return New(s.config(o)) }
