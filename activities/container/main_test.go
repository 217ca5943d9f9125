package container_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	cerrdefs "github.com/containerd/errdefs"
	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container"
	demoimage "github.com/seed-62bf7108/unwind/activities/container/image"
)

func TestMain(m *testing.M) {
	container.Attend()
	if worker := os.Getenv(workerEnv); worker != "" {
		actAsWorker(worker)
	}
	code := actiontest.Main(m, changing, reading, replacing)
	removeShell()
	os.Exit(code)
}

// shellRef is the image of all test containers: made at the first need, removed at the end.
var shellRef = "unwind/test-shell:" + random()

var shell struct {
	once sync.Once
	id   string
	err  error
}

func random() string { return strings.ToLower(rand.Text()[:10]) }

// docker is a client of the tests' own.
func docker(t testing.TB) *client.Client {
	t.Helper()
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	if _, err := c.Ping(t.Context()); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no Docker engine answers: %v", err)
		}
		t.Skipf("SKIPPED: no Docker engine answers, so commands in containers are not tested: %v", err)
	}
	return c
}

func shellImage(t testing.TB, c *client.Client) string {
	t.Helper()
	shell.once.Do(func() { shell.id, shell.err = demoimage.Build(t.Context(), c, shellRef) })
	require.NoError(t, shell.err)
	return shell.id
}

func removeShell() {
	if shell.id == "" {
		return
	}
	refs := append([]string{shellRef}, green.ids...)
	if gnu.ref != "" {
		refs = append(refs, gnu.ref)
	}
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	for _, ref := range refs {
		if err == nil {
			_, err = c.ImageRemove(context.Background(), ref, image.RemoveOptions{Force: true, PruneChildren: true})
		}
	}
	if err != nil {
		panic(err)
	}
}

// box is a container under test.
type box struct {
	*client.Client
	name, id string
}

// startBox starts a container; each of edit changes how it is made. It is gone, whatever became of it, after the test.
func startBox(t testing.TB, edit ...func(*dockertypes.Config, *dockertypes.HostConfig, *network.NetworkingConfig)) *box {
	t.Helper()
	c := docker(t)
	b := &box{Client: c, name: "unwind-test-" + random()}
	config := &dockertypes.Config{Image: shellImage(t, c)}
	host, net := &dockertypes.HostConfig{NetworkMode: "none"}, &network.NetworkingConfig{}
	for _, e := range edit {
		e(config, host, net)
	}
	made, err := c.ContainerCreate(t.Context(), config, host, net, nil, b.name)
	require.NoError(t, err)
	b.id = made.ID
	t.Cleanup(func() { b.removeAll(t) })
	require.NoError(t, c.ContainerStart(t.Context(), b.id, dockertypes.StartOptions{}))
	return b
}

// removeAll removes whatever has the box's name, and the checkpoint that it stands on.
func (b *box) removeAll(t testing.TB) {
	ctx := context.Background()
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	defer c.Close()
	for _, id := range []string{b.id, b.name} {
		gone, err := c.ContainerInspect(ctx, id)
		if cerrdefs.IsNotFound(err) {
			continue
		}
		require.NoError(t, err)
		require.NoError(t, c.ContainerRemove(ctx, gone.ID, dockertypes.RemoveOptions{Force: true, RemoveVolumes: true}))
		for id := gone.Image; id != shell.id && id != gnu.id && !slices.Contains(green.ids, id); {
			img, err := c.ImageInspect(ctx, id)
			if cerrdefs.IsNotFound(err) {
				break
			}
			require.NoError(t, err)
			removeImage(t, id)
			id = img.Parent //nolint:staticcheck // the tests' engine tells it
		}
	}
}

func (b *box) inspect(t testing.TB) dockertypes.InspectResponse {
	t.Helper()
	c, err := b.ContainerInspect(t.Context(), b.name)
	require.NoError(t, err)
	return c
}

// run runs a command beside all that is under test.
func (b *box) run(t testing.TB, command string) {
	t.Helper()
	made, err := b.ContainerExecCreate(t.Context(), b.name, dockertypes.ExecOptions{Cmd: []string{"sh", "-c", command}, AttachStdout: true})
	require.NoError(t, err)
	stream, err := b.ContainerExecAttach(t.Context(), made.ID, dockertypes.ExecAttachOptions{})
	require.NoError(t, err)
	defer stream.Close()
	var sink strings.Builder
	_, err = stream.Reader.WriteTo(&sink)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		seen, err := b.ContainerExecInspect(t.Context(), made.ID)
		return err == nil && !seen.Running && seen.ExitCode == 0
	}, 10e9, 10e6, "%s: %s", command, sink.String())
}

// stage is a world with its journal, and the steps that a test takes in it.
type stage struct {
	world   activities.World
	action  activities.Action
	replace activities.Action
	place   string
}

func newStage(t testing.TB, state string) *stage {
	t.Helper()
	w, err := container.New(container.Config{State: state})
	require.NoError(t, err)
	place, err := w.Journal(t.Context())
	require.NoError(t, err)
	return &stage{world: w, action: w.Actions[0], replace: w.Actions[1], place: place}
}

// entry is that of a new step with a token of its own. Its checkpoint is gone after the test.
func (s *stage) entry(t testing.TB) activities.Entry {
	token := activities.NewToken(random(), "it", 1)
	t.Cleanup(func() { removeImagesOf(t, token) })
	return activities.Entry{
		Version: activities.EntryVersion, Seq: 1, Step: "it", Action: "container.exec", UndoType: "container.exec.undo",
		Token: token, Place: activities.Place{Journal: s.place},
	}
}

// removeImagesOf removes the checkpoint of a token, and what its rollbacks have kept.
func removeImagesOf(t testing.TB, token string) {
	for _, img := range append(keptImages(cleanup{t}, token), checkpoints(cleanup{t}, token)...) {
		for _, ref := range img.RepoTags { // what a container still stands on only loses its name
			removeImage(t, ref)
		}
	}
}

// keptImages lists what rollbacks of a token have kept.
func keptImages(t testing.TB, token string) []image.Summary {
	t.Helper()
	return imagesNamed(t, "unwind/kept:"+token)
}

func imagesNamed(t testing.TB, name string) []image.Summary {
	t.Helper()
	found, err := docker(t).ImageList(t.Context(), image.ListOptions{Filters: filters.NewArgs(filters.Arg("reference", name+"*"))})
	require.NoError(t, err)
	return found
}

func removeImage(t testing.TB, ref string) {
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.ImageRemove(context.Background(), ref, image.RemoveOptions{Force: true, PruneChildren: true})
	if !cerrdefs.IsNotFound(err) {
		require.NoError(t, err)
	}
}

func step(t testing.TB, with map[string]any, checks ...activities.Check) activities.Step {
	t.Helper()
	raw, err := json.Marshal(with)
	require.NoError(t, err)
	return activities.Step{ID: "it", With: raw, Checks: checks}
}
