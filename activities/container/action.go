package container

import (
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/lease"
	"github.com/seed-62bf7108/unwind/activities/container/lineage"
	"github.com/seed-62bf7108/unwind/activities/container/readonly"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/container/volumes"
)

// execAction is container.exec.
type execAction struct {
	store    target.Store
	engine   target.Engine
	host     string
	leases   *lease.Leases
	lineage  *lineage.Lineage
	backends checkpoint.Backends
	prover   *readonly.Prover
	// lateAfter is when a late sweep looks for a checkpoint that has come late.
	lateAfter time.Duration
}

// bytes is what a token takes outside its own folder.
func (x *execAction) bytes(e activities.Entry) int64 { return x.backends.Bytes(e.Token) }

func (x *execAction) Spec() activities.Spec {
	return activities.Spec{
		Name:    "container.exec",
		Summary: "Run a command in a running container.",
		Params:  activities.ParamsSchema[params](),
		Outputs: map[string]string{
			"stdout":    "what the command wrote to standard output, at most its first 8 KiB",
			"stderr":    "what it wrote to standard error, at most its first 2 KiB",
			"exit_code": "its exit status: 0, for any other fails the step",
			"changed":   "whether anything in the container's filesystem differs from before",
			"paths": "what differs in the container's filesystem, a line for each of up to 20 paths: + is new, - is " +
				"gone, ~ is changed",
			"log": "where on the worker's host all of its output is kept until the step's record is dropped",
			"kept_by": "how the container as it was before the command is kept: layers, or docker commit; none where the " +
				"command only read",
			"checkpoint": "id of an image of the container as it was before the command, until the step's record is dropped; " +
				"none where the checkpoint is a layer, or the command only read",
		},
		UndoParams: []string{"container"},
		Keys:       []activities.Key{{Prefix: target.KeyPrefix, Param: "container"}},
		MayChange:  []string{"file:"}, // through a mount
		HostBound:  true,
		Commits:    true,
		Preflights: true,
		Risk:       activities.Low,
		Strategy:   activities.Snapshot,
		Undo:       x.backends.Commit.Traits().Undo,
		Reset: "The container is made anew from the image that it was made from, with the same name, settings, networks " +
			"and volumes: " +
			"everything that was done in it since is lost, by this step and by all others.",
		Redo: "The command does not run again: the container is made anew from an image of its filesystem that the " +
			"rollback kept, " +
			"with the same name and settings. One that has changed since the rollback is left alone. With volumes: snapshot " +
			"it runs again.",
	}
}

// describeUndo says how a step in a container would be undone, and what that would not bring back.
func (x *execAction) describeUndo(by checkpoint.Choice, c container.InspectResponse, ignore []string,
	copies ...volumes.Volume) (undo string, losses []string) {
	b := x.backends.Of(by)
	return b.Traits().Undo + volumes.DescribeUndo(copies), b.Losses(volumes.Without(c, copies), ignore)
}
