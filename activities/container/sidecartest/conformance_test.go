package sidecartest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

func TestMain(m *testing.M) {
	container.Attend()
	if job := os.Getenv(workerEnv); job != "" {
		actAsWorker(job)
	}
	code := actiontest.Main(m, layering)
	for _, done := range []func() error{containertest.RemoveImages, Done} {
		if err := done(); err != nil {
			panic(err)
		}
	}
	os.Exit(code)
}

func TestLayersBySidecar(t *testing.T) {
	containertest.NeedsRoot(t, "layers over containers")
	containertest.Docker(t)
	actiontest.Run(t, layering)
}

var layering = actiontest.Case{
	Name:   "container.exec by sidecar",
	Action: "container.exec",
	Start: func(t testing.TB, dir string) {
		containertest.StartIn(t, dir, map[string]string{"a": "one\n", "d/x": "x\n"})
		require.NoError(t, os.WriteFile(filepath.Join(dir, "program"), []byte(Program(t)), 0o600))
		t.Cleanup(func() { RemoveOf(t, dial(t), dir) })
	},
	Open: func(dir string) (activities.World, error) {
		program, err := os.ReadFile(filepath.Join(dir, "program"))
		if err != nil {
			return activities.World{}, err
		}
		return container.New(container.Config{State: dir, Overlay: true, Sidecar: true, Helper: string(program)})
	},
	With: func(dir string) any {
		return map[string]any{
			"container": containertest.NameIn(dir), "command": "echo two >/srv/a; rm -r /srv/d; touch /srv/new; echo canary-4711-secret",
		}
	},
	Next: func(dir string) any {
		return map[string]any{"container": containertest.NameIn(dir), "command": "echo next >>/srv/a"}
	},
	Manifest: func(t testing.TB, dir string) string { return containertest.Shows(t, box(t, dir)) },
	Drift:    func(t testing.TB, dir string) { box(t, dir).Run(t, "echo drift >>/srv/drift") },
	Undone:   activities.Restored,
	Reset:    containertest.AsTheImage,
	Secret:   "canary-4711-secret",
	Sample:   1,
	Brief:    true,
}

// dial is a client for a Cleanup.
func dial(t testing.TB) *client.Client { return containertest.Docker(containertest.Outliving(t)) }

func box(t testing.TB, dir string) *containertest.Box {
	t.Helper()
	return &containertest.Box{Client: containertest.Docker(t), Name: containertest.NameIn(dir)}
}
