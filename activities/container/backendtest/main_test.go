package backendtest

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/container/demoimage"
	"github.com/seed-62bf7108/unwind/activities/container/enginetest"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestMain(m *testing.M) {
	container.Attend()
	code := m.Run()
	if err := containertest.RemoveImages(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// setting is an engine with an image of the demo's shell.
type setting struct {
	*client.Client

	host, image string
}

// onEachBackend runs a test with each backend, on one of the two engines, which is drawn; a deep run takes both.
func onEachBackend(t *testing.T, test func(t *testing.T, on setting, layers bool)) {
	t.Helper()
	testrun.NeedRoot(t, "layers over containers")
	atHand := setting{Client: containertest.Docker(t)}
	for _, name := range testrun.Draw(t, "at hand", "overlay2") {
		on := atHand
		if name == "overlay2" {
			own := enginetest.Start(t)
			on = setting{Client: own.Client(t), host: own.Host}
		}
		on.image = "unwind/test-backend:" + containertest.Random()
		_, err := demoimage.Build(t.Context(), on, on.image)
		require.NoError(t, err)
		t.Cleanup(func() { removeImage(t, on.Client, on.image) })
		t.Run(name+", docker commit", func(t *testing.T) { test(t, on, false) })
		t.Run(name+", layers", func(t *testing.T) { test(t, on, true) })
	}
}

// task is a step of a worker.
type task struct {
	*testing.T

	action activities.Action
	entry  activities.Entry
	with   activities.Step
}

func newTask(t *testing.T, on setting, layers bool, with map[string]any) task {
	t.Helper()
	c := container.Config{State: t.TempDir(), Host: on.host, Layers: container.LayersNever}
	if layers {
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
