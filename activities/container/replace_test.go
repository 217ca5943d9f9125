package container_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/go-connections/nat"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
)

var replacing = actiontest.Case{
	Name:   "container.replace",
	Action: "container.replace",
	Start: func(t testing.TB, dir string) {
		b := startBox(t)
		b.run(t, "echo one >/srv/a")
		require.NoError(t, os.WriteFile(filepath.Join(dir, "name"), []byte(b.name), 0o600))
		for i, id := range greens(t) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("green", i)), []byte(id), 0o600))
		}
		t.Cleanup(func() {
			for _, token := range tokensIn(t, dir) {
				removeOfToken(t, token)
			}
		})
	},
	Open: openCase,
	With: func(dir string) any { return map[string]any{"container": nameIn(dir), "image": greenIn(dir, 0)} },
	Next: func(dir string) any { return map[string]any{"container": nameIn(dir), "image": greenIn(dir, 1)} },
	Checks: []activities.Check{
		{Exists: &activities.ExistsCheck{Path: "/srv/green"}},
		{When: activities.Live, Exists: &activities.ExistsCheck{Path: "/srv/green"}},
	},
	Manifest: replacedManifest,
	Drift:    func(t testing.TB, dir string) { boxIn(t, dir).run(t, "echo drift >>/srv/drift") },
	Meanwhile: func(t testing.TB, dir string) {
		_, err := docker(t).ContainerUpdate(t.Context(), nameIn(dir), dockertypes.UpdateConfig{
			RestartPolicy: dockertypes.RestartPolicy{Name: dockertypes.RestartPolicyUnlessStopped},
		})
		require.NoError(t, err)
	},
	Undone: activities.Compensated,
	Redone: func(left, now string) bool { return withoutID(left) == withoutID(now) },
	Anew:   true,
	Sample: 1,
}

func TestConformanceOfReplace(t *testing.T) {
	docker(t)
	actiontest.Run(t, replacing)
}

var green struct {
	once sync.Once
	ids  []string
}

// greens are images to replace a container by.
func greens(t testing.TB) []string {
	t.Helper()
	green.once.Do(func() {
		for i := range 2 {
			b := startBox(t)
			b.run(t, fmt.Sprintf("echo %d >/srv/green", i))
			made, err := b.ContainerCommit(t.Context(), b.id, dockertypes.CommitOptions{Reference: fmt.Sprintf("%s-green%d", shellRef, i)})
			require.NoError(t, err)
			green.ids = append(green.ids, made.ID)
		}
	})
	require.Len(t, green.ids, 2)
	return green.ids
}

func greenIn(dir string, i int) string {
	id, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("green", i)))
	if err != nil {
		panic(err)
	}
	return string(id)
}

func ofToken(t testing.TB, token string) []dockertypes.Summary {
	t.Helper()
	found, err := docker(t).ContainerList(t.Context(), dockertypes.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("name", "^/unwind-"+token))})
	require.NoError(t, err)
	return found
}

// replacedManifest is the container with its files, and what runs or waits beside it. What only holds a name is no part.
func replacedManifest(t testing.TB, dir string) string {
	t.Helper()
	b := boxIn(t, dir)
	c := b.inspect(t)
	lines := []string{c.ID, c.Name, c.State.Status, c.Image, files(t, b)}
	for _, token := range tokensIn(t, dir) {
		for _, left := range ofToken(t, token) {
			name := strings.Join(left.Names, " ")
			if left.State == "running" || strings.Contains(name, "-new-") || strings.Contains(name, "-trial-") {
				lines = append(lines, name+" "+left.State)
			}
		}
	}
	return strings.Join(lines, "\n")
}

func withoutID(manifest string) string {
	_, rest, _ := strings.Cut(manifest, "\n")
	return rest
}

