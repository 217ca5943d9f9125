package checkpointtest

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/demoimage"
	"github.com/seed-62bf7108/unwind/activities/docker/enginetest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// Subject is a backend under test.
type Subject struct {
	// Layers says that checkpoints are layers, else they are by docker commit.
	Layers bool
}

// Run tests that container.exec with a backend does what plans and reports say of it, on one of two
// engines, which is drawn; a deep run takes both. Exec is the case for the conformance suite of
// actions, which goes through all crash points.
func Run(t *testing.T, s Subject) {
	testrun.NeedRoot(t, "layers over containers")
	on := newEngines(t)
	t.Run("contract", func(t *testing.T) { on.each(t, s.testContract) })
	if !s.Layers {
		t.Run("seen", func(t *testing.T) { on.each(t, s.testSeen) })
	}
	t.Run("losses", func(t *testing.T) { on.each(t, s.testLosses) })
	t.Run("late times", func(t *testing.T) { on.each(t, s.testLateTimes) })
	t.Run("server", func(t *testing.T) {
		tree := nginx(t)
		on.each(t, func(t *testing.T, on setting) { s.testServer(t, on, tree) })
	})
}

// Exec is the case of a step that changes what is in the container. The backend adds how its
// containers are started, looked at and undone.
func Exec(name string) actiontest.Case {
	return actiontest.Case{
		Name:   name,
		Action: "container.exec",
		With: func(dir string) any {
			return map[string]any{
				"container": containertest.NameIn(dir),
				"command":   "echo two >/srv/a; rm -r /srv/d; touch /srv/new; /bin/sleep 600 & echo canary-4711-secret",
			}
		},
		Next: func(dir string) any {
			return map[string]any{"container": containertest.NameIn(dir), "command": "echo next >>/srv/a; mkdir /srv/e"}
		},
		Checks:    []activities.Check{{Exists: &activities.ExistsCheck{Path: "/srv/a"}}},
		Secret:    "canary-4711-secret",
		Sample:    1,
		EitherWay: true,
	}
}

// setting is an engine with an image of the demo's shell.
type setting struct {
	*client.Client

	host, image string
}

// engines are the settings of a test by their names: what a setting needs is made at its first use,
// and is gone after the test.
type engines map[string]func() setting

func newEngines(t *testing.T) engines {
	t.Helper()
	atHand := setting{Client: containertest.Docker(t)}
	prepare := func(on setting) setting {
		on.image = "unwind/test-backend:" + containertest.Random()
		_, err := demoimage.Build(t.Context(), on, on.image)
		require.NoError(t, err)
		t.Cleanup(func() { removeImage(t, on.Client, on.image) })
		return on
	}
	return engines{
		"at hand": sync.OnceValue(func() setting { return prepare(atHand) }),
		"overlay2": sync.OnceValue(func() setting {
			own := enginetest.Start(t)
			return prepare(setting{Client: own.Client(t), host: own.Host})
		}),
	}
}

// each runs a test beside the others, in a setting that is drawn for it.
func (e engines) each(t *testing.T, test func(t *testing.T, on setting)) {
	t.Helper()
	t.Parallel()
	for _, name := range testrun.Draw(t, "at hand", "overlay2") {
		on := e[name]()
		t.Run(name, func(t *testing.T) { test(t, on) })
	}
}

// task is a step of a worker.
type task struct {
	*testing.T

	action activities.Action
	entry  activities.Entry
	with   activities.Step
}

func (s Subject) newTask(t *testing.T, on setting, with map[string]any) task {
	t.Helper()
	c := container.Config{State: t.TempDir(), Host: on.host, Layers: container.LayersNever}
	if s.Layers {
		c.Layers = container.LayersAuto
	}
	w, err := container.New(c)
	require.NoError(t, err)
	home, err := container.Home(c.State)
	require.NoError(t, err)
	t.Cleanup(func() { containertest.RemoveHome(t, on.Client, home) })
	place, err := w.Journal(t.Context())
	require.NoError(t, err)
	k := task{T: t, action: w.Actions[0], entry: activities.Entry{
		Version: activities.EntryVersion, Seq: 1, Step: "it", Action: "container.exec", UndoType: "container.exec.undo",
		Place: activities.Place{Journal: place},
	}}
	return k.next(with)
}

// next is another step of the same worker. What it keeps is let go after the test.
func (k task) next(with map[string]any) task {
	k.Helper()
	raw, err := json.Marshal(with)
	require.NoError(k, err)
	k.entry.Token, k.with = activities.NewToken(containertest.Random(), "it", 1), activities.Step{ID: "it", With: raw}
	k.Cleanup(func() { require.NoError(k, k.action.Release(context.Background(), k.entry)) })
	return k
}
