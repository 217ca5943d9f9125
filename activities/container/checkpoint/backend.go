package checkpoint

import (
	"context"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/command"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
)

// Backend is a way to keep a container's filesystem and bring it back. Containers are named by
// their ids, the checkpoints of a step by its token. Any call may be made again, by this or another
// process, also while one that was cut short is still under way at the engine: it then ends as the
// first would have. No method retries; whoever asks does. An error with the type DamagedRecord or
// Fenced is final.
type Backend interface {
	Keeper
	Reader
	Entrance
	Describer
}

// Keeper takes checkpoints, brings containers back to them, and lets them go.
type Keeper interface {
	// Take keeps the filesystem of a running container under the token, and returns where it is.
	// Called again for the token it returns the same place. What runs in the container goes on.
	Take(ctx context.Context, token, id string) (checkpoint string, err error)

	// HasBegun says whether this very rollback has begun: then what is there now is its own doing. One
	// that was cut short is finished first.
	HasBegun(ctx context.Context, r Rollback) (bool, error)

	// RollBack brings a container back to a checkpoint. When it returns, every process that entered
	// the container before is dead, and what was on its way in (it knows the container's former id, an
	// exec, or a door) can act in it no more. Called again for the same token and turn it returns the
	// same.
	RollBack(ctx context.Context, r Rollback) (Restoration, error)

	// FindSalvage finds what this very rollback has taken away and kept; nil where it has kept
	// nothing. What it has kept and is gone is DamagedRecord.
	FindSalvage(ctx context.Context, r Rollback) (*Salvage, error)

	// Commit makes what the steps of tokens have done in a container last over a restart of it; their
	// checkpoints stay exact. The note says what is still to come.
	Commit(ctx context.Context, id string, tokens []string) (note string, err error)

	// Drop lets go of the token's checkpoint of the container id, also of one that is still being
	// taken for a call that has died; where no id is known, of what there is. Called again, or without
	// one, it does nothing.
	Drop(ctx context.Context, token, id string) error

	// Release lets go of everything that is the token's, also of what calls have left that were cut
	// short.
	Release(ctx context.Context, token string) error

	// Bytes is what the token's checkpoint and what its rollbacks have kept take in the engine, as far
	// as it is known.
	Bytes(token string) int64
}

// Reader reads what is in containers.
type Reader interface {
	// ReadManifest reads a container's filesystem, without what is below ignore, so that what two
	// manifests for one token differ in is what has changed between them.
	ReadManifest(ctx context.Context, token, id string, ignore []string) (manifest.Manifest, error)

	// EndAndRead first ends what entered a running container with the token and is left there, as far
	// as it can be found, and then reads as ReadManifest does. Ended says that there was something.
	// What has entered otherwise goes on.
	EndAndRead(ctx context.Context, token, id string, ignore []string) (m manifest.Manifest, ended bool, err error)

	// ReadUncovered reads what a step can change in a container and is in no checkpoint.
	ReadUncovered(ctx context.Context, id string) (Uncovered, error)

	// ReadAll reads what ReadManifest and ReadUncovered do.
	ReadAll(ctx context.Context, token, id string, ignore []string) (manifest.Manifest, Uncovered, error)
}

// Entrance is the way of a step's processes into a container.
type Entrance interface {
	// Enter makes a command, or a check, of the step with this token one that a rollback keeps from
	// beginning too late. The step has its checkpoint.
	Enter(ctx context.Context, token string, in container.InspectResponse, c command.Command) (command.Command, error)
}

// Describer says what plans and reports tell of a backend.
type Describer interface {
	Traits() Traits

	// Losses names what a rollback of a container does not bring back.
	Losses(of container.InspectResponse, ignore []string) []string

	// Report says what was seen after the rollback of a container, whose volumes with copies are left
	// out. Back has all that differs, also what the backend did not look at.
	Report(of container.InspectResponse, r Rollback, back Restoration) activities.Undone
}

