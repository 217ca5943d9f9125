package folder

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"

	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// noContainer is what is kept about a container that is not there.
const noContainer = "null"

// toKeep is what a checkpoint has of a location: the folder, and of a container what the engine says
// of it, from which it can be made again. Of one that is not there, the folder is an empty one.
func (l location) toKeep() (root snapshot.Root, about string, done func(), err error) {
	if !l.absent {
		return l.root(), string(l.said), func() {}, nil
	}
	empty, err := os.MkdirTemp("", "unwind-absent-")
	return snapshot.Root{Path: l.key, At: empty}, noContainer, func() { _ = os.Remove(empty) }, err
}

// imageRepository has a name for each image that a checkpoint of this world needs.
func (w *world) imageRepository() string {
	return "unwind/container-" + strings.ToLower(w.journal.ID())
}

// holdImage gives the image of a container a name, with which it stays when the container goes and
// its own name is another image's. It says so where the engine has not got the image any more.
func (w *world) holdImage(ctx context.Context, at location, checkpoint string) (notes []string, err error) {
	if len(at.said) == 0 {
		return nil, nil
	}
	var c container.InspectResponse
	if err := json.Unmarshal(at.said, &c); err != nil {
		return nil, err
	}
	err = w.engine.ImageTag(ctx, c.Image, w.imageRepository()+":"+checkpoint)
	if engine.IsNotFound(err) {
		return []string{at.name + " cannot be made again once it is removed: the engine has not got its image any more"}, nil
	}
	return nil, engine.Explain("naming the image of "+at.name, err)
}

// releaseImages takes the names from images that no checkpoint needs any more. One that nothing else
// names or uses goes; one that a container stands on keeps its last name until that is gone.
func (w *world) releaseImages(ctx context.Context) error {
	held, err := w.engine.ImageList(ctx,
		image.ListOptions{Filters: filters.NewArgs(filters.Arg("reference", w.imageRepository()))})
	if err != nil {
		return engine.Explain("looking for the images of checkpoints", err)
	}
	kept, err := w.store.Names() // after: a checkpoint is kept before its image gets its name
	if err != nil {
		return err
	}
	for _, i := range held {
		for _, ref := range i.RepoTags {
			checkpoint, ours := strings.CutPrefix(ref, w.imageRepository()+":")
			if !ours || slices.Contains(kept, checkpoint) {
				continue
			}
			_, err := w.engine.ImageRemove(ctx, ref, image.RemoveOptions{PruneChildren: true})
			if err != nil && !engine.IsNotFound(err) && !engine.IsConflict(err) && !engine.IsBeingRemoved(err) {
				return engine.Explain("releasing image "+ref, err)
			}
		}
	}
	return nil
}
