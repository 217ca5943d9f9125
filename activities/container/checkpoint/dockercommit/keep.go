package dockercommit

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/lineage"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// Whoever keeps gives the image a name of its own: of two rollbacks at once only one is named the
// successor, and with it what it has kept.
const salvageRepository = "unwind/kept"

func salvageRefs(token string) string { return salvageRepository + ":" + token + "-" }

// keepSalvage commits the container that a rollback is about to replace. Nil: it cannot be kept.
func (b *Backend) keepSalvage(ctx context.Context, r checkpoint.Rollback,
	old container.InspectResponse) (*checkpoint.Salvage, error) {
	if covered, err := b.engine.IsCovered(ctx, old.ID); covered || err != nil {
		return nil, nil //nolint:nilnil,nilerr // an image would lack what lies over the container: nothing is kept
	}
	made, err := b.snapshot(ctx, old.ID, salvageRefs(r.Token)+strings.ToLower(rand.Text()[:8]), lineage.SalvageComment)
	if err != nil {
		return nil, engine.Explain("keeping what the rollback takes away", err)
	}
	point.Reach("container.exec:kept")
	return &checkpoint.Salvage{Image: made, After: r.Keep, Stopped: !old.State.Running}, nil
}

// FindSalvage implements [checkpoint.Keeper].
func (b *Backend) FindSalvage(ctx context.Context, r checkpoint.Rollback) (*checkpoint.Salvage, error) {
	last, err := b.lineage.Walk(ctx, r.Container.ID, madeBy(r))
	if err != nil || !last.IsOf(r) || last.Kept == nil {
		return nil, err
	}
	_, err = b.engine.ImageInspect(ctx, last.Kept.Image)
	if engine.IsNotFound(err) {
		return nil, activities.Errorf(activities.DamagedRecord,
			"what the rollback of token %s had kept is gone: somebody has removed image %s from the engine", r.Token,
			last.Kept.Image)
	}
	return last.Kept, engine.Explain("looking for what the rollback has kept", err)
}

func (b *Backend) dropSalvage(ctx context.Context, token string) error {
	return b.dropImages(ctx, salvageRefs(token), "")
}

// dropSalvageBut lets go of all images that rollbacks of the token have kept but that of the one
// that counts.
func (b *Backend) dropSalvageBut(ctx context.Context, token string, counts *checkpoint.Salvage) error {
	if counts == nil {
		return b.dropSalvage(ctx, token)
	}
	return b.dropImages(ctx, salvageRefs(token), counts.Image)
}

// sizeLimit bounds how long an engine is asked for a size.
const sizeLimit = 2 * time.Second

// Bytes implements [checkpoint.Keeper].
func (b *Backend) Bytes(token string) (sum int64) {
	ctx, cancel := context.WithTimeout(context.Background(), sizeLimit)
	defer cancel()
	for _, refs := range []string{checkpointRefs(token), salvageRefs(token)} {
		found, _ := b.findImages(ctx, refs)
		for _, img := range found {
			sum += b.sizeOf(ctx, img.ID)
		}
	}
	return sum
}

// sizeOf is what an image adds to the one that it was made from.
func (b *Backend) sizeOf(ctx context.Context, ref string) int64 {
	img, err := b.engine.ImageInspect(ctx, ref)
	if err != nil {
		return 0
	}
	below, err := b.engine.ImageInspect(ctx, img.Parent) //nolint:staticcheck // see lineage.DropImage
	if err != nil {
		return img.Size
	}
	return img.Size - below.Size
}
