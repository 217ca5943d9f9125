package mcpserver

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/childenv"
)

// Kind opens the world from a worker's config.
var Kind = activities.Kind{Sample: &Settings{Servers: map[string]ServerSettings{
	"server": {Command: "true", SecretEnvironment: map[string]activities.OwnSecret{"KEY": "KEY"}},
	"remote": {URL: "https://example.com", Token: "TOKEN"},
}}, Attend: Attend}

// Settings are the section mcp of a worker's config.
type Settings struct {
	// Servers are those whose tools steps may call, by the name that they use. Required.
	Servers map[string]ServerSettings `yaml:"servers"`
}

// ServerSettings are a server of the Model Context Protocol. The worker starts it, or connects to
// it, when a step first needs it.
type ServerSettings struct {
	// Command is a command line, run by sh -c, that serves over its standard streams. Required, unless
	// URL is given.
	Command string `yaml:"command"`
	// URL is where a server speaks streamable HTTP: https://host/mcp.
	URL string `yaml:"url"`
	// Token is the name of the secret (in the config's secrets) that each request to URL bears.
	// Defaults to none.
	Token activities.OwnSecret `yaml:"token"`
	// Declarations is the absolute path of the file that says how its tools are undone
	// (docs/mcp-proxy.md). Defaults to none: every tool is irreversible.
	Declarations string `yaml:"declarations"`
	// Environment names variables of the worker's environment that the server gets besides the minimal
	// ones.
	Environment []string `yaml:"environment"`
	// SecretEnvironment are variables that it gets, each with the name of the secret (in the config's
	// secrets) that is its value.
	SecretEnvironment map[string]activities.OwnSecret `yaml:"secretEnvironment"`
}

// World implements activities.Settings.
func (*Settings) World() string { return "mcp" }

// Check implements activities.Settings.
func (s *Settings) Check(o activities.Opening, bad activities.Bad) error {
	if len(s.Servers) == 0 {
		bad("servers", "name at least one server")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Servers)) {
		if err := activities.CheckName(name); err != nil {
			bad("servers", "%v", err)
		}
		s.Servers[name].check(o.Secrets,
			func(field, format string, args ...any) { bad("servers."+name+"."+field, format, args...) })
	}
	return nil
}

func (s ServerSettings) check(secrets activities.WorkerSecrets, bad activities.Bad) {
	s.checkAddress(secrets, bad)
	if s.Declarations != "" && !filepath.IsAbs(s.Declarations) {
		bad("declarations", "%q must be an absolute path", s.Declarations)
	}
	for _, variable := range s.Environment {
		if _, set := os.LookupEnv(variable); !set {
			bad("environment", "the worker's environment has no %s", variable)
		}
	}
	for variable, secret := range s.SecretEnvironment {
		if !secrets.Has(string(secret)) {
			bad("secretEnvironment."+variable, "%q is not one of secrets", secret)
		}
	}
}

// checkAddress checks how the server is started or reached.
func (s ServerSettings) checkAddress(secrets activities.WorkerSecrets, bad activities.Bad) {
	switch {
	case s.URL != "" && len(s.Environment)+len(s.SecretEnvironment) > 0:
		bad("environment", "a server that is reached by url gets none from here; its secret is token")
	case s.URL != "" && s.Token != "" && !secrets.Has(string(s.Token)):
		bad("token", "%q is not one of secrets", s.Token)
	default:
		if err := (Server{Command: s.Command, URL: s.URL, Token: string(s.Token)}).Validate(); err != nil {
			field, problem, _ := strings.Cut(err.Error(), ": ")
			bad(field, "%s", problem)
		}
	}
}

// Open implements activities.Settings. A server gets the values that its secrets have now.
func (s *Settings) Open(o activities.Opening) (activities.World, error) {
	config := Config{State: filepath.Join(o.State, "mcp"), Servers: map[string]Server{}, LookOnly: o.LookOnly}
	for name, each := range s.Servers {
		server, err := each.server(o)
		if err != nil {
			return activities.World{}, fmt.Errorf("config: mcp.servers.%s%w", name, err)
		}
		config.Servers[name] = server
	}
	return New(config)
}

// server is what the settings mean. Its error begins with the field.
func (s ServerSettings) server(o activities.Opening) (Server, error) {
	env, made := childenv.Minimal(s.Environment...), Server{Command: s.Command, URL: s.URL}
	var err error
	if !o.LookOnly {
		for variable, secret := range s.SecretEnvironment {
			if env[variable], err = o.Secrets.Read(secret); err != nil {
				return made, fmt.Errorf(".secretEnvironment.%s: %w", variable, err)
			}
		}
		if s.Token != "" {
			if made.Token, err = o.Secrets.Read(s.Token); err != nil {
				return made, fmt.Errorf(".token: %w", err)
			}
		}
	}
	made.Env = childenv.List(env)
	if s.Declarations != "" {
		if made.Declarations, err = ReadDeclarations(s.Declarations); err != nil {
			return made, fmt.Errorf(": %w", err)
		}
	}
	return made, nil
}
