package container_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	"github.com/docker/go-connections/nat"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// networkOf makes a network with a subnet of its own; it is gone after the test.
func networkOf(t testing.TB, name, subnet string) {
	t.Helper()
	c := containertest.Docker(t)
	all, err := c.NetworkList(t.Context(),
		network.ListOptions{Filters: filters.NewArgs(filters.Arg("name", "unwind-test-"))})
	require.NoError(t, err)
	for _, left := range all { // by tests that failed or were killed
		if slices.ContainsFunc(left.IPAM.Config, func(part network.IPAMConfig) bool { return part.Subnet == subnet }) {
			removeNetwork(t, c, left.ID)
		}
	}
	_, err = c.NetworkCreate(t.Context(), name, network.CreateOptions{
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: subnet}}},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		outliving := containertest.Outliving(t)
		removeNetwork(outliving, containertest.Docker(outliving), name)
	})
}

// removeNetwork removes a network, and first whatever a test that failed has left in it.
func removeNetwork(t testing.TB, c *client.Client, id string) {
	t.Helper()
	left, err := c.NetworkInspect(t.Context(), id, network.InspectOptions{})
	require.NoError(t, err)
	for user := range left.Containers {
		t.Logf("network %s is still used by %s %s", left.Name, user, left.Containers[user].Name)
		require.NoError(t, c.NetworkDisconnect(t.Context(), id, user, true))
	}
	require.NoError(t, c.NetworkRemove(t.Context(), id))
}

func TestRecreatedContainerIsTheSameButForItsID(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	c := containertest.Docker(t)
	one, two, named := "unwind-test-"+containertest.Random(), "unwind-test-"+containertest.Random(), "unwind-test-"+
		containertest.Random()
	networkOf(t, one, "10.213.17.0/24")
	networkOf(t, two, "10.213.18.0/24")
	_, err := c.VolumeCreate(t.Context(), volume.CreateOptions{Name: named})
	require.NoError(t, err)
	var volumes []string // of the containers, which are removed first
	t.Cleanup(func() {
		d := containertest.Docker(containertest.Outliving(t))
		for _, v := range volumes {
			require.NoError(t, d.VolumeRemove(context.Background(), v, true))
		}
	})
	bind := t.TempDir()

	b := containertest.Start(t,
		func(config *dockertypes.Config, host *dockertypes.HostConfig, net *network.NetworkingConfig) {
			config.Env = []string{"A=1", "B=two words"}
			config.Labels = map[string]string{"team": "x", "empty": ""}
			config.Cmd = []string{"/bin/sh", "-c", "echo hello; sleep infinity"}
			config.WorkingDir, config.User, config.StopSignal = "/srv", "root", "SIGINT"
			config.Volumes = map[string]struct{}{"/anonymous": {}}
			config.MacAddress = "02:42:0a:d5:11:63" //nolint:staticcheck // what an engine before API 1.44 reads
			config.ExposedPorts = nat.PortSet{"80/tcp": {}}
			host.NetworkMode = dockertypes.NetworkMode(one)
			host.PortBindings = nat.PortMap{"80/tcp": {{HostIP: "127.0.0.1", HostPort: "18217"}}}
			host.RestartPolicy = dockertypes.RestartPolicy{Name: dockertypes.RestartPolicyAlways}
			host.Binds = []string{named + ":/named", bind + ":/bound:ro"}
			host.Mounts = []mount.Mount{{Type: mount.TypeVolume, Target: "/mounted"}}
			host.Tmpfs = map[string]string{"/fast": "size=1m"}
			host.CapAdd, host.Memory, host.ExtraHosts = []string{"NET_ADMIN"}, 64<<20, []string{"db:10.0.0.1"}
			net.EndpointsConfig = map[string]*network.EndpointSettings{one: {
				IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: "10.213.17.99"}, Aliases: []string{"web"},
			}}
		})
	for _, m := range b.Inspect(t).Mounts {
		if m.Type == mount.TypeVolume {
			volumes = append(volumes, m.Name)
		}
	}
	require.NoError(t, b.NetworkConnect(t.Context(), two, b.ID, &network.EndpointSettings{Aliases: []string{"second"}}))
	b.Run(t, "echo v >/anonymous/v; echo v >/mounted/v; echo v >/named/v; touch /etc/mine")
	before, as := rolledBack(containertest.Files(t, b)), settings(b.Inspect(t))

	s := newStage(t, t.TempDir())
	e := s.entry(t)
	change, err := s.action.Plan(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "rm /etc/mine"}))
	require.NoError(t, err)
	all := strings.Join(change.Losses, "\n")
	assert.Contains(t, all, "volume "+named+" at /named is not rolled back")
	assert.Contains(t, all, "tmpfs at /fast")
	assert.NotContains(t, all, "/bound", "it is read-only")

	for range 2 { // and a second time, from the container that was made anew
		e := s.entry(t)
		_, err = s.action.Apply(t.Context(), e, step(t, map[string]any{
			"container": b.Name, "command": "rm /etc/mine; touch /srv/x; echo w >/named/v",
		}), "")
		require.NoError(t, err)
		u, err := s.action.Undo(t.Context(), e, activities.Decision{})
		require.NoError(t, err)
		require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
		assert.Equal(t, before, rolledBack(containertest.Files(t, b)))
		assert.Equal(t, as, settings(b.Inspect(t)))
		assert.True(t, b.Inspect(t).State.Running)
		b.Run(t, `test -e /anonymous/v && test -e /mounted/v && [ "$(cat /named/v)" = w ]`)
	}
}

