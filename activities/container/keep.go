package container

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// kept is what a rollback has taken away and kept: an image, not the old container itself. A container that came back
// would come back with its id, and so with everything that a late forward knows of it; and an engine starts stopped
// containers by itself, or clears them away.
type kept struct {
	// Image is the image's id.
	Image string `json:"image"`
	// After is the digest of the manifest of what is in it.
	After activities.Digest `json:"after"`
	// Stopped says that the container did not run.
	Stopped bool `json:"stopped,omitempty"`
}

// Whoever keeps gives the image a name of its own: of two rollbacks at once only one is named the successor, and with it
// what it has kept.
const (
	keptRepository = "unwind/kept"
	keptComment    = "Unwind: what a rollback has taken away"
)

func keptRefs(token string) string { return keptRepository + ":" + token + "-" }

// keep commits the container that a rollback is about to replace.
func (c *commits) keep(ctx context.Context, r rollback, old container.InspectResponse) (*kept, error) {
	made, err := c.snapshot(ctx, old.ID, keptRefs(r.Token)+strings.ToLower(rand.Text()[:8]), keptComment)
	if err != nil {
		return nil, engine.Explain("keeping what the rollback takes away", err)
	}
	point.Reach("container.exec:kept")
	return &kept{Image: made, After: r.Keep, Stopped: !old.State.Running}, nil
}

func (c *commits) kept(ctx context.Context, r rollback) (*kept, error) {
	last, err := c.lineage.walk(ctx, r.Container.ID, c.settle, r.mine)
	if err != nil || !r.mine(last) || last.Kept == nil {
		return nil, err
	}
	_, err = c.engine.ImageInspect(ctx, last.Kept.Image)
	if engine.IsNotFound(err) {
		return nil, activities.Errorf(activities.DamagedRecord, "what the rollback of token %s had kept is gone: somebody has removed image %s from the engine", r.Token, last.Kept.Image)
	}
	return last.Kept, engine.Explain("looking for what the rollback has kept", err)
}

func (c *commits) dropKept(ctx context.Context, token string) error {
	return c.dropNamed(ctx, keptRefs(token), "")
}

// dropKeptBut lets go of all images that rollbacks of the token have kept but that of the one that counts.
func (c *commits) dropKeptBut(ctx context.Context, token string, counts *kept) error {
	if counts == nil {
		return c.dropKept(ctx, token)
	}
	return c.dropNamed(ctx, keptRefs(token), counts.Image)
}

// bytesLimit bounds how long an engine is asked for a size.
const bytesLimit = 2 * time.Second

func (c *commits) bytes(e activities.Entry) (sum int64) {
	ctx, cancel := context.WithTimeout(context.Background(), bytesLimit)
	defer cancel()
	for _, refs := range []string{checkpointRefs(e.Token), keptRefs(e.Token)} {
		found, _ := c.named(ctx, refs)
		for _, img := range found {
			sum += c.weight(ctx, img.ID)
		}
	}
	return sum
}

// weight is what an image adds to the one that it was made from.
func (c *commits) weight(ctx context.Context, ref string) int64 {
	img, err := c.engine.ImageInspect(ctx, ref)
	if err != nil {
		return 0
	}
	below, err := c.engine.ImageInspect(ctx, img.Parent) //nolint:staticcheck // see dropImage
	if err != nil {
		return img.Size
	}
	return img.Size - below.Size
}
