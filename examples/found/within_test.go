package found_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
	"github.com/seed-62bf7108/unwind/examples/found"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestMain(m *testing.M) {
	helper.Attend()
	code := m.Run()
	if err := containertest.RemoveImages(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// TestWithinSeesWhatLiesOverAContainer mounts a layer over a container, of which the engine knows
// nothing.
func TestWithinSeesWhatLiesOverAContainer(t *testing.T) {
	testrun.NeedRoot(t, "what lies over a container")
	b := containertest.Start(t)
	b.Run(t, "mkdir /srv; echo one >/srv/a; echo two >/srv/b")
	within := func() found.Snapshot {
		s, err := found.Within(t.Context(), b.Name)
		require.NoError(t, err)
		return s
	}
	before, exported := within(), container(t, b.Name)
	require.Empty(t, changes(before, within()))
	for path, f := range exported {
		require.Contains(t, before, path)
		for _, name := range []string{"mode", "owner", "leads to", "size", "sha256", "time", "part of a second"} {
			require.Equal(t, f[name], before[path][name], "%s of %s", name, path)
		}
	}

	home := containertest.Random()
	layers := helper.NewClient(sidecar.Starter(b.Client, home))
	t.Cleanup(func() { containertest.RemoveHome(t, containertest.Docker(containertest.Outliving(t)), home) })
	t.Cleanup(layers.Close)
	ask := func(r helper.Request) {
		r.Container, r.PID = b.ID, b.Inspect(t).State.Pid
		_, err := layers.Ask(t.Context(), r)
		require.NoError(t, err)
	}
	ask(helper.Request{Op: helper.Take, Name: "before"})
	b.Run(t, "echo more >>/srv/a; rm /srv/b; mkdir /srv/c")
	require.Empty(t, changes(exported, container(t, b.Name)), "the engine knows of no layer")
	all := changes(before, within())
	require.Len(t, all, 3)
	require.Contains(t, all[0], "~ /srv/a: part of a second ")
	require.Equal(t, []string{"- /srv/b", "+ /srv/c"}, all[1:])
	said, err := found.ReadWithin(t.Context(), b.Name, "/srv/a")
	require.NoError(t, err)
	require.Equal(t, "one\nmore\n", said)
	said, err = found.ReadWithin(t.Context(), b.Name, "/srv/b")
	require.NoError(t, err)
	require.Empty(t, said)

	ask(helper.Request{Op: helper.Restore, Name: "before", Turn: "undo"})
	require.Empty(t, changes(before, within()))
}

func container(t *testing.T, name string) found.Snapshot {
	s, err := found.Container(t.Context(), name)
	require.NoError(t, err)
	return s
}
