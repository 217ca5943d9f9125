package layers

import (
	"context"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/lineage"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// HasBegun implements [checkpoint.Keeper].
func (b *Backend) HasBegun(ctx context.Context, r checkpoint.Rollback) (bool, error) {
	a, err := b.ask(ctx,
		helper.Request{Op: helper.Restored, Container: r.Container.ID, Name: nameOfCheckpoint(r), Turn: nameOfTurn(r)})
	if engine.IsNotFound(err) { // RollBack says what has become of it
		return false, nil
	}
	return a.Yes, err
}

// nameOfCheckpoint is the checkpoint that a rollback brings back: a redo brings back what the
// rollback of another token has kept.
func nameOfCheckpoint(r checkpoint.Rollback) string {
	if r.Turn == checkpoint.RedoTurn {
		return r.Checkpoint
	}
	return r.Token
}

// nameOfTurn tells the redos of one token from each other, all of which bring back the same.
func nameOfTurn(r checkpoint.Rollback) string {
	if r.Turn == checkpoint.RedoTurn {
		return r.Turn + " " + r.Token
	}
	return r.Turn
}

// RollBack shows the layers of the checkpoint, and none above. The container stays.
func (b *Backend) RollBack(ctx context.Context, r checkpoint.Rollback) (checkpoint.Restoration, error) {
	now, err := b.findContainer(ctx, r)
	if err != nil {
		return checkpoint.Restoration{}, err
	}
	if r.Exactly {
		if err := b.compareSalvage(ctx, now, r); err != nil {
			return checkpoint.Restoration{}, err
		}
	}
	if now.State.Paused { // what is frozen does not end
		if err := b.engine.ContainerUnpause(ctx, now.ID); err != nil && !engine.IsConflict(err) {
			return checkpoint.Restoration{}, engine.Explain("unpausing the container", err)
		}
	}
	ask := helper.Request{Op: helper.Restore, Container: now.ID, Name: nameOfCheckpoint(r), Turn: nameOfTurn(r)}
	if r.Turn != checkpoint.UndoTurn {
		ask.Door = r.Token
	}
	if r.Keep != "" {
		ask.Keep = salvageName(r.Token, r.Keep)
	}
	back := checkpoint.Restoration{ID: now.ID, Stopped: r.Stopped}
	// nothing is done between the restore and the look
	atOnce := now.State.Running && len(r.Nodes) == 0 && r.Turn != checkpoint.RedoTurn
	if atOnce {
		ask.Parts = looksAfter(r)
	}
	a, err := b.ask(ctx, ask)
	if atOnce && helper.KindOf(err) == helper.Unfit { // it has ended meanwhile
		atOnce, ask.Parts = false, nil
		a, err = b.ask(ctx, ask)
	}
	if err != nil {
		return checkpoint.Restoration{}, err
	}
	point.Reach("container.exec:layers-restored")
	if atOnce {
		err := addSeen(&back, r, a.Parts)
		return back, err
	}
	if err := b.recreateNodes(ctx, now.ID, r.Nodes); err != nil {
		return checkpoint.Restoration{}, err
	}
	err = b.start(ctx, now, r.Stopped)
	if back.Unstartable = engine.WhyUnstartable(err); err != nil && back.Unstartable == "" {
		return checkpoint.Restoration{}, err
	}
	if r.Turn == checkpoint.RedoTurn {
		return back, nil
	}
	err = b.readRestored(ctx, r, &back)
	return back, err
}

// looksAfter is how a container is looked at after a rollback; the last of it only where the
// container runs.
func looksAfter(r checkpoint.Rollback) []helper.Request {
	return []helper.Request{
		{Op: helper.Restored, Name: r.Token, Turn: r.Turn}, {Op: helper.Changes, Name: r.Token, Skip: r.Ignore},
		{Op: helper.Beside},
	}
}

// readRestored adds what is seen in a container after a rollback.
func (b *Backend) readRestored(ctx context.Context, r checkpoint.Rollback, back *checkpoint.Restoration) error {
	parts := looksAfter(r)
	a, err := b.ask(ctx, helper.Request{Op: helper.Together, Container: back.ID, Parts: parts})
	if helper.KindOf(err) == helper.Unfit { // it does not run
		a, err = b.ask(ctx, helper.Request{Op: helper.Together, Container: back.ID, Parts: parts[:2]})
	}
	if err != nil {
		return err
	}
	return addSeen(back, r, a.Parts)
}

// addSeen adds what the looks have seen.
func addSeen(back *checkpoint.Restoration, r checkpoint.Rollback, looks []helper.Answer) (err error) {
	back.Ended = looks[0].Busy
	back.Differs = manifest.Manifest{}.Diff(manifest.FromChanges(looks[1].Changes, r.Ignore))
	seen := checkpoint.Uncovered{}
	if back.Runs = len(looks) == len(looksAfter(r)); back.Runs {
		seen, err = uncoveredOf(looks[2].Changes)
	}
	back.Uncovered = &seen
	return err
}

// findContainer finds the container that a rollback is in. Its layers lie over its own filesystem
// and are nothing without it.
func (b *Backend) findContainer(ctx context.Context, r checkpoint.Rollback) (container.InspectResponse, error) {
	last, err := b.lineage.Walk(ctx, r.Container.ID, func(s lineage.Successor) bool { return s.Fences(r) })
	if err != nil {
		return container.InspectResponse{}, err
	}
	if last.Fences(r) {
		return container.InspectResponse{},
			activities.Errorf(activities.Fenced, "the step has been taken back: this call came too late")
	}
	now := r.Now
	if now.ContainerJSONBase == nil || now.ID != r.Container.ID {
		now, err = b.engine.ContainerInspect(ctx, r.Container.ID)
	}
	if engine.IsNotFound(err) {
		return now, activities.Errorf(activities.DamagedRecord,
			"container %s is gone, and with it what the layers of the checkpoint lay over; a reset makes it anew from its image",
			engine.NameOf(r.Container))
	}
	if err == nil && aside.Is(now) {
		return now, activities.Errorf(activities.Refused,
			"container %s was put aside when another took its place: undo that step first", engine.NameOf(r.Container))
	}
	return now, engine.Explain("looking at the container", err)
}

// compareSalvage refuses to bring back what is not as it was kept. What was kept is described by
// how it differs from the checkpoint of the step that was rolled back.
func (b *Backend) compareSalvage(ctx context.Context, now container.InspectResponse, r checkpoint.Rollback) error {
	of, _, _ := strings.Cut(strings.TrimPrefix(r.Checkpoint, salvagePrefix), ":")
	a, err := b.askOf(ctx, now,
		helper.Request{Op: helper.Changes, Container: now.ID, Name: of, Keep: r.Checkpoint, Skip: r.Ignore})
	if err != nil {
		return err
	}
	seen := manifest.FromChanges(a.Changes, r.Ignore)
	if !now.State.Running {
		seen.Adopt(r.Before)
	}
	if differs := r.Before.Diff(seen); len(differs) > 0 {
		return activities.Errorf(activities.DamagedRecord, "%s changed in what was kept of %s: %s",
			activities.CountOf(len(differs), "path"), engine.NameOf(r.Container), strings.Join(manifest.Few(differs), "; "))
	}
	return nil
}

// What a rollback has kept is a checkpoint too, named by the token and by the digest of what is in
// it.
const salvagePrefix = "kept:"

func salvageName(token string, of activities.Digest) string {
	return salvagePrefix + token + ":" + string(of)
}

// FindSalvage implements [checkpoint.Keeper].
func (b *Backend) FindSalvage(ctx context.Context, r checkpoint.Rollback) (*checkpoint.Salvage, error) {
	a, err := b.ask(ctx, helper.Request{Op: helper.Named, Container: r.Container.ID, Name: salvageName(r.Token, "")})
	if engine.IsNotFound(err) {
		return nil, activities.Errorf(activities.Refused, "container %s has been removed since the rollback",
			engine.NameOf(r.Container))
	}
	if err != nil || len(a.IDs) == 0 {
		return nil, err
	}
	return &checkpoint.Salvage{Image: a.IDs[0],
		After: activities.Digest(strings.TrimPrefix(a.IDs[0], salvageName(r.Token, "")))}, nil
}
