package sidecar

import (
	"context"
	"runtime"
	"testing"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
)

// shelf is an engine that has made containers and never started them.
type shelf struct {
	Engine

	made    []container.Summary
	images  []image.Summary
	inUse   string
	arch    string
	removed []string
}

func (s *shelf) ContainerList(context.Context, container.ListOptions) ([]container.Summary, error) {
	return s.made, nil
}

func (s *shelf) ContainerRemove(_ context.Context, id string, _ container.RemoveOptions) error {
	s.removed = append(s.removed, id)
	return nil
}

func (s *shelf) ImageList(context.Context, image.ListOptions) ([]image.Summary, error) {
	return s.images, nil
}

func (s *shelf) ImageRemove(_ context.Context, ref string, o image.RemoveOptions) ([]image.DeleteResponse, error) {
	if ref == s.inUse && !o.Force {
		return nil, cerrdefs.ErrConflict
	}
	s.removed = append(s.removed, ref)
	return nil, nil
}

func (s *shelf) ServerVersion(context.Context) (types.Version, error) {
	return types.Version{Os: runtime.GOOS, Arch: s.arch}, nil
}

func TestImagesOfProgramsThatNobodyRunsAreRemoved(t *testing.T) {
	t.Parallel()
	const now, day = 1_000_000, 86_400
	e := &shelf{inUse: "unwind/overlay-helper:used", images: []image.Summary{
		{ID: "own", Created: now, RepoTags: []string{"unwind/overlay-helper:own"}},
		{ID: "young", Created: now - day, RepoTags: []string{"unwind/overlay-helper:young"}},
		{ID: "used", Created: now - 2*day, RepoTags: []string{"unwind/overlay-helper:used"}},
		{ID: "old", Created: now - 2*day, RepoTags: []string{"unwind/overlay-helper:old"}},
	}}
	require.NoError(t, launch{engine: e, home: "here"}.removeOldImages(t.Context(), "own"))
	assert.Equal(t, []string{"unwind/overlay-helper:old"}, e.removed)
}

func TestAnEngineOfAnotherPlatformHasNoSidecar(t *testing.T) {
	t.Parallel()
	err := launch{engine: &shelf{arch: "s390x"}, home: "here"}.importImage(t.Context())
	assert.Equal(t, helper.Unfit, helper.KindOf(err))
	require.ErrorContains(t, err, "the engine runs on linux/s390x")
	require.ErrorContains(t, err, "run a worker built for linux/s390x")
}

func TestWhatADeadWorkerMadeAndNeverStartedIsRemoved(t *testing.T) {
	t.Parallel()
	e := &shelf{made: []container.Summary{{ID: "mine", Created: 1000}, {ID: "another's", Created: 995},
		{ID: "left", Created: 900}}}
	require.NoError(t, launch{engine: e, home: "here"}.removeUnstarted(t.Context(), "mine"))
	assert.Equal(t, []string{"left"}, e.removed)
}
