package folder_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/go-connections/nat"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/enginetest"
	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestMakingAContainerAgainConforms(t *testing.T) {
	containertest.NeedFiles(t)
	actiontest.Run(t, remakeCase)
}

// remakeCase deploys a container twice: it is removed, and made anew under its name.
var remakeCase = actiontest.Case{
	Name: "making a container again", Action: "folder.restore", Open: openDocker, Anew: true, Brief: true,
	Start: func(t testing.TB, dir string) {
		images := containertest.Greens(t)
		b := boxIn(t, dir)
		b.Run(t, "mkdir -p /srv/d /srv/gone; echo one >/srv/a; echo x >/srv/d/x; echo a >/srv/gone/a; rm /bin/gzip")
		b.Stop(t)
		keepIn(t, dir, "one", ofContainer(dir))
		deploy(t, b, images[0])
		b.Put(t, "/srv", map[string]string{"a": "two\n"})
		keepIn(t, dir, "two", ofContainer(dir))
		deploy(t, b, images[0], "STAGE=three")
		b.Put(t, "/srv", map[string]string{"a": "three\n", "more/in": "x\n"})
		t.Cleanup(func() { clearWorld(t, dir) })
	},
	With:      func(dir string) any { return with(ofContainer(dir), "checkpoint", nameOf("one")) },
	Next:      func(dir string) any { return with(ofContainer(dir), "checkpoint", nameOf("two")) },
	Manifest:  boxManifest,
	Redone:    func(left, now string) bool { return withoutID(left) == withoutID(now) },
	Drift:     func(t testing.TB, dir string) { put(t, dir, "a", containertest.Random()) },
	Meanwhile: func(t testing.TB, dir string) { put(t, dir, "a", "meanwhile\n") },
	Sample:    1,
	Own: []string{"folder.restore:created", "folder.restore:made", "folder.restore:filled", "folder.restore:turn-taken",
		"folder.restore:before-aside", "folder.restore:old-renamed", "folder.restore:made-removed",
		"folder.restore:before-return", "folder.restore:old-returning", "folder.restore:forward-fenced",
		"folder.restore:old-named", "folder.restore:undo-fenced"},
}

func TestBringingAContainerForwardConforms(t *testing.T) {
	containertest.NeedFiles(t)
	actiontest.Run(t, forwardCase)
}

// forwardCase brings back what an earlier restore has set aside.
var forwardCase = actiontest.Case{
	Name: "bringing a container forward", Action: "folder.restore", Open: openDocker, Anew: true, Brief: true,
	Start: func(t testing.TB, dir string) {
		images := containertest.Greens(t)
		b := boxIn(t, dir)
		b.Run(t, "echo one >/srv/a")
		b.Stop(t)
		keepIn(t, dir, "one", ofContainer(dir))
		deploy(t, b, images[0])
		b.Put(t, "/srv", map[string]string{"a": "two\n"})
		keepIn(t, dir, "two", ofContainer(dir))
		_, err := call(t, openWorld(t, dir), "folder.restore", "back of "+b.Name,
			with(ofContainer(dir), "checkpoint", nameOf("one")))
		require.NoError(t, err)
		t.Cleanup(func() { clearWorld(t, dir) })
	},
	With:      func(dir string) any { return with(ofContainer(dir), "checkpoint", nameOf("two")) },
	Next:      func(dir string) any { return with(ofContainer(dir), "checkpoint", nameOf("one")) },
	Manifest:  boxManifest,
	Drift:     func(t testing.TB, dir string) { put(t, dir, "a", containertest.Random()) },
	Meanwhile: func(t testing.TB, dir string) { put(t, dir, "a", "meanwhile\n") },
	Redone:    func(left, now string) bool { return withoutID(left) == withoutID(now) },
	Sample:    1,
	Own: []string{"folder.restore:before-way", "folder.restore:before-forward", "folder.restore:forward-named",
		"folder.restore:former-held", "folder.restore:before-left", "folder.restore:left-aside"},
}

// deploy removes a box, and makes another one under its name, with a restart policy of its own.
func deploy(t testing.TB, b *containertest.Box, from string, env ...string) {
	t.Helper()
	was := b.Inspect(t)
	require.NoError(t, b.ContainerRemove(t.Context(), was.ID, dockertypes.RemoveOptions{Force: true}))
	was.HostConfig.RestartPolicy.Name = dockertypes.RestartPolicyUnlessStopped
	made, err := b.ContainerCreate(t.Context(), &dockertypes.Config{Image: from, Env: env}, was.HostConfig, nil, nil, b.Name)
	require.NoError(t, err)
	b.ID = made.ID
}

