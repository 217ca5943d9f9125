package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// redo is what a forward puts back in place of running its command again.
type redo struct {
	// Of is the token that was rolled back.
	Of string `json:"of"`
	// Kept is what its rollback has kept.
	Kept checkpoint.Salvage `json:"kept"`
	// Done is how it had ended.
	Done target.Completion `json:"done"`
}

// feasibleRedo is a redo that can be done: what it puts back, and the container that it finds.
type feasibleRedo struct {
	redo
	target container.InspectResponse
	ignore []string
	// backend has kept it; read reads the container as it was read for the step that was rolled back.
	backend checkpoint.Choice
	read    func(context.Context) (manifest.Manifest, error)
	// before is what the rollback brought back; after what it took away.
	before, after manifest.Manifest
	// started is what its program has written since the rollback started it.
	started map[string]manifest.Difference
}

// findRedo looks for what the entry's forward has to put back. Nil: nothing was taken away, for the
// command had not run or not come to its end; then it runs.
func (x *execAction) findRedo(ctx context.Context, e activities.Entry) (*feasibleRedo, error) {
	if e.Redoes == "" {
		return nil, nil //nolint:nilnil // there is nothing to put back, and nothing wrong
	}
	t, err := x.store.Journal.Token(e.Redoes)
	if err != nil {
		return nil, err
	}
	var undone activities.Undone
	if found, err := t.Read(journal.Outcome, &undone); err != nil {
		return nil, err
	} else if !found {
		return nil, activities.Errorf(activities.Refused, "token %s has not been rolled back: there is nothing to do again",
			e.Redoes)
	}
	done, ended, err := target.ReadCompletion(t)
	if err != nil {
		return nil, err
	}
	if undone.Outcome == activities.Nothing || !ended {
		return nil, nil //nolint:nilnil // as above
	}
	rec, found, err := readRecord(t)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, activities.Errorf(activities.Refused,
			"what the rollback of token %s had kept is released: its time is over", e.Redoes)
	}
	if len(rec.Volumes) > 0 {
		return nil, nil //nolint:nilnil // of what it wrote in volumes nothing is kept: the command runs again
	}
	back := feasibleRedo{redo: redo{Of: e.Redoes, Done: done}, ignore: rec.Ignore, backend: rec.Backend}
	at, err := x.backends.Of(rec.Backend).FindSalvage(ctx,
		checkpoint.Rollback{Token: e.Redoes, Turn: checkpoint.UndoTurn, Container: rec.Container})
	if err != nil {
		return nil, err
	}
	if at == nil {
		return nil, activities.Errorf(activities.Refused, "the undo of token %s has kept nothing to do it again from",
			e.Redoes)
	}
	back.Kept = *at
	if back.target, err = x.findRolledBack(ctx, rec); err != nil {
		return nil, err
	}
	back.read = func(ctx context.Context) (manifest.Manifest, error) {
		return x.backends.Of(rec.Backend).ReadManifest(ctx, e.Redoes, back.target.ID, rec.Ignore)
	}
	seen, _, err := x.lineage.Seen(back.target.ID)
	if err != nil {
		return nil, err
	}
	back.started = seen.Started
	if back.before, err = manifest.Load(t.Dir(), beforeFile, rec.Before); err != nil {
		return nil, err
	}
	back.after, err = manifest.Load(t.Dir(), salvageFile(at.After), at.After)
	return &back, err
}

// findRolledBack finds the container of a step as its rollback has left it: under the id that it
// has now.
func (x *execAction) findRolledBack(ctx context.Context, rec stepRecord) (container.InspectResponse, error) {
	id, err := x.lineage.Standing(ctx, rec.Container.ID)
	if err != nil {
		return container.InspectResponse{}, err
	}
	c, err := x.engine.ContainerInspect(ctx, id)
	switch {
	case engine.IsNotFound(err):
		return c, activities.Errorf(activities.Refused, "container %s has been removed since the rollback",
			engine.NameOf(rec.Container))
	case err != nil:
		return c, engine.Explain("looking at the container", err)
	case aside.Is(c):
		return c, activities.Errorf(activities.Refused, "container %s has been replaced since the rollback",
			engine.NameOf(rec.Container))
	}
	return c, target.CheckAwake(c, engine.NameOf(c))
}

