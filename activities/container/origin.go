package container

import (
	"context"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
)

// origin is the id of the image that a container was made from in the first place: below all that rollbacks have put
// under it since.
func (c *commits) origin(ctx context.Context, of container.InspectResponse) (string, error) {
	for _, id := range []string{of.Image, of.Config.Image} { // the first may be gone with the container
		for id != "" {
			img, err := c.engine.ImageInspect(ctx, id)
			if engine.IsNotFound(err) {
				break
			}
			if err != nil {
				return "", engine.Explain("looking for the image of "+nameOf(of), err)
			}
			if !ours(img.Comment) {
				return img.ID, nil
			}
			id = img.Parent //nolint:staticcheck // see dropImage
		}
	}
	return "", activities.Errorf(activities.DamagedRecord, "the image that container %s was made from is gone (%s): docker pull brings it back where it has a name", nameOf(of), of.Config.Image)
}