// boxManifest is a box with its files, and how it was made, and what waits beside it. What only
// holds a name is no part.
func boxManifest(t testing.TB, dir string) string {
	b := containertest.In(t, dir)
	c := b.Inspect(t)
	lines := []string{c.ID, c.Name, c.Image, string(c.HostConfig.RestartPolicy.Name), strings.Join(c.Config.Env, " "),
		c.State.Status, containertest.Files(t, b)}
	for _, token := range journalTokens(t, dir) {
		for _, left := range containertest.Left(t, token) {
			if name := strings.Join(left.Names, " "); strings.Contains(name, "-again-") || left.State == "running" {
				lines = append(lines, name)
			}
		}
	}
	return strings.Join(lines, "\n")
}

func withoutID(manifest string) string { _, rest, _ := strings.Cut(manifest, "\n"); return rest }

func journalTokens(t testing.TB, dir string) (names []string) {
	all, err := os.ReadDir(filepath.Join(dir, "state", "journal", "tokens"))
	require.NoError(t, err)
	for _, f := range all {
		names = append(names, f.Name())
	}
	return names
}

// clearWorld removes what the world of a folder has left in the engine.
func clearWorld(t testing.TB, dir string) {
	containertest.ClearJournal(t, filepath.Join(dir, "state", "journal"))
}

// shop is a container with all that one can have, and what is around it.
type shop struct {
	*containertest.Box

	network, volume, anonymous, folder string
	state                              string
	world                              activities.World
}

// openShop makes one on the engine of this host.
func openShop(t *testing.T) *shop {
	containertest.NeedFiles(t)
	s := &shop{state: t.TempDir(), folder: t.TempDir(), network: "unwind-test-" + containertest.Random(),
		volume: "unwind-test-" + containertest.Random()}
	c := containertest.Docker(t)
	_, err := c.NetworkCreate(t.Context(), s.network, network.CreateOptions{
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: "10.213.7.0/24"}}}})
	require.NoError(t, err)
	t.Cleanup(func() {
		c := containertest.Docker(containertest.Outliving(t))
		clearWorld(t, s.state)
		require.NoError(t, c.NetworkRemove(context.Background(), s.network))
		for _, name := range []string{s.volume, s.anonymous} {
			require.NoError(t, c.VolumeRemove(context.Background(), name, true))
		}
	})
	s.Box = containertest.Create(t, func(c *dockertypes.Config, h *dockertypes.HostConfig, n *network.NetworkingConfig) {
		c.Env = []string{"PASSWORD=hunter2", "EMPTY="}
		c.Labels = map[string]string{"com.example.project": "shop"}
		c.User, c.WorkingDir, c.Hostname = "0:0", "/srv", "shop"
		c.Volumes = map[string]struct{}{"/anonymous": {}}
		c.ExposedPorts = nat.PortSet{"80/tcp": {}}
		h.PortBindings = nat.PortMap{"80/tcp": {{HostIP: "127.0.0.1", HostPort: "47613"}}}
		h.RestartPolicy = dockertypes.RestartPolicy{Name: dockertypes.RestartPolicyAlways}
		h.Binds = []string{s.folder + ":/outside:ro"}
		h.Mounts = []mount.Mount{{Type: mount.TypeVolume, Source: s.volume, Target: "/data"},
			{Type: mount.TypeTmpfs, Target: "/fast"}}
		h.Memory, h.CapDrop, h.ShmSize = 64<<20, []string{"NET_RAW"}, 1<<20
		h.NetworkMode = dockertypes.NetworkMode(s.network)
		n.EndpointsConfig = map[string]*network.EndpointSettings{s.network: {Aliases: []string{"store"},
			IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: "10.213.7.42"}}}
	})
	for _, m := range s.Inspect(t).Mounts {
		if m.Destination == "/anonymous" {
			s.anonymous = m.Name
		}
	}
	s.world, err = openDocker(s.state)
	require.NoError(t, err)
	return s
}

