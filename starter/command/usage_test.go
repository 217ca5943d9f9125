package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

const good = `name: set two
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x}}
  - {id: two, uses: fake.set, with: {key: b, value: y}}
`

func fakeOptions() Options { return Options{Worlds: (&desk{world: newFakeWorld()}).options().Worlds} }

func write(t *testing.T, text string) string {
	name := filepath.Join(t.TempDir(), "task.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestBadInputIsStatusTwoAndOneClearLineBeforeAnythingStarts(t *testing.T) {
	config := write(t, "hosts: x\n")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown command": {[]string{"rum"}, `unknown command "rum"`},
		"unknown flag":    {[]string{"list", "--colour"}, "unknown flag: --colour; see starter list --help"},
		"no argument":     {[]string{"watch"}, "starter watch takes ID, but got 0 arguments"},
		"one too few":     {[]string{"approve", "x"}, "starter approve takes ID and STEP, but got 1 argument"},
		"empty argument":  {[]string{"show", " "}, "ID is empty"},
		"too many":        {[]string{"list", "x"}, `starter list takes no argument, but got "x"`},
		"bad output":      {[]string{"show", "x", "-o", "xml"}, "give text or json"},
		"bad status":      {[]string{"list", "--status", "lost"}, `--status "lost": give one of open, committed`},
		"bad limit":       {[]string{"list", "--limit", "0"}, "--limit 0: give at least 1"},
		"limit of words": {[]string{"list", "--limit", "ten"},
			"starter: --limit \"ten\": give a whole number; see starter list --help\n"},
		"no duration": {[]string{"list", "--since", "5x"},
			"starter: --since \"5x\": give a time above zero, such as 90s, 30m or 24h; see starter list --help\n"},
		"no timeout": {[]string{"watch", "x", "--timeout", "soon"},
			"starter: --timeout \"soon\": give a time above zero, such as 90s"},
		"negative timeout":   {[]string{"watch", "x", "--timeout", "-5s"}, "--timeout \"-5s\": give a time above zero"},
		"neither yes nor no": {[]string{"list", "--parked=perhaps"}, "starter: --parked \"perhaps\": give true or false"},
		"no reason":          {[]string{"reject", "x", "y"}, "--why is missing"},
		"no decision":        {[]string{"resolve", "x", "y"}, `--do "": give one of retry, force, skip, accept, reset`},
		"two parts":          {[]string{"rollback", "x", "--to", "a", "--step", "b"}, "give --to or --step, not both"},
		"nothing to recover": {[]string{"recover"}, "starter recover takes ID, but got 0 arguments"},
		"nothing to redo":    {[]string{"redo", ""}, "ID is empty"},
		"no file":            {[]string{"run", "/nowhere/task.yaml"}, "no such file or directory; name an existing file"},
		"bad variable":       {[]string{"validate", write(t, good), "--var", "x"}, `--var "x": give name=value`},
		"unknown variable":   {[]string{"validate", write(t, good), "--var", "x=1"}, "vars.x: the task file has no such var"},
		"unknown action":     {[]string{"catalog", "fake.sett"}, `there is no action "fake.sett"; did you mean fake.set?`},
		"mcp: no wait":       {[]string{"mcp", "--wait", "0s"}, "--wait \"0s\": give a time above zero"},
		"mcp: no session":    {[]string{"mcp", "--session", write(t, good)}, "is no session: add session: {}"},
		"mcp: no file":       {[]string{"mcp", "--var", "a=b"}, "--var is for the file of --session"},
		"mcp: no port":       {[]string{"mcp", "--listen", "localhost"}, `--listen "localhost": give HOST:PORT`},
		"mcp: no token": {[]string{"mcp", "--listen", "0.0.0.0:0"},
			"--listen 0.0.0.0:0: others can reach it; give --token"},
		"mcp: bare token":  {[]string{"mcp", "--listen", ":0", "--token", "a-token-as-it-is"}, "not the token itself"},
		"mcp: empty token": {[]string{"mcp", "--listen", ":0", "--token", "env:NOT_SET_HERE"}, "it holds no token"},
		"mcp: token alone": {[]string{"mcp", "--token", "env:NOT_SET_HERE"}, "--token is for --listen"},
		"mcp: short key":   {[]string{"mcp", "--key", write(t, "short")}, "has 5 bytes; give at least 32 random ones"},
		"unknown config key": {[]string{"validate", write(t, good), "--config", config},
			":1: hosts: there is no such field; did you mean host?"},
	} {
		t.Run(name, func(t *testing.T) {
			r := do(t.Context(), fakeOptions(), c.args...)
			require.Equal(t, statusUsage, r.status, r.err)
			require.Empty(t, r.out)
			require.Contains(t, r.err, c.want)
		})
	}
}

