package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/examples"
	"github.com/seed-62bf7108/unwind/starter/local"
	"github.com/seed-62bf7108/unwind/testrun"
)

// theater is where a test has demos played, and looks at what they leave.
type theater struct{ *desk }

// newTheater skips the test on a machine that lacks a part, or fails it where nothing may be
// skipped.
func newTheater(t *testing.T) theater {
	t.Helper()
	th := theater{&desk{T: t, world: newFakeWorld()}}
	lacks := ""
	if _, err := exec.LookPath("terraform"); err != nil {
		lacks = "no terraform on PATH"
	}
	engine := th.engine()
	if _, err := engine.Ping(t.Context()); err != nil {
		lacks = "no Docker engine answers: " + err.Error()
	}
	if lacks != "" {
		testrun.Skipf(t, "the whole demo is not tested: %s", lacks)
	}
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("TEMPORAL_ADDRESS", servertest.Shared(t).Address)
	return th
}

func (th theater) engine() *client.Client {
	engine, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	require.NoError(th, err)
	th.Cleanup(func() { _ = engine.Close() })
	return engine
}

var stageFolder = regexp.MustCompile(`its input is in (\S+)`)

// input is the folder that a demo works in, which also names its container and its image.
func (th theater) input(out string) string {
	th.Helper()
	found := stageFolder.FindStringSubmatch(out)
	require.NotNil(th, found, out)
	return found[1]
}

// cleared makes sure that nothing of a demo is left: no folder, no container, no image.
func (th theater) cleared(out string) {
	th.Helper()
	require.NoDirExists(th, th.input(out))
	name, engine := filepath.Base(th.input(out)), th.engine()
	containers, err := engine.ContainerList(th.Context(), container.ListOptions{All: true})
	require.NoError(th, err)
	for _, c := range containers {
		require.NotContains(th, strings.Join(c.Names, " "), name)
	}
	images, err := engine.ImageList(th.Context(), image.ListOptions{All: true})
	require.NoError(th, err)
	for _, i := range images {
		require.NotContains(th, strings.Join(i.RepoTags, " "), name)
	}
}

func TestDemoPlaysTheMainJobAndFindsTheWorldAsBefore(t *testing.T) {
	th := newTheater(t)
	r := th.do("demo", "--exit")
	require.Equal(t, statusOK, r.status, r.out+r.err)
	th.cleared(r.out)
	id := regexp.MustCompile(`task (\S+), publish-release`).FindStringSubmatch(r.out)[1]
	told := 0
	for _, line := range []string{
		"configure        file.write               done:",
		"gate: step infrastructure waits for a person",
		`# terraform_data.marker["us"] will be created`,
		"1. starter approve " + id + " infrastructure",
		"2. temporal workflow signal --address " + servertest.Shared(t).Address + " --namespace default --workflow-id " + id +
			` --name approve --input '{"step":"infrastructure","digest":"sha256:`,
		"3. in the Temporal UI, on the page of the task",
		`--exit does not wait: the demo approves step infrastructure itself, with the signal "approve"`,
		"gate: step go-live waits for a person",
		"unwinding, last in first out: failed at step go-live",
		"plans            sqlite.exec              undo: restored: ",
		"/data/shop.db: 2 rows as before",
		"install          container.exec           undo: restored: the layers of ",
		"report of " + id,
		"total: 5 compensated, 4 restored",
		"independent check, against the world before the task:",
		" ✓  files      paths: 11, ",
		" ✓  container  ",
		" ✓  database   tables: 1, rows with all columns: 3",
		" ✓  terraform  resources with all attributes: 2, outputs: 1, effects on disk: 1",
		" ✓  stripe     live objects: 0, charges: 0, refunds: 0, mails: 0",
	} {
		at := strings.Index(r.out[told:], line)
		require.GreaterOrEqual(t, at, 0, "%q is not told, or too early:\n%s", line, r.out)
		told += at
	}
}

func TestDemosAtTheSameTimeDoNotMeet(t *testing.T) {
	th := newTheater(t)
	t.Setenv("TEMPORAL_ADDRESS", "")
	for _, r := range []*running{th.begin("demo", "--exit", "--example", "publish-rejected"),
		th.begin("demo", "--exit", "--example", "publish-canceled")} {
		e := th.ended(r)
		require.Equal(t, statusOK, e.status, e.out+e.err)
		require.Regexp(t, `the run in the Temporal UI: http://127\.0\.0\.1:\d+/namespaces/default/workflows/`, e.out)
		th.cleared(e.out)
	}
}

func TestADemoTakesTheNextDatabaseAndTellsItsAddressWhereAnotherServerRuns(t *testing.T) {
	th := newTheater(t)
	t.Setenv("TEMPORAL_ADDRESS", "")
	state, err := local.StateFolder()
	require.NoError(t, err)
	unlock, err := local.LockFolder(local.DemoFolder(state, 1))
	require.NoError(t, err)
	defer unlock()
	forget, err := local.DevFile{Address: servertest.Shared(t).Address}.Write(state)
	require.NoError(t, err)
	defer forget()

	r := th.do("demo", "--exit", "--example", "publish-rejected")
	require.Equal(t, statusOK, r.status, r.out+r.err)
	require.Regexp(t, `1\. TEMPORAL_ADDRESS=127\.0\.0\.1:\d+ starter approve `, r.out)
	require.NoFileExists(t, filepath.Join(local.DemoFolder(state, 1), "dev.db"))
	kept, err := os.Stat(filepath.Join(local.DemoFolder(state, 2), "dev.db"))
	require.NoError(t, err)

	r = th.do("demo", "--exit", "--example", "publish-rejected")
	require.Equal(t, statusOK, r.status, r.out+r.err)
	again, err := os.Stat(filepath.Join(local.DemoFolder(state, 2), "dev.db"))
	require.NoError(t, err)
	require.True(t, os.SameFile(kept, again), "the second demo goes on with the first one's database")
}

func TestDemoSaysWhatTheMachineLacksAndDoesTheRest(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", servertest.Shared(t).Address)
	t.Setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
	// A PATH with nothing on it but the program that an example's check runs.
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	bin := t.TempDir()
	require.NoError(t, os.Symlink(sleep, filepath.Join(bin, "sleep")))
	t.Setenv("PATH", bin)
	for _, e := range examples.All() {
		r := do(t.Context(), Options{}, "demo", "--exit", "--example", e.Name)
		require.Equal(t, statusOK, r.status, r.out+r.err)
		require.Contains(t, r.out, "left out: the steps of world container: no Docker engine answers")
		require.Contains(t, r.out, "left out: the steps of world terraform: there is no terraform on PATH")
		require.NotContains(t, r.out, "container.exec")
		require.NotContains(t, r.out, "terraform.apply")
		require.Contains(t, r.out, " ✓  files")
		require.Contains(t, r.out, " ✓  stripe")
		require.NotContains(t, r.out, " ✓  container")
	}
}