// checkUnchanged refuses where someone has changed the container since the rollback.
func (c *feasibleRedo) checkUnchanged(now manifest.Manifest) error {
	if differs := c.before.Accept(c.started, now).Diff(now); len(differs) > 0 {
		return activities.Errorf(activities.Refused, "container %s has changed since the rollback, and is left alone: %s",
			engine.NameOf(c.target), strings.Join(manifest.Few(differs), "; "))
	}
	return nil
}

// change says what a redo would do.
func (c *feasibleRedo) change(now manifest.Manifest, losses []string) activities.Change {
	lines := now.Diff(c.after)
	return activities.Change{
		Summary: fmt.Sprintf("put back in %s what its rollback has kept (%s)", engine.NameOf(c.target),
			activities.CountOf(len(lines), "path")),
		Diff:     strings.Join(lines, "\n") + "\n",
		Strategy: activities.Snapshot,
		Losses:   losses,
		Risk:     activities.Medium,
		Facts:    []string{"the command does not run again"},
	}
}

// adopt makes the journal of the token whole for a redo: what it needs may be released at any time.
func (a *application) adopt(c *feasibleRedo) error {
	if len(c.after) == 0 { // it has no file
		return nil
	}
	name := salvageFile(c.Kept.After)
	of, err := a.store.Journal.Token(c.Of)
	if err != nil {
		return err
	}
	err = os.Link(filepath.Join(of.Dir(), name), filepath.Join(a.token.Dir(), name))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// putBack is the change of a redo: the container is made anew from what was kept, with the same
// fences as a rollback.
func (r *execution) putBack(ctx context.Context, kept string) (target.Completion, error) {
	again := r.rec.Redo
	before, err := manifest.Load(r.token.Dir(), salvageFile(again.Kept.After), again.Kept.After)
	if err != nil {
		return target.Completion{}, err
	}
	back, err := r.backend.RollBack(ctx, checkpoint.Rollback{
		Token: r.entry.Token, Turn: checkpoint.RedoTurn, Container: r.rec.Container, Checkpoint: again.Kept.Image,
		Before: before, Ignore: r.rec.Ignore, Exactly: true,
		Stopped: again.Kept.Stopped || !r.rec.Container.State.Running,
	})
	if err != nil {
		return target.Completion{}, err
	}
	point.Reach("container.exec:put-back")
	failure := again.Done.Failure
	if failure == nil {
		if failure, err = r.check(ctx, back.ID); err != nil {
			return target.Completion{}, errors.Join(r.token.CheckOpen(), err)
		}
	}
	left, err := r.readAfter(ctx, back.ID)
	if err != nil {
		return target.Completion{}, err
	}
	result := again.Done.Result
	result.Summary = fmt.Sprintf("put back in %s what its rollback had kept (changed paths: %d)",
		engine.NameOf(r.rec.Container), len(left.changed))
	result.After = left.digest
	result.Notes = []string{"the command did not run again: its result is that of the run which was rolled back"}
	if back.Unstartable != "" {
		result.Notes = append(result.Notes, "the container does not run, and cannot be started: "+back.Unstartable)
	}
	if result.Outputs, err = r.adoptLog(result.Outputs); err != nil {
		return target.Completion{}, err
	}
	r.nameCheckpoint(result.Outputs, kept)
	return r.finish(target.Completion{Container: back.ID, After: left.digest, Running: left.running, Failure: failure,
		Result: result})
}

// adoptLog gives the step the log of the run that was rolled back, for as long as its own record is
// kept.
func (r *execution) adoptLog(outputs map[string]any) (map[string]any, error) {
	outputs = maps.Clone(outputs)
	had, ok := outputs["log"].(string)
	if !ok {
		return outputs, nil
	}
	mine := r.logOf(1)
	switch err := os.Link(had, mine); {
	case err == nil || errors.Is(err, fs.ErrExist):
		outputs["log"] = mine
	case errors.Is(err, fs.ErrNotExist):
		delete(outputs, "log")
	default:
		return nil, err
	}
	return outputs, nil
}
