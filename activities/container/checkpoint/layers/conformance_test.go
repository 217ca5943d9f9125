package layers_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint/checkpointtest"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/enginetest"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestMain(m *testing.M) {
	container.Attend()
	if job := os.Getenv(workerEnv); job != "" {
		actAsWorker(job)
	}
	containertest.Main(m, layering())
}

func TestBackend(t *testing.T) {
	t.Parallel()
	checkpointtest.Run(t, checkpointtest.Subject{Layers: true})
}

// own is the engine with overlay2; nil while the one at hand is tested.
var own *enginetest.Engine

// TestLayers runs the suite on one of the two engines, which is drawn; a deep run takes both.
func TestLayers(t *testing.T) {
	t.Parallel()
	testrun.NeedRoot(t, "layers over containers")
	for _, engine := range testrun.Draw(t, onOneAtHand, onOverlay2) {
		engine(t)
	}
}

func onOneAtHand(t *testing.T) {
	containertest.Docker(t)
	t.Run("at hand", func(t *testing.T) { actiontest.Run(t, layering()) })
}

func onOverlay2(t *testing.T) {
	own = enginetest.Start(t)
	containertest.Prepare(t, own)
	t.Run("overlay2", func(t *testing.T) { actiontest.Run(t, layering()) }) // the engine outlives the parallel tests in it
	own = nil
}

func layering() actiontest.Case {
	c := checkpointtest.Exec("container.exec in layers")
	c.Start, c.Open = start, open
	c.Checks = append(c.Checks,
		activities.Check{Command: &activities.CommandCheck{Run: []string{"sh", "-c", "pwd >/tmp/check"}}})
	c.Manifest = func(t testing.TB, dir string) string { return containertest.Shows(t, in(t, dir)) }
	c.Drift = func(t testing.TB, dir string) { in(t, dir).Run(t, "echo drift >>/srv/drift") }
	c.Meanwhile = func(t testing.TB, dir string) { in(t, dir).Run(t, "echo meanwhile >/srv/b") }
	c.Undone, c.Reset = activities.Restored, containertest.AsTheImage
	return c
}

// start starts a container on the engine of the case, whose address stands in a file, too.
func start(t testing.TB, dir string) {
	var b *containertest.Box
	host := ""
	if own == nil {
		b = containertest.Start(t)
	} else {
		b, host = containertest.StartOn(t, own), own.Host
	}
	t.Cleanup(func() { // after the worlds of the case
		if own == nil {
			containertest.RemoveLayers(t, dir)
		}
	})
	b.Run(t, "mkdir -p /srv; echo one >/srv/a; mkdir /srv/d; echo x >/srv/d/x")
	for file, content := range map[string]string{"name": b.Name, "host": host} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
	}
}

func open(dir string) (activities.World, error) {
	host, err := os.ReadFile(filepath.Join(dir, "host"))
	if err != nil {
		return activities.World{}, err
	}
	return container.New(container.Config{State: dir, Host: string(host), Layers: container.LayersRequire})
}

func in(t testing.TB, dir string) *containertest.Box {
	t.Helper()
	var c *client.Client
	if own == nil {
		c = containertest.Docker(t)
	} else {
		c = own.Client(t)
	}
	return &containertest.Box{Client: c, Name: containertest.NameIn(dir)}
}
