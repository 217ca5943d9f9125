package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/redis"
	"github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/worker/host"
)

func readConfig(t *testing.T, content string) (host.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "worker.yaml")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return host.ReadConfig(file)
}

func TestLayersAreAutoNeverOrRequire(t *testing.T) {
	t.Parallel()
	for _, mode := range []container.LayersMode{"", container.LayersAuto, container.LayersNever, container.LayersRequire} {
		c, err := readConfig(t, "container: {layers: "+string(mode)+"}\nhost: here\nstate: /nowhere\n")
		require.NoError(t, err)
		require.Equal(t, mode, host.SettingsOf[*container.Settings](c).Layers)
		c, err = c.WithDefaults()
		require.NoError(t, err)
		require.NoError(t, c.Validate())
	}
	c, err := readConfig(t, "container: {layers: always}\nhost: here\nstate: /nowhere\n")
	require.NoError(t, err)
	c, err = c.WithDefaults()
	require.NoError(t, err)
	require.ErrorContains(t, c.Validate(), `worker.yaml:1: container.layers: "always" must be auto, never or require`)
}

// What is wrong with a config file is reported by line and field, all at once, and in no terms of
// Go.
func TestAConfigFileIsToldByLineAndField(t *testing.T) {
	t.Parallel()
	for content, want := range map[string][]string{
		"file:\n  root: [/srv]\n": {"worker.yaml:2: file.root: there is no such field; did you mean roots?"},
		"files: {}\nconteiner: {}\n": {"worker.yaml:1: files: there is no such field; did you mean file?",
			"worker.yaml:2: conteiner: there is no such field; did you mean container?"},
		"activities: many\n": {`worker.yaml:1: activities: must be a whole number, found "many"`},
		"stopTimeout: soon\n": {
			`worker.yaml:1: stopTimeout: must be a time, such as 30s, 5m or 2h, found "soon"`},
		"stopTimeout: 30\n": {
			"worker.yaml:1: stopTimeout: must be a time, such as 30s, 5m or 2h, found 30"},
		"file: {roots: /srv}\n": {
			`worker.yaml:1: file.roots: must be a list of texts, as in [a, b], found "/srv"`},
		"file: [a]\n":                            {"worker.yaml:1: file: must be a map of fields, found a list"},
		"secrets: [A]\n":                         {"worker.yaml:1: secrets: must be a map from names to texts, found a list"},
		"stripe: {key: A, allowLive: perhaps}\n": {`worker.yaml:1: stripe.allowLive: must be true or false, found "perhaps"`},
		"container:\n": {
			"worker.yaml:1: container: has no value, so it would not be served; write container: {}, or leave it out"},
		"host: a\nhost: b\n": {"worker.yaml:2: host: stands here a second time; the first is in line 1"},
		"file:\n\troots: [/srv]\n": {
			"worker.yaml:2: is not YAML: a tab stands in the indentation; indent with spaces"},
		"a: b: c\n": {
			"worker.yaml:1: is not YAML: mapping values are not allowed in this context"},
		"- a\n": {"worker.yaml:1: must be a map of fields, found a list"},
		"secretActions: {A: file.write}\nretention: {bytes: x}": {
			`worker.yaml:1: secretActions.A: must be a list of texts, as in [a, b], found "file.write"`,
			"worker.yaml:2: retention.bytes: must be a whole number"},
		"postgres:\n  databases:\n    shop: {dsn: A, deni: [public.card]}\n": {
			"worker.yaml:3: postgres.databases.shop.deni: there is no such field; did you mean deny?"},
		"mcp: {servers: {a: {command: [b, c]}}}\n": {
			"worker.yaml:1: mcp.servers.a.command: must be text, found a list"},
		"redis: {databases: {\"c\": x}}\n": {
			`worker.yaml:1: redis.databases.c: must be a map of fields, found "x"`},
		"redis: {databases: [c]}\n": {
			"worker.yaml:1: redis.databases: must be a map from names to maps of fields, found a list"},
		"file:\n  roots:\n    - /srv\n    - [/etc]\n": {
			"worker.yaml:4: file.roots[1]: must be text, found a list"},
		"secrets:\n  A: env:A\n  A: env:B\n": {
			"worker.yaml:3: secrets.A: stands here a second time; the first is in line 2"},
		"host: a\n---\nhost: b\n": {
			"worker.yaml:2: a second document begins here"},
	} {
		_, err := readConfig(t, content)
		for _, each := range want {
			require.ErrorContains(t, err, each, content)
		}
		require.NotRegexp(t, `host\.Config|\bint\b|unmarshal|time\.Duration`, err.Error(), content)
	}
	c, err := readConfig(t, "")
	require.NoError(t, err)
	require.Empty(t, c.Worlds)

	c, err = readConfig(t,
		"file: {roots: &roots [/a, /b]}\nsqlite: {roots: *roots}\nredis: {databases: {c: {url: A, allow: [x]}}}\n")
	require.NoError(t, err)
	require.Equal(t, []string{"/a", "/b"}, host.SettingsOf[*sqlite.Settings](c).Roots)
	require.Equal(t, map[string]redis.DatabaseSettings{"c": {URL: "A", Allow: []string{"x"}}},
		host.SettingsOf[*redis.Settings](c).Databases)

	c, err = readConfig(t, "host: here\ncutDiffs: show\n")
	require.NoError(t, err)
	require.ErrorContains(t, c.Validate(), `worker.yaml:2: cutDiffs: "show" must be ask or refuse`)

	c, err = readConfig(t, "host: here\ncheckAddresses: ['*', here, 'here:80', '[::1]:80', '::1', 'http://here', '[::1]']\n")
	require.NoError(t, err)
	err = c.Validate()
	require.ErrorContains(t, err, `worker.yaml:2: checkAddresses: "http://here" must be a host`)
	require.ErrorContains(t, err, `worker.yaml:2: checkAddresses: "[::1]" must be a host`)
	require.Equal(t, 2, strings.Count(err.Error(), "checkAddresses"))

	c, err = readConfig(t, "state: /here\nheartbeat: 1s\ncutDiffs: ask\nschedules: 'on'\nhost: here\nqueue: x@here\n")
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	c.Host = "there"
	require.ErrorContains(t, c.Validate(),
		`worker.yaml:6: queue: "x@here" is the queue of host "here" alone, and this is "there"`)

	// A value that does not come from the file is not looked for there.
	c, err = readConfig(t, "state: /here\nhost: here\nheartbeat: 1ms\nsecrets:\n  A: env:A\n  B: B\nschedules: 'on'\n")
	require.NoError(t, err)
	c = c.WithEnvironment(func(name string) (string, bool) { return "x y", name == "UNWIND_HOST" })
	err = c.Validate()
	require.ErrorContains(t, err, `config: host: "x y"`)
	require.ErrorContains(t, err, "worker.yaml:3: heartbeat: 1ms is too short")
	require.ErrorContains(t, err, "worker.yaml:6: secrets.B: ")
}
