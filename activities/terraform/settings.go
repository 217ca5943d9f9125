package terraform

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

// Kind opens the world from a worker's config.
var Kind = activities.Kind{Sample: &Settings{Roots: []string{os.TempDir()}}, Attend: Attend}

// Settings are the section terraform of a worker's config.
type Settings struct {
	// Roots are the folders in which configurations may be applied. Required.
	Roots []string `yaml:"roots"`
	// Binary is the terraform program. Defaults to the one on PATH.
	Binary string `yaml:"binary"`
	// CLIConfig is the file of Terraform's settings: mirrors, credentials. What its
	// provider_installation says is where providers come from; without one, from the mirrors of this
	// host and from their registries, never from the configuration's folder. Defaults to none.
	CLIConfig string `yaml:"cliConfig"`
	// Environment names variables of the worker's environment that Terraform and what it runs get
	// besides the minimal ones.
	Environment []string `yaml:"environment"`
	// SecretEnvironment are variables that they get, each with the name of the secret (in the config's
	// secrets) that is its value.
	SecretEnvironment map[string]string `yaml:"secretEnvironment"`
}

// World implements activities.Settings.
func (*Settings) World() string { return Name }

// Check implements activities.Settings. It refuses variables that would hand on the worker's own
// secrets.
func (s *Settings) Check(o activities.Opening, bad activities.Bad) error {
	activities.CheckRoots(s.Roots, bad)
	for _, name := range s.Environment {
		if err := workspace.CheckVariable(name); err != nil {
			bad("environment", "%v", err)
		} else if o.Secrets.IsOwnVariable(name) {
			bad("environment", "%s holds a secret of the worker itself, which no task can have", name)
		}
	}
	for name, secret := range s.SecretEnvironment {
		field := "secretEnvironment." + name
		if err := workspace.CheckVariable(name); err != nil {
			bad(field, "%v", err)
		}
		if !o.Secrets.Has(secret) {
			bad(field, "%q is not one of secrets; name the secret that is its value", secret)
		} else if o.Secrets.IsOwn(secret) {
			bad(field, "%s is a secret of the worker itself, which no task can have", secret)
		}
	}
	return nil
}

// Open implements activities.Settings.
func (s *Settings) Open(o activities.Opening) (activities.World, error) {
	return New(Config{
		State: filepath.Join(o.State, "terraform"), Roots: s.Roots, Terraform: s.Binary, CLIConfig: s.CLIConfig,
		Environment: s.Environment,
		Secrets:     func() (map[string]string, error) { return s.ReadSecrets(o.Secrets) }, Hidden: o.Hidden,
		LookOnly: o.LookOnly,
	})
}

// ReadSecrets returns the values of SecretEnvironment.
func (s *Settings) ReadSecrets(from activities.WorkerSecrets) (map[string]string, error) {
	values := map[string]string{}
	for name, secret := range s.SecretEnvironment {
		value, err := from.ReadShared(secret)
		if err != nil {
			return nil, fmt.Errorf("%s: secret %s: %w", name, secret, err)
		}
		values[name] = value
	}
	return values, nil
}
