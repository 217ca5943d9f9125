package host_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/mcpserver"
	"github.com/seed-62bf7108/unwind/activities/mcpserver/mcptest"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// A task calls tools of a server that it reads, changes and cannot take back; it fails, and what it
// has changed comes back.
func TestToolsOfAnMCPServerAreTakenBack(t *testing.T) {
	folder := t.TempDir()
	command, env, err := mcptest.Start(folder)
	require.NoError(t, err)
	require.NoError(t, mcptest.Put(folder, mcptest.Note{ID: "there", Title: "note there", Body: "old"}))
	declarations := filepath.Join(t.TempDir(), "notes.yaml")
	require.NoError(t, os.WriteFile(declarations, []byte(mcptest.Declarations), 0o600))
	s := serve(t,
		host.Config{Worlds: []activities.Settings{&mcpserver.Settings{Servers: map[string]mcpserver.ServerSettings{
			"notes": {Command: "export " + env[0] + "; " + command, Declarations: declarations},
		}}}}, host.Options{})
	before, err := mcptest.Manifest(folder)
	require.NoError(t, err)

	type fields = map[string]any
	use := func(id, action, tool string, arguments fields, more ...fields) fields {
		step := fields{"id": id, "uses": action, "with": fields{"server": "notes", "tool": tool, "arguments": arguments}}
		for _, each := range more {
			maps.Copy(step, each)
		}
		return step
	}
	_, err = s.end(s.start(fields{"name": "notes", "steps": []any{
		use("read", "mcp.read", "get_note", fields{"id": "there"}),
		use("put", "mcp.call", "put_note", fields{"id": "there", "body": "${{ steps.read.outputs.text }} and new"}),
		use("create", "mcp.call", "create_note", fields{"title": "plan", "body": "one"}),
		use("wrong", "mcp.call", "put_note", fields{"id": "other", "body": "x"},
			fields{"check": []any{fields{"json": fields{"at": "/data/body", "equals": "y"}}}}),
		use("mail", "mcp.call.irreversible", "send_mail", fields{"text": "never"}),
	}}))
	require.ErrorContains(t, err, "check 1 (json, live)")
	report, has := compensations.ReportOf(err)
	require.True(t, has)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, map[string]int{"restored": 3, "nothing-to-undo": 1}, report.Outcomes)
	after, err := mcptest.Manifest(folder)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestAConfigOfMCPServersIsChecked(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"mcp: {}": "worker.yaml:1: mcp.servers: name at least one server",
		"mcp: {servers: {a: {}}}": "mcp.servers.a.command: give the command line that starts the server, or url, and " +
			"not both",
		"mcp: {servers: {a: {command: x, url: https://h/mcp}}}": "mcp.servers.a.command: give the " +
			"command line that starts the server, or url, and not both",
		"mcp: {servers: {a: {command: x, token: K}}}": "mcp.servers.a.token: it is for url",
		"mcp: {servers: {a: {url: h/mcp}}}": "mcp.servers.a.url: give an address " +
			"as in https://host/path",
		"mcp: {servers: {a: {url: https://h/mcp, " +
			"token: K}}}": `mcp.servers.a.token: "K" is not one of secrets`,
		"mcp: {servers: {a: {url: https://h/mcp, environment: [PATH]}}}": "mcp.servers.a.environment: a server " +
			"that is reached by url gets none from here",
		"secrets: {K: env:K}\nmcp: {servers: {a: {url: http://h/mcp, token: K}}}": "mcp.servers.a.url: the secret would " +
			"go to h in the clear; use https",
		"mcp: {servers: {a.b: {command: x}}}": `mcp.servers: "a.b" must be a name of letters, digits, dashes and underscores`,
		"mcp: {servers: {a: {command: x, " +
			"declarations: y}}}": `mcp.servers.a.declarations: "y" must be an absolute path`,
		"mcp: {servers: {a: {command: x, environment: [UNWIND_NOWHERE]}}}": "mcp.servers.a.environment: the " +
			"worker's environment has no UNWIND_NOWHERE",
		"mcp: {servers: {a: {command: x, secretEnvironment: " +
			"{KEY: K}}}}": `mcp.servers.a.secretEnvironment.KEY: "K" is not one of secrets`,
	} {
		c, err := readConfig(t, content+"\nhost: here\nstate: /nowhere\n")
		require.NoError(t, err, content)
		c, err = c.WithDefaults()
		require.NoError(t, err)
		require.ErrorContains(t, c.Validate(), want, content)
	}
	for _, server := range []string{"command: x, secretEnvironment: {KEY: K}", "url: https://h/mcp, token: K"} {
		c, err := readConfig(t, "secrets: {K: env:K}\nmcp: {servers: {a: {"+server+"}}}\nhost: here\nstate: /nowhere\n")
		require.NoError(t, err)
		c, err = c.WithDefaults()
		require.NoError(t, err)
		require.NoError(t, c.Validate())
		require.NotContains(t, c.TaskSecrets(), "K", "no task can name what the worker hands to a server")
	}
}
