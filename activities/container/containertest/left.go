package containertest

import (
	"strings"
	"testing"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Left are the containers that a token has left under names of its own.
func Left(t testing.TB, token string) []container.Summary {
	t.Helper()
	found, err := Docker(t).ContainerList(t.Context(),
		container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("name", "^/unwind-"+token))})
	require.NoError(t, err)
	return found
}

// Clear removes what a token has left: its containers, its checkpoint, and what its rollbacks have
// kept. It is for a Cleanup.
func Clear(t testing.TB, token string) {
	t = Outliving(t)
	for _, c := range Left(t, token) {
		require.NoError(t,
			Docker(t).ContainerRemove(t.Context(), c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	}
	for _, img := range append(Kept(t, token), Checkpoints(t, token)...) {
		for _, ref := range img.RepoTags { // what a container still stands on only loses its name
			RemoveImage(t, ref)
		}
		removeMade(t, img.ParentID)
	}
}

// removeMade removes an image that steps have made, and those below it, as far as nothing stands on
// them.
func removeMade(t testing.TB, id string) {
	for {
		img, err := Docker(t).ImageInspect(t.Context(), id)
		if cerrdefs.IsNotFound(err) || err == nil && !strings.HasPrefix(img.Comment, "Unwind: ") {
			return
		}
		require.NoError(t, err)
		if _, err = Docker(t).ImageRemove(t.Context(), id, image.RemoveOptions{}); cerrdefs.IsConflict(err) {
			return
		}
		require.NoError(t, err)
		id = img.Parent //nolint:staticcheck // the tests' engine tells it
	}
}

// ClearJournal removes what the world of folders with this journal has left in the engine: its tokens'
// containers, and the names of images that it held. It is for a Cleanup.
func ClearJournal(t testing.TB, dir string) {
	j, err := journal.Open(dir)
	require.NoError(t, err)
	tokens, err := j.Tokens()
	require.NoError(t, err)
	for _, token := range tokens {
		Clear(t, token)
	}
	for _, img := range imagesNamed(Outliving(t), "unwind/container-"+strings.ToLower(j.ID())+":") {
		for _, ref := range img.RepoTags {
			RemoveImage(t, ref)
		}
	}
}
