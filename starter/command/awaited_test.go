package command

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// TestWhatWaitsForAHostThatNobodyServesSaysSo: before the first step, while its host is asked about
// it, and when the step is to run.
func TestWhatWaitsForAHostThatNobodyServesSaysSo(t *testing.T) {
	d := newDesk(t)
	root := t.TempDir()
	serve := func(name string) (stop func()) {
		d.worker = nil
		d.startWorker(func(c *host.Config) { *c = c.With(&file.Settings{Roots: []string{root}}); c.Host = name })
		return d.worker.Stop
	}
	d.stopWorker()
	t.Cleanup(serve("here"))
	file := d.file(fmt.Sprintf(`name: elsewhere
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x}, gate: ask}
  - {id: two, uses: file.write, on: away, with: {path: %[1]s, content: x}}
`, filepath.Join(root, "two")))

	unserved := file +
		`:4:37: steps.two.on: no worker serves this host, found "away"; start one there, or name another host; there are workers on here`
	for _, command := range []string{"validate", "plan"} {
		r := d.do(command, file)
		require.Equal(t, typed{statusUsage, "", unserved + "\n"}, r)
	}
	const waits = "waits for a worker of host away"
	began := d.do("run", file, "--id", t.Name(), "--agent", t.Name())
	require.Equal(t,
		typed{statusOK, began.out, "started, but waiting: it needs a worker of host away; there are workers on here\n"},
		began)
	var asJSON startedJSON
	require.NoError(t, json.Unmarshal([]byte(d.ok("run", file, "--id", t.Name()+"-json", "-o", "json")), &asJSON))
	require.Equal(t, []string{"away"}, asJSON.AwaitedHosts)
	d.ok("cancel", t.Name()+"-json")
	require.Contains(t, d.ok("show", t.Name()), " · "+waits+"\n")
	s := d.shown(t.Name())
	require.Equal(t, protocol.Compiling, s.Phase)
	require.Equal(t, []string{"away"}, s.AwaitedHosts)
	watched := d.begin("watch", t.Name(), "--wait")
	d.prints(watched, "  "+waits+"\n")
	require.Eventually(t, func() bool {
		var found []tasks.Listed
		require.NoError(t, json.Unmarshal([]byte(d.ok("list", "--agent", t.Name(), "-o", "json")), &found))
		return len(found) == 1 && len(found[0].AwaitedHosts) == 1
	}, waitFor, tick, "visibility follows")
	require.Contains(t, d.ok("list", "--agent", t.Name()), "  worker of host aw")

	stop := serve("away")
	d.until(t.Name(), atGate)
	require.Empty(t, d.shown(t.Name()).AwaitedHosts)
	require.Contains(t, d.ok("validate", file), "is valid")
	stop()
	d.ok("approve", t.Name(), "one", "--yes")
	require.Eventually(t, func() bool { return len(d.shown(t.Name()).AwaitedHosts) > 0 }, waitFor, tick)
	require.Equal(t, "waiting for host away", d.shown(t.Name()).Steps[1].Waiting)
	shown := normal(d.ok("show", t.Name()))
	require.Contains(t, shown, " · forward, "+waits+"\n")
	require.Regexp(t, `(?m)^ ?two file.write running T waiting for host away$`, shown)

	t.Cleanup(serve("away"))
	require.Equal(t, statusOK, d.ended(watched).status)
	require.FileExists(t, filepath.Join(root, "two"))
}

// TestAStepThatNamesNoHostNeedsNoneOfThisMachine: the worker that checks the file says where such a
// step runs.
func TestAStepThatNamesNoHostNeedsNoneOfThisMachine(t *testing.T) {
	d := newLoneDesk(t)
	root := t.TempDir()
	d.stopWorker()
	d.startWorker(func(c *host.Config) { *c = c.With(&file.Settings{Roots: []string{root}}) })
	t.Setenv("UNWIND_HOST", "my-laptop")
	steps := "name: anywhere\nsteps:\n  - {id: one, uses: file.write, with: {path: " + filepath.Join(root, "one") +
		", content: x}}\n"
	require.Contains(t, d.ok("validate", d.file(steps)), "is valid")
	there := d.do("validate", d.file(strings.Replace(steps, "with:", "on: my-laptop, with:", 1)))
	require.Equal(t, statusUsage, there.status)
	require.Contains(t, there.err,
		`no worker serves this host, found "my-laptop"; start one there, or name another host; there are workers on here`)

	grouped := d.file("name: anywhere\nsteps:\n  - id: g\n    for_each: [here, my-laptop]\n    steps:\n" +
		"      - {id: one, uses: file.write, on: \"${{ target }}\", with: {path: " + filepath.Join(root, "one") + ", content: x}}\n")
	require.Equal(t, typed{statusUsage, "", grouped + ":6:41: steps.g-my-laptop-one.on: " +
		`no worker serves this host, found "my-laptop"; start one there, or name another host; there are workers on here` + "\n"},
		d.do("validate", grouped), "only of the target whose host nobody serves")
}