// TestReplacedContainerComesBackAsItWas: name, id, state, networks with their addresses and names, published ports.
func TestReplacedContainerComesBackAsItWas(t *testing.T) {
	t.Parallel()
	network1, network2 := "unwind-test-"+random(), "unwind-test-"+random()
	networkOf(t, network1, "10.213.27.0/24")
	networkOf(t, network2, "10.213.28.0/24")
	b := startBox(t, func(config *dockertypes.Config, host *dockertypes.HostConfig, net *network.NetworkingConfig) {
		config.Env, config.Labels = []string{"A=1"}, map[string]string{"team": "x"}
		config.ExposedPorts = nat.PortSet{"80/tcp": {}}
		host.NetworkMode = dockertypes.NetworkMode(network1)
		host.PortBindings = nat.PortMap{"80/tcp": {{HostIP: "127.0.0.1", HostPort: "38227"}}}
		host.RestartPolicy = dockertypes.RestartPolicy{Name: dockertypes.RestartPolicyAlways}
		net.EndpointsConfig = map[string]*network.EndpointSettings{network1: {
			IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: "10.213.27.99"}, Aliases: []string{"web"},
		}}
	})
	require.NoError(t, b.NetworkConnect(t.Context(), network2, b.id, &network.EndpointSettings{Aliases: []string{"second"}}))
	before, s := settings(b.inspect(t)), newStage(t, t.TempDir())
	e := s.entry(t)
	t.Cleanup(func() { removeOfToken(t, e.Token) })
	change, err := s.replace.Plan(t.Context(), e, step(t, map[string]any{"container": b.name, "image": greens(t)[0]}))
	require.NoError(t, err)
	assert.Equal(t, activities.High, change.Risk)
	assert.Contains(t, strings.Join(change.Facts, "; "), "127.0.0.1:38227 to 80/tcp")

	// The checks run before anything is stopped, in a container beside the old one.
	r, err := s.replace.Apply(t.Context(), e, step(t, map[string]any{"container": b.name, "image": greens(t)[0]},
		activities.Check{Exists: &activities.ExistsCheck{Path: "/srv/green"}}), change.Digest)
	require.NoError(t, err)
	fresh := b.inspect(t)
	assert.Equal(t, r.Outputs["container"], fresh.ID)
	assert.NotEqual(t, b.id, fresh.ID)
	assert.True(t, b.has(t, "/srv/green"))
	assert.Equal(t, before, settings(fresh), "the same but for the image")
	old, err := b.ContainerInspect(t.Context(), b.id)
	require.NoError(t, err)
	assert.False(t, old.State.Running)

	u, err := s.replace.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	back := b.inspect(t)
	assert.Equal(t, b.id, back.ID)
	assert.True(t, back.State.Running)
	assert.Equal(t, before, settings(back))
	_, err = b.ContainerInspect(t.Context(), fresh.ID)
	assert.True(t, cerrdefs.IsNotFound(err))
	require.NoError(t, s.replace.Release(t.Context(), e))
	assert.Empty(t, ofToken(t, e.Token))
}

func TestReplaceThatFailsItsChecksLeavesTheOldContainerAlone(t *testing.T) {
	t.Parallel()
	b, s := startBox(t), newStage(t, t.TempDir())
	e, started := s.entry(t), b.inspect(t).State.StartedAt
	t.Cleanup(func() { removeOfToken(t, e.Token) })
	with := step(t, map[string]any{"container": b.name, "image": greens(t)[0]}, activities.Check{Exists: &activities.ExistsCheck{Path: "/none"}})
	for range 2 {
		_, err := s.replace.Apply(t.Context(), e, with, "")
		require.Equal(t, activities.CheckFailed, activities.TypeOf(err), "%v", err)
		assert.Equal(t, b.id, b.inspect(t).ID)
		assert.Equal(t, started, b.inspect(t).State.StartedAt)
	}
	u, err := s.replace.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Compensated, u.Outcome)
	assert.Equal(t, b.id, b.inspect(t).ID)
}

// TestWhatRunsInTheNewContainerIsUndoneBeforeIt: it is another container by then.
func TestWhatRunsInTheNewContainerIsUndoneBeforeIt(t *testing.T) {
	t.Parallel()
	b, s := startBox(t), newStage(t, t.TempDir())
	e, after := s.entry(t), s.entry(t)
	t.Cleanup(func() { removeOfToken(t, e.Token) })
	_, err := s.replace.Apply(t.Context(), e, step(t, map[string]any{"container": b.name, "image": greens(t)[0]}), "")
	require.NoError(t, err)
	_, err = s.action.Apply(t.Context(), after, step(t, map[string]any{"container": b.name, "command": "echo x >/srv/x"}), "")
	require.NoError(t, err)
	u, err := s.action.Undo(t.Context(), after, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome)
	u, err = s.replace.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	assert.Equal(t, b.id, b.inspect(t).ID)
}

