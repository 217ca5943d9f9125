// Package oidctest runs an OpenID Connect provider for tests.
package oidctest

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/testrun"
)

// User is whom the provider knows.
type User struct {
	Username, Password, Email string
	EmailVerified             bool
}

// The client that the provider knows.
const (
	Client = "unwind"
	Secret = "secret"
)

// Start starts a provider that sends persons back to redirect, until the test ends, and returns its
// issuer. Users and the groups of each are by id.
func Start(t testing.TB, redirect string, users map[string]User, groups map[string][]string) (issuer string) {
	t.Helper()
	here, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/seed-62bf7108/unwind/starter/oidc").Output()
	require.NoError(t, err)
	config, err := json.Marshal(map[string]any{"redirect": redirect, "users": withIDs(users), "groups": groups})
	require.NoError(t, err)
	return testrun.StartModule(t, filepath.Join(strings.TrimSpace(string(here)), "testprovider"), string(config))
}

// withIDs is what the provider reads.
func withIDs(users map[string]User) map[string]any {
	all := map[string]any{}
	for id, u := range users {
		all[id] = struct {
			User

			ID string
		}{u, id}
	}
	return all
}