// shows is what somebody sees of the shop, while it runs, but for ids and times.
func (s *shop) shows(t *testing.T) string {
	t.Helper()
	require.NoError(t, s.ContainerStart(t.Context(), s.Name, dockertypes.StartOptions{}))
	c := s.Inspect(t)
	at := c.NetworkSettings.Networks[s.network]
	require.NotNil(t, at)
	aliases := slices.DeleteFunc(slices.Clone(at.Aliases), func(a string) bool { // these the engine has given it
		return strings.HasPrefix(c.ID, a) || a == c.Config.Hostname
	})
	mounts := []string{}
	for _, m := range c.Mounts {
		mounts = append(mounts, fmt.Sprintln(m.Type, m.Name, m.Source, m.Destination, m.RW))
	}
	slices.Sort(mounts)
	h := c.HostConfig
	said, err := json.Marshal([]any{c.Name, c.Image, c.Config.Image, c.Config.Env, c.Config.Labels, c.Config.User, c.Config.WorkingDir,
		c.Config.Hostname, c.Config.Cmd, c.Config.Entrypoint, c.NetworkSettings.Ports, at.IPAddress, aliases, mounts,
		h.RestartPolicy, h.Memory, h.CapDrop, h.ShmSize, h.NetworkMode})
	require.NoError(t, err)
	files := strings.Split(containertest.Files(t, s.Box), "\n")
	files = slices.DeleteFunc(files, func(line string) bool { return strings.HasPrefix(line, "fast ") }) // made at each start
	s.stop(t)
	return string(said) + "\n" + strings.Join(files, "\n")
}

func (s *shop) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, s.ContainerStop(t.Context(), s.Name, dockertypes.StopOptions{Timeout: new(int)}))
}

func (s *shop) call(t *testing.T, action, name string, p params) (activities.Result, error) {
	t.Helper()
	return call(t, s.world, action, name, p)
}

func (s *shop) part() params { return params{"container": s.Name} }

func (s *shop) back(to string) params { return with(s.part(), "checkpoint", nameOf(to)) }

func (s *shop) undo(t *testing.T, name string, p params) (activities.Undone, error) {
	t.Helper()
	return find(s.world, "folder.restore").Undo(t.Context(), entry(t, s.world, "folder.restore", name, p),
		activities.Decision{Done: true})
}

func (s *shop) release(t *testing.T, name, to string) {
	t.Helper()
	require.NoError(t, find(s.world, "folder.restore").Release(t.Context(),
		entry(t, s.world, "folder.restore", name, s.back(to))))
}

// deploy is what people do: the container goes, and another image has its name.
func (s *shop) deploy(t *testing.T) (id string) {
	require.NoError(t, s.ContainerRemove(t.Context(), s.Name, dockertypes.RemoveOptions{Force: true}))
	made, err := s.ContainerCreate(t.Context(),
		&dockertypes.Config{Image: containertest.Greens(t)[0], Env: []string{"PASSWORD=other"}},
		&dockertypes.HostConfig{NetworkMode: dockertypes.NetworkMode(s.network),
			RestartPolicy: dockertypes.RestartPolicy{Name: dockertypes.RestartPolicyAlways}},
		&network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{s.network: {}}}, nil, s.Name)
	require.NoError(t, err)
	s.Put(t, "/srv", map[string]string{"a": "new\n"})
	return made.ID
}