func TestABadTaskFileIsToldByFileLineAndColumnAndNothingStarts(t *testing.T) {
	file := write(t, "name: bad\nsteps:\n  - id: one\n    uses: fake.set\n    with: {key: a, valeu: x}\n")
	for _, command := range []string{"validate", "run", "plan"} {
		r := do(t.Context(), fakeOptions(), command, file) // no server answers: the file comes first
		require.Equal(t, statusUsage, r.status)
		require.Empty(t, r.out)
		require.True(t, strings.HasPrefix(r.err, file+":5:"), r.err)
		require.Contains(t, r.err, "valeu")
	}
}

func TestValidateNamesTheValuesThatAParameterTakes(t *testing.T) {
	file := write(t,
		"name: bad\nsteps:\n  - id: one\n    uses: stripe.coupon.create\n    with: {percent_off: 5, duration: forevr}\n")
	r := do(t.Context(), fakeOptions(), "validate", file)
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, `duration: must be one of once, repeating, forever, found "forevr"; did you mean forever?`)
}

func TestValidateNeedsNoServer(t *testing.T) {
	file := write(t, good)
	r := do(t.Context(), fakeOptions(), "validate", file)
	require.Equal(t, statusOK, r.status)
	require.Empty(t, r.err)
	require.True(t,
		strings.HasPrefix(r.out,
			file+`: task "set two" is valid: 2 steps`+
				"\npaths, programs, containers and secrets were not checked: no Temporal server answers at 127.0.0.1:1"), r.out)
}

func TestNoServerIsNamedWithTheWayOut(t *testing.T) {
	r := do(t.Context(), fakeOptions(), "list")
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.err,
		"no Temporal server answers at 127.0.0.1:1 (named by TEMPORAL_ADDRESS or the profile of the temporal CLI)")
	require.Contains(t, r.err, "start one with `starter dev`, or set TEMPORAL_ADDRESS")
}

func TestEveryCommandHasHelpWithExamplesAndExitStatuses(t *testing.T) {
	root := (&program{worker: thisMachine}).rootCommand()
	for _, c := range append(root.Commands(), root) {
		require.NotEmpty(t, c.Short, c.Name())
		require.Contains(t, c.Long, exitStatuses, c.Name())
		require.NotEmpty(t, c.Example, c.Name())
		r := do(t.Context(), Options{}, strings.Fields(strings.TrimPrefix(c.CommandPath()+" --help", "starter"))...)
		require.Equal(t, statusOK, r.status)
		require.Contains(t, r.out, "Usage:")
	}
}

func TestShellCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		r := do(t.Context(), Options{}, "completion", shell)
		require.Equal(t, statusOK, r.status)
		require.Contains(t, r.out, "starter")
	}
	for line, want := range map[string]string{
		"resolve x y --do ": "retry\nforce\nskip\naccept\nreset\n", "list --status com": "committed\n",
		"show x -o ":     "text\njson\n",
		"catalog fake.s": "fake.set\n",
	} {
		args := strings.Split(line, " ")
		r := do(t.Context(), fakeOptions(), append([]string{cobra.ShellCompRequestCmd}, args...)...)
		require.Equal(t, statusOK, r.status)
		require.Contains(t, r.out, want)
	}
}

func TestCatalogShowsActionsAndTheirParameters(t *testing.T) {
	r := do(t.Context(), fakeOptions(), "catalog")
	require.Equal(t, statusOK, r.status)
	require.Contains(t, normal(r.out), "fake.set low snapshot Sets a value in memory\n")

	r = do(t.Context(), fakeOptions(), "catalog", "fake.set")
	require.Equal(t, `fake.set
  Sets a value in memory

  risk  low
  undo  snapshot: puts the old value back

with:
  key    string   required  which one
  value  string   required  its new content
  fail   boolean  optional  fail after the change

outputs:
  before  what the value was
`, r.out)

	r = do(t.Context(), fakeOptions(), "catalog", "fake.set", "-o", "json")
	require.Contains(t, r.out, `"name": "fake.set"`)
}

func TestSchemaKnowsTheActions(t *testing.T) {
	r := do(t.Context(), fakeOptions(), "schema")
	require.Equal(t, statusOK, r.status)
	require.Contains(t, r.out, `"fake.set"`)
}