// Traits are what a backend is like, whatever the container.
type Traits struct {
	// Name is what results call it.
	Name string
	// Undo says how a step is undone.
	Undo string
	// Forward says what a command may find other than in a container without checkpoints.
	Forward string
	// Differential backends read manifests that hold only what differs from the token's checkpoint:
	// the one from before a step is empty, and nothing has to be read for it.
	Differential bool
	// Cheap is a checkpoint that costs less than to prove that a command needs none.
	Cheap bool
	// Late is a checkpoint that an engine may still take when whoever has asked for it is dead.
	Late bool
	// Images are what checkpoints are kept in: where a checkpoint is, is an image's id.
	Images bool
}

// Uncovered is what a container has where no checkpoint covers it.
type Uncovered struct {
	// Digests are by path; nil where there is no such thing, or the container does not run.
	Digests map[string]string
	// Nodes are those of them that a rollback can make again, by path, as the backend describes them.
	Nodes map[string]string
}

// Rollback says what to bring back.
type Rollback struct {
	// Token is the step's; Turn is one of the rollbacks that it may need: [UndoTurn], [ResetTurn],
	// [RedoTurn], or that before a numbered attempt.
	Token, Turn string
	// Container is the inspection that the step recorded. Where the container still stands, its
	// present settings are kept, for others may have changed them since.
	Container container.InspectResponse
	// Now is the container that stands, as it has just been inspected; zero where it has not.
	Now container.InspectResponse
	// Checkpoint is where the filesystem is kept.
	Checkpoint string
	// Nodes are what the step may have changed of [Uncovered], as it was.
	Nodes map[string]string
	// Before is the manifest to compare the filesystem with, without what is below Ignore; nil:
	// nothing is compared. Exactly makes a difference DamagedRecord, with nothing touched.
	Before  manifest.Manifest
	Ignore  []string
	Exactly bool
	// Keep, where it is set, asks for what is taken away to be kept, if the backend can, and is the
	// digest of its manifest.
	Keep activities.Digest
	// Stopped leaves the container stopped; Resumes says that whoever asks starts it in the end.
	Stopped, Resumes bool
	// Occupant is the id of another container that has the name now, and that a person has decided to
	// replace.
	Occupant string
}

// Restoration is what a rollback has made and seen.
type Restoration struct {
	// ID is the container that stands now.
	ID string
	// Differs lists the paths that are not as before; not what the container's program has written
	// since its start.
	Differs []string
	// Uncovered is what a rollback has read of that itself, after the comparison; nil where it has
	// not.
	Uncovered *Uncovered
	// Stopped says that it was left stopped; Runs that it was seen running, after the comparison.
	Stopped, Runs bool
	// Unstartable is what the engine says where it cannot start the container as it is now; empty
	// where it could.
	Unstartable string
	// Ended says that processes of earlier steps had to end.
	Ended bool
}

// Salvage is what a rollback has taken away and kept: not the old container itself. A container
// that came back would come back with its id, and so with everything that a late forward knows of
// it; and an engine starts stopped containers by itself, or clears them away.
type Salvage struct {
	// Image is where it is kept, as Checkpoint of [Rollback].
	Image string `json:"image"`
	// After is the digest of the manifest of what is in it.
	After activities.Digest `json:"after"`
	// Stopped says that the container did not run.
	Stopped bool `json:"stopped,omitempty"`
}

// The turns after which no forward of the token knows the container. A reset outdoes an undo.
const (
	UndoTurn  = "undo"
	ResetTurn = "reset"
)

// RedoTurn is a forward that puts back what another token's rollback has kept.
const RedoTurn = "redo"

// Rank orders the turns of a token: each makes those below it come too late.
func Rank(turn string) int {
	switch turn {
	case ResetTurn:
		return 2
	case UndoTurn:
		return 1
	}
	return 0
}
