package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// A worker that starts says all that will not work on its host, with what to do about it.
func TestAWorkerSaysWhatDoesNotWorkOnItsHost(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	t.Setenv("UNWIND_TEST_KEY", "sk_live_0123456789")
	written := filepath.Join(dir, "worker.yaml")
	require.NoError(t, os.WriteFile(written, []byte(`
host: h
state: `+dir+`/state
container: {engine: "unix:///nowhere.sock", layers: never}
terraform: {roots: [`+dir+`]}
secrets: {KEY: env:UNWIND_TEST_KEY, UNSET: env:UNWIND_TEST_UNSET, GONE: "file:/nowhere"}
stripe: {key: KEY, allowLive: true, url: "http://127.0.0.1:1"}
redis: {databases: {cache: {url: UNSET}}}
checkCommands: [jq, /nowhere/probe, "*"]
`), 0o600))
	c, err := ReadConfig(written)
	require.NoError(t, err)
	c, err = c.WithEnvironment(func(name string) (string, bool) {
		return dir + "/elsewhere",
			name == "UNWIND_STATE"
	}).WithDefaults()
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	worlds, err := c.openWorlds(recovery.Server{})
	require.NoError(t, err)

	notices := (&Worker{Registry: activities.NewRegistry(worlds...), Config: c}).Notices(t.Context())
	for _, want := range []string{
		`world container does not work now, and its steps are refused until it does: .* does not answer \(.*nowhere\.sock.*\); start it, or name another: container\.engine.*`,
		`there is no terraform on the worker's PATH: steps that use it are refused; install it, or name it in terraform\.binary`,
		`the Stripe key is a live one: steps move real money`,
		`world stripe does not work now, .*: no answer from Stripe.*`,
		`world redis does not work now, .*UNWIND_TEST_UNSET.*`,
		`secrets\.UNSET: the worker's environment has no UNWIND_TEST_UNSET; steps that use it are refused`,
		`secrets\.GONE: its file cannot be read: .*; steps that use it are refused`,
		`state: UNWIND_STATE moves it to .*/elsewhere, and the config says .*/state: the undo records there are not used, .*`,
		`checkCommands: jq is not on this host: checks that run it fail`,
		`checkCommands: /nowhere/probe is not on this host: checks that run it fail`,
	} {
		require.Regexp(t, "(?m)^"+want+"$", strings.Join(notices, "\n"))
	}
	require.NotContains(t, strings.Join(notices, "\n"), "checkCommands: *")
}
