package dockercommit

import (
	"context"
	"errors"
	"strings"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"

	"github.com/seed-62bf7108/unwind/activities/container/lineage"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// findImages finds the images with a name that begins so.
func (b *Backend) findImages(ctx context.Context, refs string) ([]image.Summary, error) {
	found, err := b.engine.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("reference", refs+"*"))})
	return found, engine.Explain("looking for images "+refs+"*", err)
}

// dropImages takes these names away from all images but one.
func (b *Backend) dropImages(ctx context.Context, refs, but string) error {
	found, err := b.findImages(ctx, refs)
	if err != nil {
		return err
	}
	for _, img := range found {
		if img.ID == but {
			continue
		}
		for _, ref := range img.RepoTags {
			if !strings.HasPrefix(ref, refs) {
				continue
			}
			if err := b.dropRef(ctx, ref); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Backend) dropRef(ctx context.Context, ref string) error {
	named, err := b.engine.ImageInspect(ctx, ref)
	if engine.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return engine.Explain("looking for image "+ref, err)
	}
	_, err = b.engine.ImageRemove(ctx, ref, image.RemoveOptions{})
	if engine.IsConflict(err) { // a container stands on it
		if err = b.engine.ImageTag(ctx, named.ID, lineage.StandingRef(named.ID)); err == nil {
			_, err = b.engine.ImageRemove(ctx, ref, image.RemoveOptions{})
		}
	}
	if err != nil && !engine.IsNotFound(err) && !engine.IsConflict(err) {
		return engine.Explain("dropping image "+ref, err)
	}
	// Where the name was the last thing that held the image it is gone already, and its parent has
	// nothing above it now.
	return errors.Join(b.lineage.DropImage(ctx, named.ID), b.lineage.DropImage(ctx, named.Parent)) //nolint:staticcheck // see lineage.DropImage
}
