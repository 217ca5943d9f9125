// Package oidc finds out who a person is from an OpenID Connect provider.
package oidc

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/usage"
)

// Config says which provider is believed, and what those whom it knows may do.
type Config struct {
	// Issuer is the provider, as its tokens name it: https://id.example.com.
	Issuer string `yaml:"issuer"`
	// Client is the id that the provider has for this server.
	Client string `yaml:"client"`
	// Secret is a file with the client's secret, beside the config if it is not absolute. Empty: the
	// provider asks for none, and the code of a sign-in is bound by PKCE alone, as it always is.
	Secret string `yaml:"secret"`
	// URL is where browsers find this server: https://unwind.example.com. The provider has to allow URL
	// with CallbackPath behind it.
	URL string `yaml:"url"`
	// Name is the claim that names a person in decisions; email, which has to be verified, by default.
	Name string `yaml:"name"`
	// Groups is the claim that lists a person's groups; groups by default.
	Groups string `yaml:"groups"`
	// Scopes are asked for beside openid; profile, email and groups by default.
	Scopes []string `yaml:"scopes"`
	// Roles are the groups that have a role. The highest one counts, and who has none is refused.
	Roles map[bearer.Role][]string `yaml:"roles"`

	secret string
}

// CallbackPath is where the provider sends persons back to.
const CallbackPath = "/signin/callback"

// emailClaim names a person by an address, of which verifiedClaim says that it is theirs.
const (
	emailClaim    = "email"
	verifiedClaim = "email_verified"
)

// Read reads the config of a provider. An empty name of a file is none: it returns nil.
func Read(file string) (*Config, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, usage.Errorf("--oidc: %w", err)
	}
	c := Config{Name: emailClaim, Groups: "groups", Scopes: []string{"profile", emailClaim, "groups"}}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	if err := decoder.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return nil, usage.Errorf("--oidc %s: %w", file, err)
	}
	if err := c.check(); err != nil {
		return nil, usage.Errorf("--oidc %s: %w", file, err)
	}
	if c.Secret == "" {
		return &c, nil
	}
	if !filepath.IsAbs(c.Secret) {
		c.Secret = filepath.Join(filepath.Dir(file), c.Secret)
	}
	secret, err := os.ReadFile(c.Secret)
	if err != nil {
		return nil, usage.Errorf("--oidc %s: secret: %w", file, err)
	}
	if c.secret = strings.TrimSpace(string(secret)); c.secret == "" {
		return nil, usage.Errorf("--oidc %s: secret: %s is empty", file, c.Secret)
	}
	return &c, nil
}

func (c Config) check() error {
	for _, field := range []struct{ name, value string }{
		{"issuer", c.Issuer}, {"client", c.Client}, {"url", c.URL}, {"name", c.Name}, {"groups", c.Groups},
	} {
		if field.value == "" {
			return usage.Errorf("%s: it is missing", field.name)
		}
	}
	if err := checkURL("issuer", c.Issuer); err != nil {
		return err
	}
	if err := checkURL("url", c.URL); err != nil {
		return err
	}
	named := 0
	for role, groups := range c.Roles {
		if !slices.Contains(bearer.Roles, role) {
			return usage.Errorf("roles: %q is no role: write %s", role, bearer.RoleNames())
		}
		named += len(groups)
	}
	if named == 0 {
		return usage.Errorf("roles: they name no group, so nobody could sign in; write a role and its groups, such as "+
			"%s: [sre]", bearer.Approver)
	}
	return nil
}

// checkURL refuses an address over which others could read or change what is sent.
func checkURL(field, address string) error {
	u, err := url.Parse(address)
	isLocal := err == nil && (u.Hostname() == "localhost" || u.Hostname() == "127.0.0.1" || u.Hostname() == "::1")
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" ||
		u.Scheme != "https" && (u.Scheme != "http" || !isLocal) {
		return usage.Errorf("%s: %q: write an address that begins with https://; only a loopback address may do with http://",
			field, address)
	}
	return nil
}

// roleOf is the highest role of a person's groups; empty if they have none.
func (c Config) roleOf(groups []string) (highest bearer.Role) {
	for _, role := range bearer.Roles {
		if slices.ContainsFunc(c.Roles[role], func(g string) bool { return slices.Contains(groups, g) }) {
			highest = role
		}
	}
	return highest
}