// TestADeployedContainerGoesBack is the most common way in which a container becomes another one.
func TestADeployedContainerGoesBack(t *testing.T) {
	s := openShop(t)
	s.Put(t, "/srv", map[string]string{"a": "one\n", "d/x": "x\n"})
	before := s.shows(t)
	require.Contains(t, before, "10.213.7.42")
	require.Contains(t, before, "47613")
	_, err := s.call(t, "folder.checkpoint", "one", s.part())
	require.NoError(t, err)
	old := s.Inspect(t).ID
	deployed := s.deploy(t)
	after := s.shows(t)
	require.NotEqual(t, before, after)
	_, err = s.call(t, "folder.checkpoint", "two", s.part())
	require.NoError(t, err)
	same, err := s.call(t, "folder.compare", "compare", s.back("one"))
	require.NoError(t, err)
	require.Contains(t, same.Outputs["diff"], "~ Config.Env\n")
	require.NotContains(t, same.Outputs["diff"], "hunter2")

	r, err := s.call(t, "folder.restore", "back", s.back("one"))
	require.NoError(t, err)
	require.Contains(t, r.Summary, "is made anew as "+nameOf("one")+" has it, with another id")
	require.Equal(t, before, s.shows(t))
	made := s.Inspect(t).ID
	require.NotContains(t, []string{old, deployed}, made)
	set, err := s.ContainerInspect(t.Context(), "unwind-"+token("back")+"-aside")
	require.NoError(t, err)
	require.Equal(t, deployed, set.ID)
	require.Equal(t, dockertypes.RestartPolicyDisabled, set.HostConfig.RestartPolicy.Name)
	same, err = s.call(t, "folder.compare", "compare again", s.back("one"))
	require.NoError(t, err)
	require.Equal(t, 0, same.Outputs["changed"], same.Outputs["diff"])

	undone, err := s.undo(t, "back", s.back("one"))
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome, undone)
	require.Equal(t, after, s.shows(t))
	require.Equal(t, deployed, s.Inspect(t).ID)
	_, err = s.ContainerInspect(t.Context(), made)
	require.Error(t, err)

	// Back again, forward to what was set aside, and from there.
	_, err = s.call(t, "folder.restore", "once more", s.back("one"))
	require.NoError(t, err)
	r, err = s.call(t, "folder.restore", "over", s.back("two"))
	require.NoError(t, err)
	require.Contains(t, r.Summary, "with its own id")
	require.Equal(t, after, s.shows(t))
	require.Equal(t, deployed, s.Inspect(t).ID)
	undone, err = s.undo(t, "over", s.back("two"))
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome, undone)
	require.Equal(t, before, s.shows(t))
	_, err = s.call(t, "folder.restore", "over again", s.back("two"))
	require.NoError(t, err)
	require.Equal(t, after, s.shows(t))
	require.Equal(t, deployed, s.Inspect(t).ID)

	// Back again for good, on from there, and forward again once what was set aside is gone.
	_, err = s.call(t, "folder.restore", "again", s.back("one"))
	require.NoError(t, err)
	require.Equal(t, before, s.shows(t))
	s.release(t, "again", "one")
	_, err = s.ContainerInspect(t.Context(), deployed)
	require.Error(t, err)
	s.Put(t, "/srv", map[string]string{"a": "later\n"})
	kept := s.Inspect(t).ID
	_, err = s.call(t, "folder.restore", "in place", s.back("one"))
	require.NoError(t, err)
	require.Equal(t, before, s.shows(t))
	require.Equal(t, kept, s.Inspect(t).ID, "one that was made like it is put back in place")
	_, err = s.call(t, "folder.restore", "forward", s.back("two"))
	require.NoError(t, err)
	require.Equal(t, after, s.shows(t))
}

// TestALateUndoMovesNoContainerThatIsLiveAgain: one that has been brought forward is left aside
// again by an undo, and comes back by another step, or by the undo of the one that had set it
// aside. Then the undo runs on that had looked at it before all that.
func TestALateUndoMovesNoContainerThatIsLiveAgain(t *testing.T) {
	for name, liveAgain := range map[string]func(s *shop){
		"forward again": func(s *shop) {
			_, err := s.call(t, "folder.restore", "forward again", s.back("two"))
			require.NoError(t, err)
		},
		"undone": func(s *shop) {
			undone, err := s.undo(t, "back", s.back("one"))
			require.NoError(t, err)
			require.Equal(t, activities.Restored, undone.Outcome, undone)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openShop(t)
			s.Put(t, "/srv", map[string]string{"a": "one\n"})
			s.stop(t)
			_, err := s.call(t, "folder.checkpoint", "one", s.part())
			require.NoError(t, err)
			deployed := s.deploy(t)
			_, err = s.call(t, "folder.checkpoint", "two", s.part())
			require.NoError(t, err)
			_, err = s.call(t, "folder.restore", "back", s.back("one"))
			require.NoError(t, err)
			_, err = s.call(t, "folder.restore", "forward", s.back("two"))
			require.NoError(t, err)
			require.Equal(t, deployed, s.Inspect(t).ID)

			looked, wake := make(chan struct{}), make(chan struct{})
			stop := sync.OnceFunc(func() { close(looked); <-wake })
			late := make(chan error, 1)
			point.Hook(func(label string) {
				if label == "folder.restore:before-left" {
					stop()
				}
			})
			go func() {
				_, err := s.undo(t, "forward", s.back("two"))
				late <- err
			}()
			<-looked
			point.Hook(nil)
			undone, err := s.undo(t, "forward", s.back("two"))
			require.NoError(t, err)
			require.Equal(t, activities.Restored, undone.Outcome, undone)
			liveAgain(s)
			require.Equal(t, deployed, s.Inspect(t).ID)
			require.NoError(t, s.ContainerStart(t.Context(), s.Name, dockertypes.StartOptions{}))
			close(wake)
			require.Error(t, <-late)
			now := s.Inspect(t)
			require.Equal(t, deployed, now.ID)
			require.True(t, now.State.Running)
			require.Equal(t, dockertypes.RestartPolicyAlways, now.HostConfig.RestartPolicy.Name)
			s.stop(t)
			for _, step := range [][2]string{{"back", "one"}, {"forward again", "two"}, {"forward", "two"}} {
				require.True(t, s.isHeld(t, leftBy("forward")), "before the release of %s", step[0])
				s.release(t, step[0], step[1])
			}
			for _, step := range []string{"back", "forward", "forward again"} {
				require.Empty(t, containertest.Left(t, token(step)), step)
			}
			require.Equal(t, deployed, s.Inspect(t).ID)
		})
	}
}

