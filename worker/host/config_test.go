package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/worker/host"
)

func readConfig(t *testing.T, content string) (host.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "worker.yaml")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return host.ReadConfig(file)
}

func TestAFieldThatIsGoneIsToldWithTheNewOne(t *testing.T) {
	t.Parallel()
	for content, said := range map[string]string{
		"container: {overlay: true}":     "container.overlay was removed: layers are the default now; leave it out, or write layers: require",
		"container: {overlay: false}":    "or layers: never to use docker commit only",
		"container: {sidecar: true}":     "container.sidecar was removed: a helper container on the engine makes all layers now; leave it out",
		"container: {helper: /usr/bin/}": "container.helper was removed: the helper container runs the worker's own program now; leave it out",
		"container: {overlays: true}":    "field overlays not found",
	} {
		_, err := readConfig(t, content)
		require.ErrorContains(t, err, said, content)
	}
	_, err := readConfig(t, "container: {overlay: true, sidecar: true}")
	require.ErrorContains(t, err, "container.overlay was removed")
	require.ErrorContains(t, err, "container.sidecar was removed")
}

func TestLayersAreAutoNeverOrRequire(t *testing.T) {
	t.Parallel()
	for _, mode := range []container.LayersMode{"", container.LayersAuto, container.LayersNever, container.LayersRequire} {
		c, err := readConfig(t, "container: {layers: "+string(mode)+"}\nhost: here\nstate: /nowhere\n")
		require.NoError(t, err)
		require.Equal(t, mode, c.Container.Layers)
		c, err = c.WithDefaults()
		require.NoError(t, err)
		require.NoError(t, c.Validate())
	}
	c, err := readConfig(t, "container: {layers: always}\nhost: here\nstate: /nowhere\n")
	require.NoError(t, err)
	c, err = c.WithDefaults()
	require.NoError(t, err)
	require.EqualError(t, c.Validate(), `config: container.layers: "always" must be auto, never or require`)
}
