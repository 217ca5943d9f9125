package environment

import (
	"context"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// Keeper keeps environments. It does one thing at a time to each. What it refuses before it has
// touched anything, and what has failed and left everything as it was, are errors of a final type;
// where the environment is busy, a later try may succeed.
type Keeper interface {
	// Look shows an environment.
	Look(ctx context.Context, name string) (Environment, error)
	// Checkpoint takes a checkpoint, which is kept until LetGo. Called again with the same id, it
	// returns what the first call has led to.
	Checkpoint(ctx context.Context, name string, o CheckpointOrder) (Checkpoint, error)
	// RollBack goes back to a checkpoint, and takes one of what was there first. Called again with the
	// same id of that, it returns what the first call has led to. In a forward, both are kept until
	// LetGo.
	RollBack(ctx context.Context, name string, o RollbackOrder) (RolledBack, error)
	// Wrote tells which tasks have changed what a rollback to a checkpoint would put back, the newest
	// first, and what is not known of them.
	Wrote(ctx context.Context, name, to string) (tasks []Wrote, unknown []string, err error)
	// Past looks, for the task of a rollback that is under way, for tasks whose changes it takes back,
	// and returns how many have made some. One that has not ended is an error of a final type.
	Past(ctx context.Context, name, task string) (int, error)
	// Cancel asks for the end of what is under way.
	Cancel(ctx context.Context, name string, o Operation) error
	// Await waits until the task that takes a checkpoint, for itself or for a rollback, is over, and
	// reports whether it has done that: false also where there is no such task.
	Await(ctx context.Context, name, id string) (acted bool, err error)
	// Compare compares a checkpoint with what is there now.
	Compare(ctx context.Context, name, id string) ([]Difference, error)
	// Delete deletes a checkpoint that a step has taken, and has pinned. One that is not there is no
	// error.
	Delete(ctx context.Context, name, id string, pinned bool) error
	// LetGo ends what the step with this token needs checkpoints for.
	LetGo(ctx context.Context, name, token string) error
}

// Fence answers a keeper that is about to act for a step.
type Fence interface {
	// Admit is Fenced unless the step has a record here and may still act; undoing, for an undo.
	Admit(token string, undoing bool) error
}

// Environment is an environment as it is now.
type Environment struct {
	Name string
	// Host has the parts and the checkpoints.
	Host string
	// Unit is stopped while parts are put back; empty: nothing is.
	Unit string
	// Quiesced says what it is while parts are captured: stopped or paused; empty: it keeps running.
	Quiesced string
	Parts    []Part
	// Doing is what is under way; nil if nothing is.
	Doing *Operation
	// Checkpoints are the newest first.
	Checkpoints []Checkpoint
	// Gone: nobody keeps it any more. Checkpoints are those that its host still stores.
	Gone bool
}

// Part is one resource of an environment.
type Part struct {
	Name, Kind, Resource string
	// Memory says that it is a machine with its memory, which stands still while that is kept.
	Memory bool
}

func (p Part) String() string {
	resource := p.Kind + " " + p.Resource
	if p.Memory {
		resource += " and the memory of its machine"
	}
	return p.Name + " (" + resource + ")"
}

// Operation is something under way.
type Operation struct {
	What string
	// Task carries it out; empty: none does.
	Task string
	// ID is that of the checkpoint that it takes; empty: it takes none.
	ID string
}

// Checkpoint is a checkpoint of an environment.
type Checkpoint struct {
	ID       string
	Created  time.Time
	Trigger  string
	Notes    string
	Quiesced bool
	Pinned   bool
	Bytes    int64
	// Parts are those that a rollback to it puts back.
	Parts []Part
	// Untouched says what a rollback to it leaves as it is.
	Untouched []string
}

// Step is the step that asks.
type Step struct{ Token, Task, ID string }

// CheckpointOrder says which checkpoint to take.
type CheckpointOrder struct {
	ID     string
	Notes  string
	Pinned bool
	Step   Step
}

// RollbackOrder says where to go back to.
type RollbackOrder struct {
	To string
	// Safety is the id of the checkpoint that is taken first.
	Safety string
	// Parts are those that are put back; empty: all of them.
	Parts   []string
	Step    Step
	Undoing bool
}

// RolledBack is what a rollback has done.
type RolledBack struct {
	Safety Checkpoint
	Stages []map[string]any
	Notes  []string
}

// Wrote is a task that has changed parts.
type Wrote struct {
	Task  string
	Parts []string
	// At is when it has last changed one.
	At time.Time
	// Open: it has not ended.
	Open bool
}

// Difference is what differs in a part.
type Difference struct {
	Part    string
	Changed int64
	// Times are how many of these are folders of which only the time differs.
	Times int64
	Diff  string
	// Digest covers what the part is now.
	Digest string
}

// find finds a checkpoint.
func (e Environment) find(id string) (Checkpoint, bool) {
	for _, c := range e.Checkpoints {
		if c.ID == id {
			return c, true
		}
	}
	return Checkpoint{}, false
}

// since are the ids of the checkpoints that are newer than one.
func (e Environment) since(id string) (ids []string) {
	for _, c := range e.Checkpoints {
		if c.ID == id {
			break
		}
		ids = append(ids, c.ID)
	}
	return ids
}

// key is that of an environment whose state is the reason of a refusal.
func key(name string) string { return "environment:" + name }

// idOf is the id of a checkpoint that belongs to a token.
func idOf(token, what string) string {
	const digits = 16
	return "cp-" + string(activities.DigestOf([]byte(token), []byte(what)))[len("sha256:"):][:digits]
}
