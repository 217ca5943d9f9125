package command

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// validate, with a config or by asking, plan and run refuse the same, and cite the lines of the
// file.
func TestWhatCannotWorkIsRefusedAlikeByValidatePlanAndRun(t *testing.T) {
	d := newDesk(t)
	root := t.TempDir()
	config := filepath.Join(t.TempDir(), "worker.yaml")
	require.NoError(t,
		os.WriteFile(config, []byte("file:\n  roots: ["+root+"]\nstate: "+filepath.Join(root, "state")+"\n"), 0o600))
	path := d.file(fmt.Sprintf(`name: cannot work
steps:
  - id: one
    uses: file.write
    with: {path: %[1]s/one, content: x}
  - id: two
    uses: file.write
    with:
      content: "${{ steps.one.outputs.sha256 }}"
      path: /etc/unwind-test
  - id: three
    uses: file.write
    with: {path: %[1]s/three, content: x}
    check:
      - command: [rm, "{path}"]
`, root))
	want := fmt.Sprintf(
		`%[1]s:10:13: steps.two: path: "/etc/unwind-test" is outside the allowed roots; this worker allows %[2]s
%[1]s:15:18: steps.three: check[0].command: this worker does not allow "rm" in a check; checkCommands in its config allows none
`, path, root)

	byConfig := d.do("validate", path, "--config", config)
	require.Equal(t, typed{statusUsage, "", want}, withoutPrefix(byConfig))
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Empty(t, entries, "looking makes nothing")

	d.stopWorker()
	served := host.Config{State: t.TempDir(),
		Worlds: []activities.Settings{&file.Settings{Roots: []string{root}}}}.WithEnvironment(os.LookupEnv)
	served.Queue = d.queue
	w, err := host.Start(t.Context(), served,
		host.Options{Client: d.client, Namespace: "default", Worlds: []activities.World{d.world.world()}})
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	require.Equal(t, typed{statusUsage, "", want}, withoutPrefix(d.do("validate", path)))

	plan := d.do("plan", path)
	require.Equal(t, statusUsage, plan.status)
	require.Equal(t, want, withoutPrefix(plan).err)
	require.Contains(t, plan.out, "1. one  file.write  on host here\n  change    create ")
	require.Contains(t, plan.out,
		"  refused   will be refused, and the task with it: path: \"/etc/unwind-test\" is outside")

	run := d.do("run", path)
	require.Equal(t, statusUsage, run.status)
	require.Contains(t, run.err, "was refused: nothing was touched: Refused: "+want[:len(want)-1])
	require.NoFileExists(t, filepath.Join(root, "one"))
	watched := d.do("run", path, "--watch")
	require.Equal(t, statusUsage, watched.status)
	require.NotContains(t, watched.out+watched.err, "unwinding", "there is nothing to unwind")

	fine := d.file(
		fmt.Sprintf(
			"name: works\nsteps:\n  - {id: one, uses: file.write, with: {path: %[1]s/one, content: x}}\n  - {id: two, uses: "+
				"file.write, with: {path: %[1]s/two, content: '${{ steps.one.outputs.sha256 }}'}}\n", root))
	require.Equal(t,
		fine+`: task "works" is valid: 2 steps`+"\nchecked when earlier steps have run, as far as they depend on them: two\n",
		d.ok("validate", fine))
}

// withoutPrefix takes away what begins every error of the program.
func withoutPrefix(t typed) typed {
	const prefix = "starter: "
	if len(t.err) > len(prefix) && t.err[:len(prefix)] == prefix {
		t.err = t.err[len(prefix):]
	}
	return t
}
