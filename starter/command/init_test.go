package command

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// startProject starts a dev with the config that init has written, on the desk's server.
func startProject(t *testing.T, d *desk, folder, state string) {
	t.Helper()
	d.stopWorker()
	t.Setenv("UNWIND_STATE", state)
	dev := startDev(t, d, "--config", filepath.Join(folder, "worker.yaml"))
	d.silence = waitFor // it has a worker, which answers when the machine lets it
	t.Cleanup(func() {
		dev.stop()
		require.Equal(t, statusOK, d.ended(dev).status)
	})
}

func TestInitWritesATaskThatWorksWithoutAnEngineAndTerraform(t *testing.T) {
	d := newLoneDesk(t)
	t.Setenv("PATH", t.TempDir())
	t.Setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
	folder := filepath.Join(t.TempDir(), `with "quotes", ${{ and spaces`)
	out := d.ok("init", folder)
	require.Contains(t, out, "no Terraform: there is no terraform on PATH")
	require.Contains(t, out, "no containers: ")
	require.NoFileExists(t, filepath.Join(folder, "infra", "main.tf"))

	startProject(t, d, folder, t.TempDir())
	out = d.ok("run", filepath.Join(folder, "first-task.yaml"), "--id", "first-bare", "--watch")
	require.Contains(t, out, "committed: every step is done and stays")
	require.FileExists(t, filepath.Join(folder, "site", "hello.json"))
	d.ok("rollback", "first-bare", "--watch")
	require.NoFileExists(t, filepath.Join(folder, "site", "hello.json"))
}

func TestInitUsesWhatThisMachineHas(t *testing.T) {
	testrun.NeedProgram(t, "terraform", "install it: https://developer.hashicorp.com/terraform/install")
	box := containertest.Start(t)
	d := newLoneDesk(t)
	folder, state := t.TempDir(), t.TempDir()
	d.ok("init", folder, "--container", box.Name)
	t.Cleanup(func() { containertest.RemoveLayers(t, state) })
	startProject(t, d, folder, state)
	r := d.do("run", filepath.Join(folder, "first-task.yaml"), "--id", "first-full", "--watch")
	require.Equal(t, statusNeedsPerson, r.status, r.out+r.err)
	d.ok("approve", "first-full", "infrastructure", "--yes")
	require.Contains(t, d.ok("watch", "first-full"), "committed: every step is done and stays")
	require.True(t, box.Has(t, "/unwind-first-task"))
	require.FileExists(t, filepath.Join(folder, "infra", "terraform.tfstate"))
}

func TestWhatInitCommentsOutIsValidOnceUncommented(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
	folder := t.TempDir()
	require.Equal(t, statusOK, do(t.Context(), Options{}, "init", folder).status)
	require.NoError(t, os.Mkdir(filepath.Join(folder, "infra"), 0o700))
	name := filepath.Join(folder, "worker.yaml")
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	all := regexp.MustCompile(`(?m)^# ((?:  )*\w+:( |$))`).ReplaceAllString(string(content), "$1")
	require.NoError(t, os.WriteFile(name, []byte(all), 0o600))
	c, err := host.ReadConfig(name)
	require.NoError(t, err, all)
	c, err = c.WithDefaults()
	require.NoError(t, err)
	require.NoError(t, c.Validate(), all)
	var opened []string
	for _, s := range c.Worlds {
		opened = append(opened, s.World())
	}
	require.Subset(t, opened, host.WorldNames())
}

func TestInitOverwritesNothing(t *testing.T) {
	folder := t.TempDir()
	task := filepath.Join(folder, "first-task.yaml")
	require.NoError(t, os.WriteFile(task, []byte("mine"), 0o600))
	r := do(t.Context(), Options{}, "init", folder)
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, task+" exists already, and init overwrites nothing")
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 1)

	r = do(t.Context(), Options{}, "init", filepath.Join(task, "below"))
	require.Equal(t, statusUsage, r.status)
	r = do(t.Context(), Options{}, "init", "a", "b")
	require.Equal(t, statusUsage, r.status)
	t.Setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
	r = do(t.Context(), Options{}, "init", t.TempDir(), "--container", "web")
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, "--container web: ")
}

func TestDevEmulatesStripeAndSaysSo(t *testing.T) {
	d := newLoneDesk(t)
	d.stopWorker()
	t.Setenv("UNWIND_STATE", t.TempDir())
	dev := startDev(t, d, "--stripe-emulator")
	require.Contains(t, dev.out.String(), "Stripe    an emulator at http://127.0.0.1:")
	file := d.file(`
name: a customer
steps:
  - id: customer
    uses: stripe.customer.create
    with: {name: Ada Lovelace}
`)
	require.Contains(t, d.ok("plan", file), ", not to Stripe")
	d.ok("run", file, "--id", "emulated", "--watch")
	require.Contains(t, d.ok("show", "emulated", "customer"), "cus_emulator")
	dev.stop()
	require.Equal(t, statusOK, d.ended(dev).status)

	// The next emulator knows nothing of the customer: it does not say that there is nothing to undo.
	dev = startDev(t, d, "--stripe-emulator")
	rollback := d.begin("rollback", "emulated", "--watch")
	require.Eventually(t, func() bool { return strings.Contains(d.do("list", "--parked").out, "emulated") }, devLimit,
		tick)
	rollback.stop()
	d.ended(rollback)
	dev.stop()
	require.Equal(t, statusOK, d.ended(dev).status)
}

func TestDevWithTwoStripesIsRefused(t *testing.T) {
	config := filepath.Join(t.TempDir(), "worker.yaml")
	require.NoError(t, os.WriteFile(config, []byte("secrets: {KEY: env:KEY}\nstripe: {key: KEY}\n"), 0o600))
	r := do(t.Context(), Options{}, "dev", "--config", config, "--stripe-emulator")
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, "--stripe-emulator: the config has a Stripe account already")
}