// TestWhatIsLeftAsideGoesWithTheStepThatSetItAside, whose record is released after that of the step
// that had brought it forward.
func TestWhatIsLeftAsideGoesWithTheStepThatSetItAside(t *testing.T) {
	s := openShop(t)
	s.stop(t)
	_, err := s.call(t, "folder.checkpoint", "one", s.part())
	require.NoError(t, err)
	deployed := s.deploy(t)
	_, err = s.call(t, "folder.checkpoint", "two", s.part())
	require.NoError(t, err)
	_, err = s.call(t, "folder.restore", "back", s.back("one"))
	require.NoError(t, err)
	made := s.Inspect(t).ID
	_, err = s.call(t, "folder.restore", "forward", s.back("two"))
	require.NoError(t, err)
	_, err = s.undo(t, "forward", s.back("two"))
	require.NoError(t, err)
	s.release(t, "forward", "two")
	require.True(t, s.isHeld(t, "unwind-"+token("back")+"-aside"), "a late forward of it would take it away")
	left, err := s.ContainerInspect(t.Context(), deployed)
	require.NoError(t, err)
	require.Equal(t, "/unwind-"+token("forward")+"-left-"+token("back"), left.Name)
	s.release(t, "back", "one")
	_, err = s.ContainerInspect(t.Context(), deployed)
	require.True(t, cerrdefs.IsNotFound(err), "%v", err)
	require.Empty(t, containertest.Left(t, token("forward")))
	require.Empty(t, containertest.Left(t, token("back")))
	require.Equal(t, made, s.Inspect(t).ID)
}

// leftBy is the name under which a step leaves the container aside that step back has set aside.
func leftBy(step string) string { return "unwind-" + token(step) + "-left-" + token("back") }

// isHeld says that a container has a name which is not the one in its place.
func (s *shop) isHeld(t *testing.T, name string) bool {
	t.Helper()
	c, err := s.ContainerInspect(t.Context(), name)
	if cerrdefs.IsNotFound(err) {
		return false
	}
	require.NoError(t, err)
	return c.Config.Entrypoint[0] == "/unwind-holds-this-name"
}

// cutOff runs a call whose worker is cut off at a point.
func cutOff(t *testing.T, at string, do func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	point.Hook(func(label string) {
		if label == at {
			cancel()
		}
	})
	defer point.Hook(nil)
	require.ErrorIs(t, do(ctx), context.Canceled)
}

// wentBack is a shop whose container was deployed anew, which step back has set aside.
func wentBack(t *testing.T) (s *shop, deployed string) {
	s = openShop(t)
	s.stop(t)
	_, err := s.call(t, "folder.checkpoint", "one", s.part())
	require.NoError(t, err)
	deployed = s.deploy(t)
	_, err = s.call(t, "folder.checkpoint", "two", s.part())
	require.NoError(t, err)
	_, err = s.call(t, "folder.restore", "back", s.back("one"))
	require.NoError(t, err)
	return s, deployed
}

// undoCutOff undoes step back, and is cut off.
func (s *shop) undoCutOff(t *testing.T, at string) {
	t.Helper()
	cutOff(t, at, func(ctx context.Context) error {
		_, err := find(s.world, "folder.restore").Undo(ctx, entry(t, s.world, "folder.restore", "back", s.back("one")),
			activities.Decision{Done: true})
		return err
	})
}

// forwardAndBack brings the deployed container forward, and leaves it aside again.
func (s *shop) forwardAndBack(t *testing.T, step string) {
	t.Helper()
	_, err := s.call(t, "folder.restore", step, s.back("two"))
	require.NoError(t, err)
	undone, err := s.undo(t, step, s.back("two"))
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome, undone)
}

