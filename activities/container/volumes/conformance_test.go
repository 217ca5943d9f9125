package volumes_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestMain(m *testing.M) { containertest.Main(m, keeping) }

func TestKeeping(t *testing.T) {
	testrun.NeedRoot(t, "copies of volumes")
	containertest.Docker(t)
	actiontest.Run(t, keeping)
}

// keeping is brief: with docker commit, and what a rollback of the container itself may meet is
// tested in package dockercommit.
var keeping = actiontest.Case{
	Name:   "container.exec that keeps copies of volumes",
	Action: "container.exec",
	Start: func(t testing.TB, dir string) {
		b := startWithVolume(t)
		b.Run(t, "mkdir -p /srv; echo one >/srv/a; echo one >/data/a; mkdir /data/d; echo x >/data/d/x")
		require.NoError(t, os.WriteFile(filepath.Join(dir, "name"), []byte(b.Name), 0o600))
		t.Cleanup(func() { containertest.ClearIn(t, dir) })
	},
	Open: containertest.Open,
	With: func(dir string) any {
		return map[string]any{
			"container": containertest.NameIn(dir), "volumes": "snapshot",
			"command": "echo two >/srv/a; echo two >/data/a; rm -r /data/d; touch /data/new; /bin/sleep 600 & echo " +
				"canary-4711-secret",
		}
	},
	Next: func(dir string) any {
		return map[string]any{"container": containertest.NameIn(dir), "volumes": "snapshot",
			"command": "echo next >>/srv/a; echo next >>/data/a; mkdir /data/e"}
	},
	Checks:    []activities.Check{{Exists: &activities.ExistsCheck{Path: "/data/a"}}},
	Manifest:  func(t testing.TB, dir string) string { return containertest.Files(t, containertest.In(t, dir)) },
	Drift:     func(t testing.TB, dir string) { containertest.In(t, dir).Run(t, "echo drift >>/data/drift") },
	Meanwhile: func(t testing.TB, dir string) { containertest.In(t, dir).Run(t, "echo meanwhile >/data/b") },
	Undone:    activities.Compensated,
	Redone:    func(left, now string) bool { return timeless(left) == timeless(now) },
	// it leaves volumes as they are: see the tests of container.exec
	Reset:  func(before, after string) bool { return true },
	Secret: "canary-4711-secret",
	Sample: 1,
	Anew:   true,
	Brief:  true,
	Own:    []string{"container.exec:volumes-kept", "container.exec:volumes-restored"},
}

var times = regexp.MustCompile(`(?m)^(\S+ . \d+ \d+:\d+) \d+ `)

// timeless is a manifest without times: a command that runs again leaves others.
func timeless(manifest string) string { return times.ReplaceAllString(manifest, "$1 ") }

// startWithVolume starts a box with a volume of its own, of the same name, at /data. Both are gone
// after the test.
func startWithVolume(t testing.TB) *containertest.Box {
	t.Helper()
	name := "unwind-test-" + containertest.Random()
	t.Cleanup(func() { // after the box is gone
		c := containertest.Docker(containertest.Outliving(t))
		assert.NoError(t, c.VolumeRemove(context.Background(), name, true))
	})
	return containertest.Start(t, withVolume(name))
}

func withVolume(name string) func(*dockertypes.Config, *dockertypes.HostConfig, *network.NetworkingConfig) {
	return func(_ *dockertypes.Config, host *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeVolume, Source: name, Target: "/data"})
	}
}
