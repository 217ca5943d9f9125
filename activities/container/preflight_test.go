package container_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

func TestPreflightLooksForTheContainer(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t)
	before := containertest.Shows(t, b)
	for name, c := range map[string]struct {
		with    map[string]any
		later   []string
		checks  []activities.Check
		want    string // part of the refusal; empty: none
		current string
	}{
		"fine":      {with: map[string]any{"container": b.Name, "command": "true"}},
		"by its id": {with: map[string]any{"container": b.ID, "command": "true"}},
		"not there": {with: map[string]any{"container": "unwind-none", "command": "true"},
			want: `the engine has no container "unwind-none"`, current: "container:unwind-none"},
		"no command":             {with: map[string]any{"container": b.Name}, want: "give one of command"},
		"the command is later":   {with: map[string]any{"container": b.Name}, later: []string{"command"}},
		"an argument is later":   {with: map[string]any{"container": b.Name}, later: []string{"argv"}},
		"the container is later": {with: map[string]any{"command": "true"}, later: []string{"container"}},
		"later, and not there": {with: map[string]any{"container": "unwind-none"}, later: []string{"command"},
			want: "has no container", current: "container:unwind-none"},
		"a staged check": {
			with: map[string]any{"container": b.Name, "command": "true"}, checks: []activities.Check{{When: activities.Staged}},
			want: "has nothing staged",
		},
		"any program": {
			with:   map[string]any{"container": b.Name, "command": "true"},
			checks: []activities.Check{{Command: &activities.CommandCheck{Run: []string{"anything"}}}},
		},
	} {
		err := s.action.(activities.Preflighter).Preflight(context.Background(),
			activities.Outlook{Step: step(t, c.with, c.checks...), Later: c.later})
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.want, name)
		var refused *activities.Error
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, activities.Refused, refused.Type, name)
		require.Equal(t, c.current, refused.Current, name)
	}
	require.Equal(t, before, containertest.Shows(t, b))
}

// A container has the same names whatever a step calls it, and two that mount one volume have it in
// common.
func TestTouchesNamesOneContainerAlike(t *testing.T) {
	t.Parallel()
	s := newStage(t, t.TempDir())
	shared := "unwind-test-" + strings.ToLower(rand.Text())
	mounts := func(source string) func(*dockertypes.Config, *dockertypes.HostConfig, *network.NetworkingConfig) {
		return func(_ *dockertypes.Config, h *dockertypes.HostConfig, _ *network.NetworkingConfig) {
			h.Binds = []string{shared + ":/shared", source + ":/bound:ro"}
		}
	}
	bound, engine := t.TempDir(), containertest.Docker(t)
	// after the containers
	t.Cleanup(func() { require.NoError(t, engine.VolumeRemove(context.Background(), shared, true)) })
	a, b := containertest.Start(t, mounts(bound)), containertest.Start(t, mounts(bound))
	touches := func(container string) []activities.Touch {
		all, err := s.action.(activities.Toucher).Touches(t.Context(),
			activities.Outlook{Step: step(t, map[string]any{"container": container})})
		require.NoError(t, err)
		return all
	}
	want := touches(a.Name)
	require.Contains(t, want, activities.Touch{Name: "container:" + a.ID})
	require.Contains(t, want, activities.Touch{Name: "volume:" + shared})
	require.Contains(t, want, activities.Touch{Path: bound, Reads: true})
	for _, name := range []string{a.ID, a.ID[:12], "/" + a.Name} {
		require.ElementsMatch(t, want, touches(name), name) // an engine lists mounts in any order
	}
	require.Contains(t, touches(b.Name), activities.Touch{Name: "volume:" + shared})
	require.NotContains(t, touches(b.Name), activities.Touch{Name: "container:" + a.ID})
	require.Empty(t, touches("unwind-none"))
}
