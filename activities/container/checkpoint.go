package container

import (
	"context"

	"github.com/docker/docker/api/types/container"
)

// checkpoints is a way to keep a container's filesystem and bring it back.
type checkpoints interface {
	// take keeps the filesystem of a running container under the token, and returns where it is. Called again for the
	// token it returns the same place. What runs in the container goes on.
	take(ctx context.Context, token, id string) (checkpoint string, err error)

	// standing resolves the id that a container had when a step recorded it to the one that it has now, after the
	// rollbacks that have been since. Rollbacks that were cut short are finished first. The container may be gone.
	standing(ctx context.Context, id string) (string, error)

	// begun says whether this very rollback has begun: then what is there now is its own doing. One that was cut short is
	// finished first.
	begun(ctx context.Context, to rollback) (bool, error)

	// rollback brings a container back to a checkpoint. When it returns, every process that entered the container before
	// is dead, and what knows the container's former id (or an exec in it) can act in it no more. Called again for the
	// same token and turn it returns the same.
	rollback(ctx context.Context, to rollback) (restored, error)

	// drop lets go of the token's checkpoint. Called again, or without one, it does nothing.
	drop(ctx context.Context, token string) error

	// losses names what a rollback does not bring back.
	losses() []string
}

// rollback says what to bring back.
type rollback struct {
	// Token is the step's; Turn is one of the rollbacks that it may need: [undoTurn], or that before a numbered attempt.
	Token, Turn string
	// Container is the inspection that the step recorded. Where the container still stands, its present settings are
	// kept, for others may have changed them since.
	Container container.InspectResponse
	// Checkpoint is where the filesystem is kept.
	Checkpoint string
	// Before is the manifest to compare the filesystem with, without what is below Ignore.
	Before manifest
	Ignore []string
	// Stopped leaves the container stopped.
	Stopped bool
	// Usurper is the id of another container that has the name now, and that a person has decided to replace.
	Usurper string
}

// restored is what a rollback has made and seen.
type restored struct {
	// ID is the container that stands now.
	ID string
	// Differs lists the paths that are not as before, seen before anything ran in it.
	Differs []string
	// Stopped says that it was left stopped.
	Stopped bool
}

// undoTurn is the rollback of an undo: after it, no forward of the token knows the container.
const undoTurn = "undo"