// TestAnUndoThatWasCutOffComesToItsEnd though another step has brought the container forward from
// where that undo had left it.
func TestAnUndoThatWasCutOffComesToItsEnd(t *testing.T) {
	s, deployed := wentBack(t)
	s.undoCutOff(t, "folder.restore:old-returning")
	s.forwardAndBack(t, "forward")
	undone, err := s.undo(t, "back", s.back("one"))
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome, undone)
	require.Equal(t, deployed, s.Inspect(t).ID)
	require.True(t, s.isHeld(t, leftBy("forward")))
	s.release(t, "forward", "two")
	s.release(t, "back", "one")
	require.Empty(t, containertest.Left(t, token("forward")))
	require.Empty(t, containertest.Left(t, token("back")))
	require.Equal(t, deployed, s.Inspect(t).ID)
}

// TestAnUndoHoldsTheNameThatTheContainerHadLast: one that was cut off had found another one.
func TestAnUndoHoldsTheNameThatTheContainerHadLast(t *testing.T) {
	s, deployed := wentBack(t)
	s.forwardAndBack(t, "forward")
	s.undoCutOff(t, "folder.restore:before-return")
	s.forwardAndBack(t, "forward again")
	undone, err := s.undo(t, "back", s.back("one"))
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome, undone)
	require.Equal(t, deployed, s.Inspect(t).ID)
	require.True(t, s.isHeld(t, leftBy("forward")))
	require.True(t, s.isHeld(t, leftBy("forward again")))
	for _, step := range [][2]string{{"back", "one"}, {"forward", "two"}, {"forward again", "two"}} {
		s.release(t, step[0], step[1])
		require.Empty(t, containertest.Left(t, token(step[0])))
	}
}

// TestAForwardThatWasCutOffLeavesNoNameFree by which a late forward of the step that had set the
// container aside could take it away once it is in its place.
func TestAForwardThatWasCutOffLeavesNoNameFree(t *testing.T) {
	s, _ := wentBack(t)
	cutOff(t, "folder.restore:before-way", func(ctx context.Context) error {
		e := entry(t, s.world, "folder.restore", "forward", s.back("two"))
		_, err := find(s.world, e.Action).Apply(ctx, e, activities.Step{ID: "forward", With: e.Params}, "")
		return err
	})
	undone, err := s.undo(t, "forward", s.back("two"))
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome, undone)
	require.True(t, s.isHeld(t, "unwind-"+token("back")+"-aside"))
}

// TestAContainerThatIsGoneIsMadeAgain and goes again with the undo.
func TestAContainerThatIsGoneIsMadeAgain(t *testing.T) {
	s := openShop(t)
	s.Put(t, "/srv", map[string]string{"a": "one\n"})
	before := s.shows(t)
	_, err := s.call(t, "folder.checkpoint", "one", s.part())
	require.NoError(t, err)
	require.NoError(t, s.ContainerRemove(t.Context(), s.ID, dockertypes.RemoveOptions{Force: true}))
	_, err = s.call(t, "folder.checkpoint", "refused", s.part())
	require.ErrorContains(t, err, "the engine has no container")
	r, err := s.call(t, "folder.checkpoint", "absent", with(s.part(), "absent", true))
	require.NoError(t, err)
	require.Equal(t, "kept that there is no container "+s.Name, r.Summary)
	_, err = s.call(t, "folder.verify", "verify", s.back("one"))
	require.NoError(t, err)
	_, err = s.call(t, "folder.restore", "back", s.back("one"))
	require.NoError(t, err)
	require.Equal(t, before, s.shows(t))
	made := s.Inspect(t).ID

	_, err = s.call(t, "folder.restore", "forward", s.back("absent"))
	require.NoError(t, err)
	_, err = s.ContainerInspect(t.Context(), s.Name)
	require.Error(t, err)
	undone, err := s.undo(t, "forward", s.back("absent"))
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome, undone)
	require.Equal(t, made, s.Inspect(t).ID)
	undone, err = s.undo(t, "back", s.back("one"))
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome, undone)
	_, err = s.ContainerInspect(t.Context(), s.Name)
	require.Error(t, err)
}

// TestAThirdContainerIsNotTakenAway, not even by force.
func TestAThirdContainerIsNotTakenAway(t *testing.T) {
	s := openShop(t)
	_, err := s.call(t, "folder.checkpoint", "one", s.part())
	require.NoError(t, err)
	s.deploy(t)
	_, err = s.call(t, "folder.restore", "back", s.back("one"))
	require.NoError(t, err)
	third := s.deploy(t)
	undone, err := s.undo(t, "back", s.back("one"))
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, undone.Outcome)
	require.Nil(t, undone.Drift, "it cannot be forced")
	require.Contains(t, undone.Observed, "is another one ("+third[:12]+")")
	require.Equal(t, third, s.Inspect(t).ID)
}

