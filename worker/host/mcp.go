package host

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/mcpserver"
	"github.com/seed-62bf7108/unwind/internal/childenv"
)

func (c Config) checkMCP(bad func(field, format string, args ...any)) {
	if c.MCP == nil {
		return
	}
	if len(c.MCP.Servers) == 0 {
		bad("mcp.servers", "name at least one server")
	}
	for _, name := range slices.Sorted(maps.Keys(c.MCP.Servers)) {
		field, s := "mcp.servers."+name, c.MCP.Servers[name]
		if err := mcpserver.CheckName(name); err != nil {
			bad("mcp.servers", "%v", err)
		}
		c.checkMCPAddress(field, s, bad)
		if s.Declarations != "" && !filepath.IsAbs(s.Declarations) {
			bad(field+".declarations", "%q must be an absolute path", s.Declarations)
		}
		for _, variable := range s.Environment {
			if _, set := os.LookupEnv(variable); !set {
				bad(field+".environment", "the worker's environment has no %s", variable)
			}
		}
		for variable, secret := range s.SecretEnvironment {
			if _, known := c.Secrets[secret]; !known {
				bad(field+".secretEnvironment."+variable, "%q is not one of secrets", secret)
			}
		}
	}
}

// checkMCPAddress checks how a server is started or reached.
func (c Config) checkMCPAddress(field string, s MCPServer, bad func(field, format string, args ...any)) {
	_, isKnown := c.Secrets[s.Token]
	switch isStarted := strings.TrimSpace(s.Command) != ""; {
	case isStarted == (s.URL != ""):
		bad(field+".command", "give the command line that starts the server, or url, and not both")
	case isStarted && s.Token != "":
		bad(field+".token", "it is for url; a command gets secrets in its secretEnvironment")
	case isStarted:
	case len(s.Environment)+len(s.SecretEnvironment) > 0:
		bad(field+".environment", "a server that is reached by url gets none from here; its secret is token")
	case s.Token != "" && !isKnown:
		bad(field+".token", "%q is not one of secrets", s.Token)
	default:
		if err := mcpserver.CheckURL(s.URL, s.Token != ""); err != nil {
			bad(field+".url", "%v", err)
		}
	}
}

// openMCP opens the world. A server gets the values that its secrets have now.
func (c Config) openMCP(lookOnly bool) (activities.World, error) {
	config := mcpserver.Config{State: filepath.Join(c.State, "mcp"), Servers: map[string]mcpserver.Server{}, LookOnly: lookOnly}
	for name, s := range c.MCP.Servers {
		env := childenv.Minimal(s.Environment...)
		for variable, secret := range s.SecretEnvironment {
			if lookOnly {
				continue
			}
			value, err := secrets(c.Secrets).read(secret)
			if err != nil {
				return activities.World{}, fmt.Errorf("config: mcp.servers.%s.secretEnvironment.%s: %w", name, variable, err)
			}
			env[variable] = value
		}
		server := mcpserver.Server{Command: s.Command, URL: s.URL, Env: childenv.List(env)}
		if s.Token != "" && !lookOnly {
			var err error
			if server.Token, err = secrets(c.Secrets).read(s.Token); err != nil {
				return activities.World{}, fmt.Errorf("config: mcp.servers.%s.token: %w", name, err)
			}
		}
		if s.Declarations != "" {
			declared, err := mcpserver.ReadDeclarations(s.Declarations)
			if err != nil {
				return activities.World{}, fmt.Errorf("config: mcp.servers.%s: %w", name, err)
			}
			server.Declarations = declared
		}
		config.Servers[name] = server
	}
	return mcpserver.New(config)
}