func TestReplaceRefusesWhatItCouldNotTakeBack(t *testing.T) {
	t.Parallel()
	b, s := startBox(t), newStage(t, t.TempDir())
	stopped := startBox(t)
	require.NoError(t, b.ContainerKill(t.Context(), stopped.id, "KILL"))
	require.Eventually(t, func() bool { return !stopped.inspect(t).State.Running }, time.Minute, 20*time.Millisecond)
	gone := startBox(t, func(_ *dockertypes.Config, host *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		host.AutoRemove = true
	})
	image := greens(t)[0]
	for says, with := range map[string]map[string]any{
		"container: name the container":               {"image": image},
		"image: name the image":                       {"container": b.name},
		`no container "unwind-test-none"`:             {"container": "unwind-test-none", "image": image},
		"docker start " + stopped.name + " starts it": {"container": stopped.name, "image": image},
		`image: the engine has no image "none:1"`:     {"container": b.name, "image": "none:1"},
		"is not the name of a container":              {"container": b.id[:12], "image": image},
		"start it without --rm":                       {"container": gone.name, "image": image},
		`ignore: "tmp" is not an absolute path`:       {"container": b.name, "image": image, "ignore": []string{"tmp"}},
	} {
		e := s.entry(t)
		_, err := s.replace.Plan(t.Context(), e, step(t, with))
		require.ErrorContains(t, err, says)
		assert.Equal(t, activities.Refused, activities.TypeOf(err))
		_, err = s.replace.Apply(t.Context(), e, step(t, with), "")
		require.ErrorContains(t, err, says)
		assert.Empty(t, ofToken(t, e.Token))
	}
	assert.Equal(t, b.id, b.inspect(t).ID)
}

// TestOldContainerThatWasRemovedIsNotMadeUp: nothing can be switched back to, and a person is told.
func TestOldContainerThatWasRemovedIsNotMadeUp(t *testing.T) {
	t.Parallel()
	b, s := startBox(t), newStage(t, t.TempDir())
	e := s.entry(t)
	t.Cleanup(func() { removeOfToken(t, e.Token) })
	_, err := s.replace.Apply(t.Context(), e, step(t, map[string]any{"container": b.name, "image": greens(t)[0]}), "")
	require.NoError(t, err)
	fresh := b.inspect(t).ID
	require.NoError(t, b.ContainerRemove(t.Context(), b.id, dockertypes.RemoveOptions{Force: true}))
	_, err = s.replace.Undo(t.Context(), e, activities.Decision{})
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
	assert.Equal(t, fresh, b.inspect(t).ID, "the new one is left alone")
}

func removeOfToken(t testing.TB, token string) {
	for _, c := range ofToken(cleanup{t}, token) {
		require.NoError(t, docker(cleanup{t}).ContainerRemove(context.Background(), c.ID, dockertypes.RemoveOptions{Force: true}))
	}
}

// TestLateCallsDoNothingToTheOldContainer makes the calls that a forward or an undo still has in hand when it wakes up after
// the step was undone.
func TestLateCallsDoNothingToTheOldContainer(t *testing.T) {
	t.Parallel()
	b, s := startBox(t), newStage(t, t.TempDir())
	e := s.entry(t)
	t.Cleanup(func() { removeOfToken(t, e.Token) })
	_, err := s.replace.Apply(t.Context(), e, step(t, map[string]any{"container": b.name, "image": greens(t)[0]}), "")
	require.NoError(t, err)
	_, err = s.replace.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	before := b.inspect(t)
	for _, name := range []string{"unwind-" + e.Token + "-aside", "unwind-" + e.Token + "-return"} {
		assert.True(t, cerrdefs.IsConflict(b.ContainerRename(t.Context(), b.id, name)), "the name is taken")
		require.NoError(t, b.ContainerStop(t.Context(), name, dockertypes.StopOptions{}))
		assert.Error(t, b.ContainerStart(t.Context(), name, dockertypes.StartOptions{}))
	}
	assert.Equal(t, before.State, b.inspect(t).State)
	assert.Equal(t, b.id, b.inspect(t).ID)
}
