package layers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/command"
	"github.com/seed-62bf7108/unwind/activities/container/lineage"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
)

// Backend implements [checkpoint.Selective].
type Backend struct {
	mode Mode
	// engine is the plain one: nothing that is asked of it looks for layers.
	engine  engine.Client
	lineage *lineage.Lineage
	notes   notes
	helper  *helper.Client
	probe   probe
	// processes are those of the containers that a helper was asked about.
	processes processes
}

// New makes the backend of an engine. Which containers may have layers is noted in folder dir.
func New(mode Mode, e engine.Client, l *lineage.Lineage, h *helper.Client, dir string) *Backend {
	return &Backend{mode: mode, engine: e, lineage: l, helper: h, notes: notes{dir}}
}

var _ checkpoint.Selective = (*Backend)(nil)

// Traits implements [checkpoint.Describer].
func (*Backend) Traits() checkpoint.Traits {
	return checkpoint.Traits{
		Name: "layers",
		Undo: "The layers that the step has written are taken off the container, which stays as it is but for them. " +
			checkpoint.NoProcess +
			"every one that a command has left in it is ended, and the container's own go on. Volumes, binds and effects " +
			"outside are not rolled back.",
		Forward: "to rename a folder that lies below the layer fails with EXDEV (mv copies it, git mv does not); " +
			"to write to one name of a file that has several leaves the others as they were, and all their link counts; " +
			"a new name of a file that is in no layer, or has several names, has another inode number (git clone of a " +
			"folder needs --no-hardlinks then); " +
			"only folders are on the filesystem of the folder that they are in (find -xdev, cp -x and tar do not mind); " +
			"a folder that it changes has a link count of 1; holes of a file that it changes are filled up to the next MiB; " +
			"memory that a file was mapped into before its first change goes on showing what was there; " +
			"over fuse-overlayfs it does what overlay2 does (O_TMPFILE, setgid of new folders, holes, link counts of " +
			"open files)",
		Differential: true,
		Cheap:        true,
	}
}

// notOnLayers is said of each undo.
const notOnLayers = "what the command writes to /etc/hosts, /etc/hostname, /etc/resolv.conf or files in /dev is " +
	"not rolled back: the engine mounts them; " +
	"devices and links in /dev come back"

// Losses implements [checkpoint.Describer].
func (*Backend) Losses(of container.InspectResponse, ignore []string) []string {
	return slices.Concat(checkpoint.LossesByLayers(), mountLosses(of), []string{notOnLayers}, target.NotCompared(ignore))
}

// mountLosses names what is not rolled back because it is not in the own filesystem of a container
// that stays.
func mountLosses(c container.InspectResponse) []string {
	var lost []string
	for at := range c.HostConfig.Tmpfs {
		lost = append(lost, fmt.Sprintf("tmpfs at %s is not rolled back", at))
	}
	c.ContainerJSONBase = &container.ContainerJSONBase{HostConfig: &container.HostConfig{}}
	return append(lost, target.NotRolledBack(c, nil)...)
}

// Report implements [checkpoint.Describer].
func (b *Backend) Report(of container.InspectResponse, r checkpoint.Rollback,
	back checkpoint.Restoration) activities.Undone {
	undone := activities.Undone{
		Outcome: activities.Restored,
		Observed: fmt.Sprintf("the layers of %s are those before the step, and nothing is written over them",
			engine.NameOf(of)),
		Losses: mountLosses(of),
	}
	if len(back.Differs) > 0 {
		undone.Losses = b.Losses(of, r.Ignore)
	} else if back.Ended {
		undone.Losses = append(undone.Losses, checkpoint.LeftRunning)
	}
	if len(undone.Losses) > 0 {
		undone.Outcome = activities.Compensated
	}
	return undone
}

// inBook is where every checkpoint of this backend is: in the book of its container, under the
// token.
const inBook = "layers"