// rolledBack leaves out the volume that the steps of the test write to, and what is mounted in
// memory: an engine makes it anew at each start, and takes its mode from the folder that it has
// made at the first one.
func rolledBack(files string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(files, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "named/v ") || strings.HasPrefix(line, "fast ")
	}), "\n")
}

// settings is all of an inspection that a person can have asked for.
func settings(c dockertypes.InspectResponse) map[string]any {
	host := *c.HostConfig
	host.Binds, host.Mounts, host.ContainerIDFile = nil, nil, ""
	config := *c.Config
	config.Image = ""
	mounts := map[string]dockertypes.MountPoint{}
	for _, m := range c.Mounts {
		m.Mode = "" // "z" for a volume that a container was born with, empty for one that it was given
		mounts[m.Destination] = m
	}
	networks := map[string]any{}
	for name, n := range c.NetworkSettings.Networks {
		aliases := slices.DeleteFunc(slices.Clone(n.Aliases), func(a string) bool {
			return strings.HasPrefix(c.ID, a) || a == c.Config.Hostname // the engine's own
		})
		networks[name] = []any{n.IPAMConfig, aliases, n.Links}
		if n.IPAMConfig != nil && n.IPAMConfig.IPv4Address != "" {
			networks[name] = append(networks[name].([]any), n.IPAddress, n.MacAddress)
		}
	}
	return map[string]any{
		"name": c.Name, "config": config, "host": host, "mounts": mounts, "networks": networks, "path": c.Path,
		"args":  c.Args,
		"ports": maps.Clone(c.NetworkSettings.Ports),
	}
}

func TestStepsInOneContainerAreUndoneOneAfterTheOther(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	states, entries := []string{}, []activities.Entry{}
	for _, command := range []string{"echo 1 >/srv/a", "echo 2 >>/srv/a", "rm /srv/a"} {
		states = append(states, containertest.Files(t, b))
		e := s.entry(t)
		entries = append(entries, e)
		_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": command}), "")
		require.NoError(t, err)
	}
	for i, e := range slices.Backward(entries) {
		u, err := s.action.Undo(t.Context(), e, activities.Decision{})
		require.NoError(t, err)
		require.Equal(t, activities.Compensated, u.Outcome, "%d: %+v", i, u)
		assert.Equal(t, states[i], containertest.Files(t, b))
		assert.Empty(t, containertest.Checkpoints(t, e.Token))
	}
	c := b.Inspect(t)
	images := ourImages(t, b)
	assert.Equal(t, []string{c.Image}, images, "all that is left is what the container stands on")
}

// ourImages lists the checkpoints that are made from the tests' own image.
func ourImages(t testing.TB, b *containertest.Box) []string {
	t.Helper()
	var ids []string
	for id := b.Inspect(t).Image; id != containertest.ShellImage(t, b.Client); {
		img, err := b.ImageInspect(t.Context(), id)
		require.NoError(t, err)
		ids, id = append(ids, id), img.Parent //nolint:staticcheck // the tests' engine tells it
	}
	return ids
}

func TestStoppedContainerStaysStopped(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	e := s.entry(t)
	_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "touch /srv/a"}), "")
	require.NoError(t, err)
	zero := 0
	require.NoError(t, b.ContainerStop(t.Context(), b.Name, dockertypes.StopOptions{Timeout: &zero}))
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome)
	assert.Contains(t, u.Observed, "stays so")
	stopped := b.Inspect(t)
	assert.False(t, stopped.State.Running)
	_, err = b.ImageInspect(t.Context(), stopped.Image)
	require.NoError(t, err, "it can be made anew")
	assert.False(t, b.Has(t, "/srv/a"))

	require.NoError(t, b.ContainerStart(t.Context(), b.Name, dockertypes.StartOptions{}))
	e = s.entry(t)
	_, err = s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "touch /srv/a"}), "")
	require.NoError(t, err)
	mustUndo(t, s, e, activities.Decision{})
	assert.Equal(t, []string{b.Inspect(t).Image, stopped.Image}, ourImages(t, b))
	require.NoError(t, s.action.Release(t.Context(), e))
	assert.Empty(t, containertest.Checkpoints(t, e.Token))
}

func TestContainerThatIsRemovedAtItsEnd(t *testing.T) {
	t.Parallel()
	b := containertest.Start(t, func(_ *dockertypes.Config, host *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		host.AutoRemove = true
	})
	s := newStage(t, t.TempDir())
	e := s.entry(t)
	_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "touch /srv/a"}), "")
	require.NoError(t, err)
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome)
	assert.False(t, b.Has(t, "/srv/a"))
	assert.True(t, b.Inspect(t).HostConfig.AutoRemove)
}

func TestContainerNamedByItsIDIsFoundAfterItWasMadeAnew(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	before := containertest.Files(t, b)
	for range 2 {
		e := s.entry(t)
		_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.ID, "command": "touch /srv/a"}), "")
		require.NoError(t, err)
		u, err := s.action.Undo(t.Context(), e, activities.Decision{})
		require.NoError(t, err)
		require.Equal(t, activities.Compensated, u.Outcome)
		assert.Equal(t, before, containertest.Files(t, b))
	}
}
