package container_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// mostLayers are as many as an engine takes.
const mostLayers = 125

// deepImage is the image of small containers with so many empty layers over it that an engine takes
// no more.
func deepImage(t *testing.T) string {
	t.Helper()
	c, ref := containertest.Docker(t), "unwind/test-deep:"+containertest.Random()
	saved, err := c.ImageSave(t.Context(), []string{containertest.ShellImage(t, c)})
	require.NoError(t, err)
	defer saved.Close()
	files := map[string][]byte{}
	for r := tar.NewReader(saved); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		files[h.Name], err = io.ReadAll(r)
		require.NoError(t, err)
	}
	var list []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	require.NoError(t, json.Unmarshal(files["manifest.json"], &list))
	var config map[string]any
	require.NoError(t, json.Unmarshal(files[list[0].Config], &config))
	empty := make([]byte, 1024)
	digest := sha256.Sum256(empty)
	root := config["rootfs"].(map[string]any)
	require.Len(t, list[0].Layers, 1)
	for len(list[0].Layers) < mostLayers {
		list[0].Layers = append(list[0].Layers, "empty/layer.tar")
		root["diff_ids"] = append(root["diff_ids"].([]any), "sha256:"+hex.EncodeToString(digest[:]))
	}
	delete(config, "history")
	load := map[string][]byte{"empty/layer.tar": empty, list[0].Layers[0]: files[list[0].Layers[0]]}
	list[0].Config, list[0].RepoTags = "config.json", []string{ref}
	load["manifest.json"], err = json.Marshal(list)
	require.NoError(t, err)
	load["config.json"], err = json.Marshal(config)
	require.NoError(t, err)

	var deep bytes.Buffer
	w := tar.NewWriter(&deep)
	for name, content := range load {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))}))
		_, err = w.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	loaded, err := c.ImageLoad(t.Context(), &deep, client.ImageLoadWithQuiet(true))
	require.NoError(t, err)
	said, err := io.ReadAll(loaded.Body)
	require.NoError(t, err)
	require.NoError(t, loaded.Body.Close())
	is, err := c.ImageInspect(t.Context(), ref)
	require.NoError(t, err, "%s", said)
	require.Len(t, is.RootFS.Layers, mostLayers)
	t.Cleanup(func() {
		o := containertest.Outliving(t)
		_, err := containertest.Docker(o).ImageRemove(o.Context(), ref,
			dockerimage.RemoveOptions{Force: true, PruneChildren: true})
		require.NoError(t, err)
	})
	return ref
}

func TestAContainerOfAsManyLayersAsAnEngineTakesIsSquashed(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	deep := deepImage(t)
	b := containertest.Start(t, func(c *dockertypes.Config, _ *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		c.Image, c.Env, c.Labels = deep, []string{"OF=the container"}, map[string]string{"unwind.test": "deep"}
	})
	b.Put(t, "/srv", map[string]string{"a": "one\n", "d/x": "x\n"})
	f := newFront(t)
	s, before, was := frontStage(t, f), containertest.Files(t, b), b.Inspect(t)
	e, with := s.entry(t), step(t, map[string]any{"container": b.Name, "command": "echo two >/srv/a; rm -r /srv/d"})
	f.before(http.MethodGet, "/export", func(*http.Request) { b.Run(t, "echo "+containertest.Random()+" >/srv/busy") })
	_, err := s.action.Apply(t.Context(), e, with, "")
	require.Equal(t, activities.ActionFailed, activities.TypeOf(err), "it is tried again: %v", err)
	require.ErrorContains(t, err, "cannot be squashed while the container writes all the time")
	require.Empty(t, containertest.Checkpoints(t, e.Token), "no image holds what never was")
	f.before(http.MethodGet, "/nothing", nil)
	b.Run(t, "rm /srv/busy")
	b.Put(t, "/srv", map[string]string{"a": "one\n", "d/x": "x\n"}) // the folder has its time again

	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Nothing, u.Outcome)
	e = s.entry(t)
	_, err = s.action.Apply(t.Context(), e, with, "")
	require.NoError(t, err)
	u, err = s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	assert.Equal(t, before, containertest.Files(t, b))
	now := b.Inspect(t)
	assert.Equal(t, was.Config.Env, now.Config.Env)
	assert.Equal(t, was.Config.Cmd, now.Config.Cmd)
	assert.Equal(t, was.Config.Labels, now.Config.Labels)
	flat, err := b.ImageInspect(t.Context(), now.Image)
	require.NoError(t, err)
	assert.Len(t, flat.RootFS.Layers, 1)
	for range 2 { // and it goes on from there
		next := s.entry(t)
		_, err = s.action.Apply(t.Context(), next, with, "")
		require.NoError(t, err)
		mustUndo(t, s, next, activities.Decision{})
		assert.Equal(t, before, containertest.Files(t, b))
	}
}