// Take implements [checkpoint.Keeper].
func (b *Backend) Take(ctx context.Context, token, id string) (string, error) {
	_, err := b.ask(ctx, helper.Request{Op: helper.Take, Container: id, Name: token})
	return inBook, err
}

// Drop does nothing: a checkpoint that nothing was written over costs nothing, and one that a
// rollback has brought back is what the container is compared with until the record is released.
func (*Backend) Drop(context.Context, string, string) error { return nil }

// ReadManifest reads how a container differs from the token's checkpoint.
func (b *Backend) ReadManifest(ctx context.Context, token, id string, ignore []string) (manifest.Manifest, error) {
	a, err := b.ask(ctx, helper.Request{Op: helper.Changes, Container: id, Name: token, Skip: ignore})
	return manifest.FromChanges(a.Changes, ignore), err
}

// EndAndRead implements [checkpoint.Reader], with one request.
func (b *Backend) EndAndRead(ctx context.Context, token, id string, ignore []string) (m manifest.Manifest, ended bool,
	err error) {
	a, err := b.ask(ctx, helper.Request{Op: helper.Together, Container: id, Parts: []helper.Request{
		{Op: helper.End, Name: command.TokenVariable + token}, {Op: helper.Changes, Name: token, Skip: ignore},
	}})
	if err != nil {
		return nil, false, err
	}
	return manifest.FromChanges(a.Parts[1].Changes, ignore), a.Parts[0].Yes, nil
}

// ReadUncovered reads what a container has in the engine's own mounts.
func (b *Backend) ReadUncovered(ctx context.Context, id string) (seen checkpoint.Uncovered, err error) {
	a, err := b.ask(ctx, helper.Request{Op: helper.Beside, Container: id})
	switch {
	case helper.KindOf(err) == helper.Unfit: // it is not running
		return seen, nil
	case err != nil:
		return seen, err
	}
	return uncoveredOf(a.Changes)
}

// uncoveredOf is what a helper has found in the engine's own mounts.
func uncoveredOf(all []layer.Change) (checkpoint.Uncovered, error) {
	seen := checkpoint.Uncovered{Digests: map[string]string{}, Nodes: map[string]string{}}
	for _, c := range all {
		line, err := json.Marshal(c)
		if err != nil {
			return seen, err
		}
		sum := sha256.Sum256(line)
		if seen.Digests[c.Path] = hex.EncodeToString(sum[:8]); c.IsNode() {
			seen.Nodes[c.Path] = string(line)
		}
	}
	return seen, nil
}

// ReadAll reads both with one request, where the container runs.
func (b *Backend) ReadAll(ctx context.Context, token, id string, ignore []string) (m manifest.Manifest,
	seen checkpoint.Uncovered, err error) {
	a, err := b.ask(ctx, helper.Request{Op: helper.Together, Container: id, Parts: []helper.Request{
		{Op: helper.Changes, Name: token, Skip: ignore}, {Op: helper.Beside},
	}})
	if helper.KindOf(err) == helper.Unfit { // it is not running
		m, err = b.ReadManifest(ctx, token, id, ignore)
		return m, seen, err
	}
	if err != nil {
		return nil, seen, err
	}
	seen, err = uncoveredOf(a.Parts[1].Changes)
	return manifest.FromChanges(a.Parts[0].Changes, ignore), seen, err
}

// recreateNodes makes again what ReadUncovered has described: without it, nothing can enter a
// container any more.
func (b *Backend) recreateNodes(ctx context.Context, id string, nodes map[string]string) error {
	if len(nodes) == 0 {
		return nil
	}
	ask := helper.Request{Op: helper.Recreate, Container: id}
	for _, at := range slices.Sorted(maps.Keys(nodes)) {
		var c layer.Change
		if err := json.Unmarshal([]byte(nodes[at]), &c); err != nil {
			return activities.Errorf(activities.DamagedRecord, "how %s was: %v", at, err)
		}
		ask.Nodes = append(ask.Nodes, c)
	}
	_, err := b.ask(ctx, ask)
	return err
}
