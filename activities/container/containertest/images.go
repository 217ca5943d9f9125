package containertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/docker/demoimage"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
)

// refs are the names of images that are removed at the end.
var refs struct {
	mu  sync.Mutex
	all []string
}

// ImageRef is a name for an image that the tests of this process share. RemoveImages removes it.
func ImageRef(what string) string {
	refs.mu.Lock()
	defer refs.mu.Unlock()
	ref := "unwind/test-" + what + ":" + Random()
	refs.all = append(refs.all, ref)
	return ref
}

// RemoveImages removes the images that the tests of this process shared, and that of its sidecars:
// TestMain calls it at its end. Where no engine answers, no test has made any.
func RemoveImages() error {
	c, err := connect()
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Ping(context.Background()); client.IsErrConnectionFailed(err) {
		return nil
	}
	if ref, failed := sidecar.Ref(); failed == nil { // else it has none
		err = removeImage(ref)
	}
	for _, ref := range slices.Backward(refs.all) {
		err = errors.Join(err, removeImage(ref))
	}
	return err
}

// shell is the image of all boxes: made at the first need.
var shell struct {
	once sync.Once
	id   string
	err  error
}

// ShellImage is the image that boxes are made from.
func ShellImage(t testing.TB, c *client.Client) (id string) {
	t.Helper()
	shell.once.Do(func() {
		shell.id, shell.err = demoimage.Build(t.Context(), c, ImageRef("shell"))
	})
	require.NoError(t, shell.err)
	return shell.id
}

var green struct {
	once sync.Once
	ids  []string
}

// Greens are images to replace a box by. The second asks for a volume at /unnamed.
func Greens(t testing.TB) []string {
	t.Helper()
	green.once.Do(func() {
		for i := range 2 {
			b := Start(t)
			b.Run(t, fmt.Sprintf("echo %d >/srv/green", i))
			made, err := b.ContainerCommit(t.Context(), b.ID, container.CommitOptions{
				Reference: ImageRef("green"), Changes: []string{"VOLUME /unnamed"}[:i],
			})
			require.NoError(t, err)
			green.ids = append(green.ids, made.ID)
		}
	})
	require.Len(t, green.ids, 2)
	return green.ids
}

// RemoveImage removes an image, where it is there.
func RemoveImage(t testing.TB, ref string) {
	require.NoError(t, removeImage(ref))
}

func removeImage(ref string) error {
	c, err := connect()
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.ImageRemove(context.Background(), ref, image.RemoveOptions{Force: true, PruneChildren: true})
	if cerrdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// Checkpoints are the images that a token has.
func Checkpoints(t testing.TB, token string) []image.Summary {
	t.Helper()
	return imagesNamed(t, "unwind/checkpoint:"+token)
}

// Kept is what rollbacks of a token have kept.
func Kept(t testing.TB, token string) []image.Summary {
	t.Helper()
	return imagesNamed(t, "unwind/kept:"+token)
}

func imagesNamed(t testing.TB, name string) []image.Summary {
	t.Helper()
	found, err := Docker(t).ImageList(t.Context(),
		image.ListOptions{Filters: filters.NewArgs(filters.Arg("reference", name+"*"))})
	require.NoError(t, err)
	return found
}