// TestWhatCannotBeMadeAgainIsRefused before anything is touched.
func TestWhatCannotBeMadeAgainIsRefused(t *testing.T) {
	s := openShop(t)
	_, err := s.call(t, "folder.checkpoint", "one", s.part())
	require.NoError(t, err)
	old := s.Inspect(t).ID
	require.NoError(t, s.ContainerRename(t.Context(), old, s.Name+"-old"))
	refused := func(name, why string) {
		t.Helper()
		for _, action := range []string{"folder.verify", "folder.restore"} {
			_, err := s.call(t, action, name, s.back("one"))
			require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
			require.ErrorContains(t, err, why)
		}
	}
	refused("renamed", "the one that was kept as "+s.Name+" is called "+s.Name+"-old now")
	require.NoError(t, s.ContainerRemove(t.Context(), old, dockertypes.RemoveOptions{Force: true}))
	require.NoError(t, s.VolumeRemove(t.Context(), s.volume, true))
	refused("volume", "the volume "+s.volume+" is gone that it had at /data")
	require.NoError(t, s.NetworkRemove(t.Context(), s.network))
	found, err := s.ContainerList(t.Context(),
		dockertypes.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("name", s.Name))})
	require.NoError(t, err)
	require.Empty(t, found)

	auto := containertest.Create(t, func(_ *dockertypes.Config, h *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		h.AutoRemove = true
	})
	_, err = s.call(t, "folder.checkpoint", "auto", params{"container": auto.Name})
	require.ErrorContains(t, err, "the engine removes "+auto.Name+" as soon as it stops")
	_, err = s.NetworkCreate(t.Context(), s.network, network.CreateOptions{}) // for the cleanup
	require.NoError(t, err)
}

// TestACheckpointHoldsItsImage while nothing else does, and lets go of it.
func TestACheckpointHoldsItsImage(t *testing.T) {
	containertest.NeedFiles(t)
	dir := t.TempDir()
	t.Cleanup(func() { clearWorld(t, dir) })
	b := containertest.Start(t)
	b.Stop(t)
	made, err := b.ContainerCommit(t.Context(), b.ID, dockertypes.CommitOptions{Reference: containertest.ImageRef("held")})
	require.NoError(t, err)
	ref := imageNames(t, b, made.ID)[0]
	require.NoError(t, b.ContainerRemove(t.Context(), b.ID, dockertypes.RemoveOptions{Force: true}))
	create := func(from string) {
		_, err := b.ContainerCreate(t.Context(), &dockertypes.Config{Image: from}, &dockertypes.HostConfig{NetworkMode: "none"},
			nil, nil, b.Name)
		require.NoError(t, err)
	}
	create(ref)
	keepIn(t, dir, "one", params{"container": b.Name})
	require.NoError(t, b.ContainerRemove(t.Context(), b.Name, dockertypes.RemoveOptions{Force: true}))
	_, err = b.ImageRemove(t.Context(), ref, image.RemoveOptions{})
	require.NoError(t, err)
	w := openWorld(t, dir)
	_, err = call(t, w, "folder.restore", "back", params{"container": b.Name, "checkpoint": nameOf("one")})
	require.NoError(t, err)
	require.Equal(t, made.ID, b.Inspect(t).Image)
	drop := func(name string) {
		t.Helper()
		_, err := find(w, "folder.checkpoint").Undo(t.Context(), entry(t, w, "folder.checkpoint", name,
			params{"container": b.Name}), activities.Decision{Done: true})
		require.NoError(t, err)
	}
	drop("one")
	require.Len(t, imageNames(t, b, made.ID), 1, "a container stands on it")
	require.NoError(t, b.ContainerRemove(t.Context(), b.Name, dockertypes.RemoveOptions{Force: true}))
	create(containertest.ShellImage(t, b.Client))
	keepIn(t, dir, "two", params{"container": b.Name})
	drop("two")
	require.Empty(t, imageNames(t, b, made.ID), "the next one that goes takes the name of the first")
	require.Len(t, imageNames(t, b, b.Inspect(t).Image), 1)
}

