package containertest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/docker/demoimage"
	"github.com/seed-62bf7108/unwind/activities/docker/enginetest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/boxtest"
)

// Shows is all that the topmost root of a running box shows, to the nanosecond and with all
// attributes, but for what a step ignores, the engine's own files, and the times of the folders
// that these are in.
func Shows(t testing.TB, b *Box) string {
	t.Helper()
	now := b.Inspect(t)
	require.True(t, now.State.Running)
	return notCompared.ReplaceAllString(boxtest.At(t, now.State.Pid).Files(), "")
}

var notCompared = regexp.MustCompile(
	`(?m)^(/|/etc|/var|/etc/(hosts|hostname|resolv.conf|mtab)|/\.dockerenv|(/tmp|/run|/var/log)(/\S*)?) .*\n`)

// AsTheImage says of two looks of Shows that after is what the image made: all that a case and its
// steps do is in /srv.
func AsTheImage(before, after string) bool {
	but := func(shown string) []string {
		return slices.DeleteFunc(strings.Split(shown, "\n"), func(line string) bool {
			return strings.HasPrefix(line, "/srv ") || strings.HasPrefix(line, "/srv/")
		})
	}
	return !strings.Contains(after, "\n/srv/") && slices.Equal(but(before), but(after))
}

// StartOn starts a container on an engine of the test's own, of the image of Prepare unless edit
// names another. It goes with the engine.
func StartOn(t testing.TB, e *enginetest.Engine,
	edit ...func(*container.Config, *container.HostConfig, *network.NetworkingConfig)) *Box {
	t.Helper()
	b := &Box{Client: e.Client(t), Name: "unwind-test-" + Random()}
	config, host, net := &container.Config{Image: preparedRef}, &container.HostConfig{NetworkMode: "none"},
		&network.NetworkingConfig{}
	for _, each := range edit {
		each(config, host, net)
	}
	made, err := b.ContainerCreate(t.Context(), config, host, net, nil, b.Name)
	require.NoError(t, err)
	b.ID = made.ID
	require.NoError(t, b.ContainerStart(t.Context(), b.ID, container.StartOptions{}))
	return b
}

const preparedRef = "unwind/test-layers:now"

// Prepare gives an engine of the test's own the image of the small containers.
func Prepare(t testing.TB, e *enginetest.Engine) {
	t.Helper()
	_, err := demoimage.Build(t.Context(), e.Client(t), preparedRef)
	require.NoError(t, err)
}
