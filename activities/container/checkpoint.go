package container

import (
	"context"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
)

// checkpoints is a way to keep a container's filesystem and bring it back.
type checkpoints interface {
	// take keeps the filesystem of a running container under the token, and returns where it is. Called again for the
	// token it returns the same place. What runs in the container goes on.
	take(ctx context.Context, token, id string) (checkpoint string, err error)

	// end ends what entered a running container with the token and is left there, as far as it can be found. Ended says that
	// there was something. What has entered otherwise goes on.
	end(ctx context.Context, token, id string) (ended bool, err error)

	// look tells a container's filesystem, without what is below ignore, so that what two looks for one token differ in is
	// what has changed between them.
	look(ctx context.Context, token, id string, ignore []string) (manifest, error)

	// begun says whether this very rollback has begun: then what is there now is its own doing. One that was cut short is
	// finished first.
	begun(ctx context.Context, to rollback) (bool, error)

	// rollback brings a container back to a checkpoint. When it returns, every process that entered the container before
	// is dead, and what was on its way in (it knows the container's former id, an exec, or a door) can act in it no more.
	// Called again for the same token and turn it returns the same.
	rollback(ctx context.Context, to rollback) (restored, error)

	// drop lets go of the token's checkpoint of the container id, also of one that is still being taken for a call that
	// has died; where no id is known, of what there is. Called again, or without one, it does nothing.
	drop(ctx context.Context, token, id string) error

	// kept is what this very rollback has taken away and kept; nil where it has kept nothing. What it has kept and is gone
	// is DamagedRecord.
	kept(ctx context.Context, of rollback) (*kept, error)

	// release lets go of everything that is the token's, also of what calls have left that were cut short.
	release(ctx context.Context, token string) error

	// bytes is what the token's checkpoint and what its rollbacks have kept take in the engine, as far as it tells.
	bytes(e activities.Entry) int64

	// losses names what a rollback does not bring back.
	losses() []string
}

// rollback says what to bring back.
type rollback struct {
	// Token is the step's; Turn is one of the rollbacks that it may need: [undoTurn], [resetTurn], [redoTurn], or that
	// before a numbered attempt.
	Token, Turn string
	// Container is the inspection that the step recorded. Where the container still stands, its present settings are
	// kept, for others may have changed them since.
	Container container.InspectResponse
	// Checkpoint is where the filesystem is kept.
	Checkpoint string
	// Before is the manifest to compare the filesystem with, without what is below Ignore; nil: nothing is compared.
	// Exactly makes a difference DamagedRecord, with nothing touched.
	Before  manifest
	Ignore  []string
	Exactly bool
	// Keep, where it is set, asks for what is taken away to be kept, and is the digest of its manifest.
	Keep activities.Digest
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
	// Stays says that it is the container that it was before, and Ended that processes of earlier steps had to end.
	Stays, Ended bool
}

// The turns after which no forward of the token knows the container. A reset outdoes an undo.
const (
	undoTurn  = "undo"
	resetTurn = "reset"
)

// redoTurn is a forward that puts back what another token's rollback has kept.
const redoTurn = "redo"

// rank orders the turns of a token: each makes those below it come too late.
func rank(turn string) int {
	switch turn {
	case resetTurn:
		return 2
	case undoTurn:
		return 1
	}
	return 0
}

// mine says whether s was made by this rollback.
func (r rollback) mine(s successor) bool { return s.Token == r.Token && s.Turn == r.Turn }

// fencedBy says that s makes this rollback come too late, whatever has become of the container since.
func (r rollback) fencedBy(s successor) bool {
	return s.Token == r.Token && rank(s.Turn) > rank(r.Turn)
}

func (r rollback) decidedBy(s successor) bool { return r.mine(s) || r.fencedBy(s) }