// TestACheckpointThatIsTakenWhileAnotherGoesKeepsItsImage is taken as the engine is asked which images
// have names.
func TestACheckpointThatIsTakenWhileAnotherGoesKeepsItsImage(t *testing.T) {
	containertest.NeedFiles(t)
	dir := t.TempDir()
	t.Cleanup(func() { clearWorld(t, dir) })
	b := containertest.Start(t)
	b.Stop(t)
	keepIn(t, dir, "one", params{"container": b.Name})
	before := imageNames(t, b, b.Inspect(t).Image)
	asked := 0
	w, err := folder.New(folder.Config{State: filepath.Join(dir, "state"), Engine: engineThat(t, func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/images/json") {
			asked++
			keepIn(t, dir, "two", params{"container": b.Name})
		}
	})})
	require.NoError(t, err)
	_, err = find(w, "folder.checkpoint").Undo(t.Context(), entry(t, w, "folder.checkpoint", "one",
		params{"container": b.Name}), activities.Decision{Done: true})
	require.NoError(t, err)
	require.Equal(t, 1, asked)
	after := imageNames(t, b, b.Inspect(t).Image)
	require.Len(t, after, len(before), "the name of the second has come, that of the first has gone")
	require.NotEqual(t, before, after)
}

// engineThat is the engine behind a socket that tells of each request before it passes it on.
func engineThat(t *testing.T, tell func(*http.Request)) (address string) {
	socket := filepath.Join(t.TempDir(), "engine.sock")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	to := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(containertest.Socket, "unix://"))
		}},
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tell(r)
		to.ServeHTTP(w, r)
	}), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return "unix://" + socket
}

// TestAContainerThatIsStartedWhileAnotherIsFilledStays: it is not at rest any more when its turn comes.
func TestAContainerThatIsStartedWhileAnotherIsFilledStays(t *testing.T) {
	containertest.NeedFiles(t)
	dir := t.TempDir()
	t.Cleanup(func() { clearWorld(t, dir) })
	images := containertest.Greens(t)
	b := boxIn(t, dir)
	b.Stop(t)
	keepIn(t, dir, "one", ofContainer(dir))
	deploy(t, b, images[0])
	for at, hasName := range map[string]bool{"folder.restore:filled": true, "folder.restore:before-aside": false} {
		point.Hook(func(label string) {
			if label == at {
				require.NoError(t, b.ContainerStart(t.Context(), b.ID, dockertypes.StartOptions{}))
			}
		})
		w := openWorld(t, dir)
		p := with(ofContainer(dir), "checkpoint", nameOf("one"))
		_, err := call(t, w, "folder.restore", at, p)
		point.Hook(nil)
		require.ErrorContains(t, err, "its files are in use", at)
		now, err := b.ContainerInspect(t.Context(), b.ID)
		require.NoError(t, err)
		require.Equal(t, hasName, now.Name == "/"+b.Name, at)
		require.True(t, now.State.Running, at)
		require.NoError(t, b.ContainerStop(t.Context(), b.ID, dockertypes.StopOptions{}))
		_, err = find(w, "folder.restore").Undo(t.Context(), entry(t, w, "folder.restore", at, p), activities.Decision{})
		require.NoError(t, err)
		require.Equal(t, "/"+b.Name, b.Inspect(t).Name, at)
	}
}

// imageNames are the names of an image, and none of one that is not there.
func imageNames(t testing.TB, b *containertest.Box, id string) []string {
	found, err := b.ImageInspect(t.Context(), id)
	if cerrdefs.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return found.RepoTags
}

// TestAContainerIsMadeAgainOnOverlay2: files of its image that were removed or replaced are so again.
func TestAContainerIsMadeAgainOnOverlay2(t *testing.T) {
	testrun.NeedRoot(t, "the files of containers")
	e := enginetest.Start(t)
	containertest.Prepare(t, e)
	b := containertest.StartOn(t, e)
	w, err := folder.New(folder.Config{State: t.TempDir(), Engine: e.Host})
	require.NoError(t, err)
	b.Put(t, "/srv", map[string]string{"a": "one\n", "d/x": "x\n", "gone/a": "a\n"})
	b.Run(t, change)
	before := containertest.Files(t, b)
	require.NotContains(t, before, "bin/gzip")
	b.Stop(t)
	_, err = call(t, w, "folder.checkpoint", "one", params{"container": b.Name})
	require.NoError(t, err)
	deploy(t, b, b.Inspect(t).Image)
	_, err = call(t, w, "folder.restore", "back", params{"container": b.Name, "checkpoint": nameOf("one")})
	require.NoError(t, err)
	require.NoError(t, b.ContainerStart(t.Context(), b.Name, dockertypes.StartOptions{}))
	require.Equal(t, before, containertest.Files(t, b))
}
