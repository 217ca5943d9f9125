package container_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestARunningContainerIsReadWithoutItsEngine(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	testrun.NeedRoot(t, "what a container holds")
	b := containertest.Start(t, usesItsFiles) // so that its steps take docker commit, and what only reads is proven
	b.Run(t, "echo 1 >/srv/a; mkdir /srv/d")
	var copies atomic.Int64
	socket, _ := watched(t, func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/containers/"+b.ID+"/archive") {
			copies.Add(1)
		}
	})
	state := t.TempDir()
	t.Cleanup(func() { containertest.RemoveLayers(t, state) })
	s := newStageAt(t, container.Config{State: state, Host: "unix://" + socket})
	with := map[string]any{"container": b.Name, "command": "cat /srv/a"}
	out, err := s.action.Apply(t.Context(), s.entry(t),
		step(t, with, activities.Check{JSON: &activities.JSONCheck{File: "/srv/a", Equals: json.RawMessage("1")}},
			activities.Check{Exists: &activities.ExistsCheck{Path: "/bin/cat"}},
			activities.Check{Exists: &activities.ExistsCheck{Path: "/srv/d"}}), "")
	require.NoError(t, err)
	assert.Equal(t, "1\n", out.Outputs["stdout"])
	assert.Contains(t, out.Summary, "read in")
	assert.Zero(t, copies.Load())
	_, err = s.action.Apply(t.Context(), s.entry(t),
		step(t, with, activities.Check{Exists: &activities.ExistsCheck{Path: "/srv/absent"}}), "")
	assert.Equal(t, activities.CheckFailed, activities.TypeOf(err), "%v", err)
}

// usesItsFiles gives a container a program that does: its steps take docker commit.
func usesItsFiles(c *dockertypes.Config, _ *dockertypes.HostConfig, _ *network.NetworkingConfig) {
	c.Cmd = []string{"sh", "-c", "while sleep 0.05; do cat /srv/a >/tmp/b; done"}
}
