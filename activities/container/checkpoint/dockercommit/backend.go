package dockercommit

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/command"
	"github.com/seed-62bf7108/unwind/activities/container/lineage"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// Engine is what the backend asks. It knows what lies over its containers and is in no image of
// them.
type Engine interface {
	engine.Client
	manifest.Engine
	// IsCovered says that something lies over a container: an image of it would lack that.
	IsCovered(ctx context.Context, container string) (bool, error)
	// CanLook says that ListFiles and EndMarked most likely work.
	CanLook() bool
	// EndMarked ends the processes of a running container that have a variable in their environment.
	// Where ok is false, only a command in the container can.
	EndMarked(ctx context.Context, container, variable string) (ended, ok bool, err error)
}

// Backend implements [checkpoint.Backend].
type Backend struct {
	engine  Engine
	lineage *lineage.Lineage
}

// New makes the backend of an engine.
func New(e Engine, l *lineage.Lineage) *Backend { return &Backend{e, l} }

var _ checkpoint.Backend = (*Backend)(nil)

// Traits implements [checkpoint.Describer].
func (*Backend) Traits() checkpoint.Traits {
	return checkpoint.Traits{
		Name: "docker commit",
		Undo: "The container is made anew from a checkpoint of its filesystem, with the same name and settings. " +
			checkpoint.NoProcess +
			"its program starts again, and whatever else runs in it is ended. Volumes, binds and effects outside are not " +
			"rolled back.",
		Late:   true,
		Images: true,
	}
}

// Losses implements [checkpoint.Describer].
func (*Backend) Losses(of container.InspectResponse, ignore []string) []string {
	lost := checkpoint.LossesByCommit()
	if manifest.TimesAreUnreliable(of) {
		lost = append(lost, "times of files and folders are not compared: the storage driver "+of.Driver+" tells them late")
	}
	return append(lost, target.NotRolledBack(of, ignore)...)
}

// Report implements [checkpoint.Describer].
func (b *Backend) Report(of container.InspectResponse, r checkpoint.Rollback,
	_ checkpoint.Restoration) activities.Undone {
	return activities.Undone{
		Outcome: activities.Compensated,
		Observed: fmt.Sprintf("the filesystem of %s equals that before the step (%s)", engine.NameOf(of),
			activities.CountOf(len(r.Before), "path")),
		Losses: b.Losses(of, r.Ignore),
	}
}

// Enter changes nothing: a rollback makes the container anew, with an id that no late call knows.
func (*Backend) Enter(_ context.Context, _ string, _ container.InspectResponse, c command.Command) (command.Command,
	error) {
	return c, nil
}

// ReadUncovered finds nothing: what an engine mounts into a container is new with that.
func (*Backend) ReadUncovered(context.Context, string) (checkpoint.Uncovered, error) {
	return checkpoint.Uncovered{}, nil
}

// Commit has nothing to do: what a step has done is in the container's own filesystem.
func (*Backend) Commit(context.Context, string, []string) (string, error) { return "", nil }

// A checkpoint is known by its name while a token needs it, and by its comment afterwards: a label
// would turn up among those of the container made from it. Each attempt gives it a name of its own:
// an engine may still be committing for one that died, and would take a common name away from the
// image that counts.
const checkpointRepository = "unwind/checkpoint"

// checkpointRefs is what the names of a token's checkpoints begin with.
func checkpointRefs(token string) string { return checkpointRepository + ":" + token }

// Take implements [checkpoint.Keeper].
func (b *Backend) Take(ctx context.Context, token, id string) (string, error) {
	had, now, err := b.findCheckpoint(ctx, token, id)
	if had != "" || err != nil {
		return had, err
	}
	if err := b.checkRoom(ctx, now); err != nil {
		return "", err
	}
	made, err := b.snapshot(ctx, id, checkpointRefs(token)+"-"+strings.ToLower(rand.Text()[:8]), lineage.CheckpointComment)
	return made, engine.Explain("checkpoint of the container", err)
}

// findCheckpoint finds the checkpoint of an attempt that has died; empty for none. While the engine
// is at it the container is paused, and the image has its name before the container goes on. It
// returns the container as it is now.
func (b *Backend) findCheckpoint(ctx context.Context, token, id string) (had string, now container.InspectResponse,
	err error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if now, err = b.engine.ContainerInspect(ctx, id); err != nil {
			return "", now, engine.Explain("looking at the container", err)
		}
		found, err := b.findImages(ctx, checkpointRefs(token))
		if err != nil {
			return "", now, err
		}
		switch {
		case len(found) > 0:
			return found[0].ID, now, nil
		case !now.State.Paused:
			return "", now, nil
		}
		select {
		case <-ctx.Done():
			return "", now, activities.Errorf(activities.ActionFailed, "container %s is paused; docker unpause %[1]s wakes it",
				engine.NameOf(now))
		case <-tick.C:
		}
	}
}

// ReadAll implements [checkpoint.Reader].
func (b *Backend) ReadAll(ctx context.Context, token, id string, ignore []string) (manifest.Manifest,
	checkpoint.Uncovered, error) {
	m, err := b.ReadManifest(ctx, token, id, ignore)
	return m, checkpoint.Uncovered{}, err
}

// ReadManifest implements [checkpoint.Reader].
func (b *Backend) ReadManifest(ctx context.Context, _, id string, ignore []string) (manifest.Manifest, error) {
	return manifest.Take(ctx, b.engine, id, ignore)
}

// Drop takes the names of all of the token's checkpoints away. The layers stay for as long as a
// container stands on them; when that container is replaced in its turn, they go with it.
func (b *Backend) Drop(ctx context.Context, token, id string) error {
	if id != "" {
		if err := b.awaitCommit(ctx, id); err != nil {
			return err
		}
	}
	return b.dropImages(ctx, checkpointRefs(token), "")
}

// commitLimit bounds how long a drop waits for the engine: a container may also be paused by a
// person. What is named after that goes when the record is released.
const commitLimit = 30 * time.Second

// awaitCommit waits while the engine commits a container, as far as that can be told: it is paused.
func (b *Backend) awaitCommit(ctx context.Context, id string) error {
	over := time.After(commitLimit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := b.engine.ContainerInspect(ctx, id)
		switch {
		case engine.IsNotFound(err):
			return nil
		case err != nil:
			return engine.Explain("looking at the container", err)
		case !now.State.Paused:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return nil
		case <-tick.C:
		}
	}
}
