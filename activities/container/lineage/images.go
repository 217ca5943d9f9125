package lineage

import (
	"context"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// Comments of the images that steps make. A label would turn up among those of the containers that
// are made from them.
const (
	CheckpointComment = "Unwind: checkpoint before a step"
	SalvageComment    = "Unwind: what a rollback has taken away"
)

// isOurs says that a step has made an image.
func isOurs(comment string) bool { return comment == CheckpointComment || comment == SalvageComment }

// standingRepository names images that have lost the name that their token gave them while a
// container stands on them. An engine takes the last name of such an image only by force, and by
// force it takes the image away under a stopped container.
const standingRepository = "unwind/standing"

// StandingRef is the name of such an image.
func StandingRef(id string) string {
	return standingRepository + ":" + strings.TrimPrefix(id, "sha256:")[:12]
}

// DropImage removes an image that was made here, that no token has a name for any more and nothing
// stands on, and its parents while they are the same. Images that are not ours are never touched.
func (l *Lineage) DropImage(ctx context.Context, id string) error {
	for id != "" {
		img, err := l.engine.ImageInspect(ctx, id)
		if engine.IsNotFound(err) || engine.IsBeingRemoved(err) { // who removes it goes on with its parents
			return nil
		}
		if err != nil {
			return engine.Explain("looking at image "+id, err)
		}
		nameless := !slices.ContainsFunc(img.RepoTags, func(ref string) bool { return ref != StandingRef(img.ID) })
		if !isOurs(img.Comment) || !nameless {
			return nil
		}
		switch _, err := l.engine.ImageRemove(ctx, id, image.RemoveOptions{}); {
		case engine.IsConflict(err): // something stands on it
			return nil
		case err != nil && !engine.IsNotFound(err) && !engine.IsBeingRemoved(err):
			return engine.Explain("dropping image "+id, err)
		}
		id = img.Parent //nolint:staticcheck // every engine that makes images by commit reports it
	}
	return nil
}

// Origin is the id of the image that a container was made from in the first place: below all that
// rollbacks have put under it since.
func (l *Lineage) Origin(ctx context.Context, of container.InspectResponse) (string, error) {
	for _, id := range []string{of.Image, of.Config.Image} { // the first may be gone with the container
		for id != "" {
			img, err := l.engine.ImageInspect(ctx, id)
			if engine.IsNotFound(err) {
				break
			}
			if err != nil {
				return "", engine.Explain("looking for the image of "+engine.NameOf(of), err)
			}
			if !isOurs(img.Comment) {
				return img.ID, nil
			}
			id = img.Parent //nolint:staticcheck // see DropImage
		}
	}
	return "", activities.Errorf(activities.DamagedRecord,
		"the image that container %s was made from is gone (%s): docker pull brings it back where it has a name",
		engine.NameOf(of), of.Config.Image)
}
