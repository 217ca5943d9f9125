// Package sidecartest holds the tests of container.exec where a sidecar on the engine makes its layers, and builds what tests
// with sidecars need.
package sidecartest

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/sidecar"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// built is the program: built once, on the first need.
var built struct {
	once sync.Once
	file string
	err  error
}

// Program is the static helper, and no other process's. Done removes it.
func Program(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		var dir string
		if dir, built.err = os.MkdirTemp("", "unwind-sidecar-"); built.err != nil { //nolint:usetesting // it outlives the test
			return
		}
		built.file = filepath.Join(dir, "helper")
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid="+rand.Text(), "-o", built.file, "github.com/seed-62bf7108/unwind/activities/container/overlay/standalone")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		build.Stderr = os.Stderr
		built.err = build.Run()
	})
	require.NoError(t, built.err)
	return built.file
}

// Done removes the program, and its image from the engine at hand: TestMain calls it at its end.
func Done() error {
	if built.file == "" {
		return nil
	}
	defer os.RemoveAll(filepath.Dir(built.file))
	p, err := sidecar.ReadProgram(built.file)
	if err != nil {
		return err
	}
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.ImageRemove(context.Background(), p.Ref(), image.RemoveOptions{})
	if cerrdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// Home is a name that no other test has.
func Home() string { return strings.ToLower(rand.Text()[:10]) }

// Left are the sidecars that an engine has of a home.
func Left(t testing.TB, c *client.Client, home string) []container.Summary {
	t.Helper()
	found, err := c.ContainerList(context.Background(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", sidecar.Label+"="+home))})
	require.NoError(t, err)
	return found
}

// Remove removes the volume of a home, and its sidecars.
func Remove(t testing.TB, c *client.Client, home string) {
	t.Helper()
	require.Eventually(t, func() bool {
		left := Left(t, c, home)
		for _, s := range left { // one that is removing itself refuses
			_ = c.ContainerRemove(context.Background(), s.ID, container.RemoveOptions{Force: true})
		}
		return len(left) == 0
	}, time.Minute, 20*time.Millisecond)
	require.NoError(t, c.VolumeRemove(context.Background(), sidecar.Volume(home), true))
}

// RemoveOf removes what a worker's state folder has on an engine.
func RemoveOf(t testing.TB, c *client.Client, state string) {
	t.Helper()
	j, err := journal.Open(filepath.Join(state, "container"))
	require.NoError(t, err)
	Remove(t, c, j.ID())
}
