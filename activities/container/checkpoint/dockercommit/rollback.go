package dockercommit

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/lineage"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/blueprint"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/point"
)

func madeBy(r checkpoint.Rollback) func(lineage.Successor) bool {
	return func(s lineage.Successor) bool { return s.IsOf(r) }
}

// HasBegun implements [checkpoint.Keeper].
func (b *Backend) HasBegun(ctx context.Context, r checkpoint.Rollback) (bool, error) {
	last, err := b.lineage.Walk(ctx, r.Container.ID, madeBy(r))
	return last.IsOf(r), err
}

// RollBack builds the new container beside the old one, complete but not started, and has it named
// the old one's successor. Only then do the two change places. What is brought back is read in the
// new container when it runs, where a helper can look into it; else meanwhile, in a container like
// it that is never started.
func (b *Backend) RollBack(ctx context.Context, r checkpoint.Rollback) (checkpoint.Restoration, error) {
	var beside comparison
	defer beside.stop()
	started := false
	for {
		last, err := b.lineage.WalkWatching(ctx, r.Container.ID,
			func(s lineage.Successor) bool { return s.IsOf(r) || s.Fences(r) },
			func(s lineage.Successor) {
				started = s.IsOf(r)
				if started && !r.Exactly {
					beside.start(ctx, func(ctx context.Context) ([]string, error) { return b.compare(ctx, r, s) })
				}
			})
		if err != nil {
			return checkpoint.Restoration{}, err
		}
		if last.IsOf(r) {
			back := checkpoint.Restoration{ID: last.ID, Stopped: !last.Start, Unstartable: last.Unstartable}
			if back.Differs, err = b.see(ctx, r, last, started, &beside); err != nil {
				return back, err
			}
			return back, b.removeLosers(ctx, r, last)
		}
		if last.Fences(r) {
			return checkpoint.Restoration{},
				activities.Errorf(activities.Fenced, "the step has been taken back: this call came too late")
		}
		if err := b.replaceContainer(ctx, r, last.ID, &beside); err != nil {
			return checkpoint.Restoration{}, err
		}
	}
}

// replaceContainer gives the container old a successor: a new one from the checkpoint, or whoever
// was quicker.
func (b *Backend) replaceContainer(ctx context.Context, r checkpoint.Rollback, old string,
	beside *comparison) (err error) {
	model, retire, err := b.findModel(ctx, r, old)
	if err != nil {
		return err
	}
	mine := lineage.Successor{
		Name: engine.NameOf(model), Start: !r.Stopped, Resumes: r.Resumes, Retire: retire, Stood: model.Image, Token: r.Token,
		Turn: r.Turn,
	}
	claiming := false
	defer func() {
		if !claiming {
			err = errors.Join(err, b.discard(context.WithoutCancel(ctx), mine))
		}
	}()
	if r.Keep != "" && retire == old {
		if mine.Kept, err = b.keepSalvage(ctx, r, model); err != nil {
			return err
		}
	}
	// Keeping something takes long. Another that was quicker may have swept up already: what is built
	// now and left by a process that dies would stay.
	if late, err := b.lineage.HasSuccessor(old); late || err != nil {
		return err
	}
	if !r.Exactly && (r.Stopped || !b.engine.CanLook()) {
		beside.start(ctx, func(ctx context.Context) ([]string, error) { return b.compareCheckpoint(ctx, r, model) })
	}
	if mine.ID, err = b.buildCandidate(ctx, r, model); err != nil {
		return err
	}
	point.Reach("container.exec:candidate-built")
	if r.Exactly { // before anything is touched
		if _, err := b.compareCandidate(ctx, r, mine.ID); err != nil {
			return err
		}
	}
	claiming = true // from here on the journal decides, also where it fails to answer: a sweep clears away the loser
	won, err := b.lineage.Claim(old, mine)
	if err != nil {
		return err
	}
	point.Reach("container.exec:successor-named")
	if won.ID != mine.ID {
		return b.discard(ctx, mine)
	}
	return nil
}

// discard clears away what was made for a successor that was not chosen.
func (b *Backend) discard(ctx context.Context, s lineage.Successor) error {
	var err error
	if s.ID != "" {
		err = b.lineage.Remove(ctx, s.ID)
	}
	if s.Kept != nil {
		_, removed := b.engine.ImageRemove(ctx, s.Kept.Image, image.RemoveOptions{})
		if removed != nil && !engine.IsNotFound(removed) && !engine.IsConflict(removed) {
			err = errors.Join(err, engine.Explain("dropping what was kept", removed))
		}
	}
	return err
}

// compareCandidate lists what in a candidate is not as it has to be.
func (b *Backend) compareCandidate(ctx context.Context, r checkpoint.Rollback, candidate string) ([]string, error) {
	if r.Before == nil {
		return nil, nil
	}
	seen, err := manifest.Take(ctx, b.engine, candidate, r.Ignore)
	if err != nil {
		return nil, err
	}
	differs := r.Before.Diff(seen)
	if r.Exactly && len(differs) > 0 {
		return nil, activities.Errorf(activities.DamagedRecord, "%s changed in what was kept of %s: %s",
			activities.CountOf(len(differs), "path"), engine.NameOf(r.Container), strings.Join(manifest.Few(differs), "; "))
	}
	return differs, nil
}

// see lists what is not as it has to be in what a rollback has brought back. If this call has
// started that, it notes too what the program has written.
func (b *Backend) see(ctx context.Context, r checkpoint.Rollback, made lineage.Successor, started bool,
	beside *comparison) ([]string, error) {
	if r.Before == nil || r.Exactly {
		return nil, nil
	}
	id := made.ID
	seen, noted, err := b.lineage.Seen(id)
	if noted || err != nil {
		return seen.Differs, err
	}
	beside.start(ctx, func(ctx context.Context) ([]string, error) { return b.compare(ctx, r, made) })
	differs, failed := beside.wait()
	if failed != nil { // another call may have come to its end, and cleared away what this one has read
		seen, noted, err := b.lineage.Seen(id)
		if !noted {
			err = errors.Join(failed, err)
		}
		return seen.Differs, err
	}
	seen = lineage.Seen{Differs: differs}
	if started { // else it may have run for long, and others may have worked in it
		if seen.Started, err = b.readStarted(ctx, r, made.ID); err != nil {
			return nil, err
		}
	}
	seen, err = b.lineage.NoteSeen(id, seen)
	return seen.Differs, err
}

// readStarted reads what the program of a container that a rollback has started has written by now.
// It is read as late as can be: the undo of an earlier step, which comes next, must not take that
// for somebody else's change.
func (b *Backend) readStarted(ctx context.Context, r checkpoint.Rollback, id string) (map[string]manifest.Difference,
	error) {
	now, err := manifest.Take(ctx, b.engine, id, r.Ignore)
	if engine.IsNotFound(err) { // it has been removed since, or has removed itself at its end
		return nil, nil
	}
	return r.Before.Differences(now), err
}

// compare lists what is not as it has to be in what a rollback has brought back. Where the running
// container shows nothing that differs, that is the answer. What it shows its program may have
// written since its start: then one is read that never starts.
func (b *Backend) compare(ctx context.Context, r checkpoint.Rollback, made lineage.Successor) ([]string, error) {
	if r.Before == nil {
		return nil, nil
	}
	if made.Start && b.engine.CanLook() {
		if seen, ok, err := manifest.List(ctx, b.engine, made.ID, r.Ignore); ok && err == nil &&
			len(r.Before.Diff(seen)) == 0 {
			return nil, nil
		}
	}
	model, _, err := b.findModel(ctx, r, made.ID)
	if err != nil {
		return nil, err
	}
	return b.compareCheckpoint(ctx, r, model)
}

// compareCheckpoint lists what in a container from the checkpoint is not as it has to be before it
// is started.
func (b *Backend) compareCheckpoint(ctx context.Context, r checkpoint.Rollback,
	model container.InspectResponse) ([]string, error) {
	if r.Before == nil {
		return nil, nil
	}
	id, err := b.buildCandidate(context.WithoutCancel(ctx), r, model) // what is cut short an engine may make all the same
	if err != nil {
		return nil, err
	}
	differs, err := b.compareCandidate(ctx, r, id)
	return differs, errors.Join(err, b.lineage.Remove(context.WithoutCancel(ctx), id))
}

// findModel finds the container to copy the settings of, and the one to retire.
func (b *Backend) findModel(ctx context.Context, r checkpoint.Rollback, old string) (model container.InspectResponse,
	retire string, err error) {
	switch present, err := b.engine.ContainerInspect(ctx, old); {
	case err == nil && !aside.Is(present):
		return present, old, nil
	case err != nil && !engine.IsNotFound(err):
		return model, "", engine.Explain("looking at the container", err)
	}
	return r.Container, r.Occupant, nil
}

// buildCandidate makes the candidate under a name of its own. Nothing else knows its id until it is
// claimed.
func (b *Backend) buildCandidate(ctx context.Context, r checkpoint.Rollback,
	model container.InspectResponse) (id string, err error) {
	plan := blueprint.Copy(model, r.Checkpoint)
	name := aside.NamePrefix(r.Token) + r.Turn + "-" + strings.ToLower(rand.Text()[:8])
	made, err := b.engine.ContainerCreate(ctx, plan.Config, plan.Host, plan.Network, nil, name)
	if engine.IsNotFound(err) { // of the image, or of a network or a volume that may come back
		if _, gone := b.engine.ImageInspect(ctx, r.Checkpoint); engine.IsNotFound(gone) {
			return "", activities.Errorf(activities.DamagedRecord,
				"the image to make container %s anew from is gone: somebody has removed %s from the engine",
				engine.NameOf(r.Container), r.Checkpoint)
		}
	}
	if err != nil {
		return "", engine.Explain("making the container anew from its image", err)
	}
	for _, n := range plan.Extra {
		if err := b.engine.NetworkConnect(ctx, n.Network, made.ID, n.Endpoint); err != nil {
			err = engine.Explain("connecting the new container to network "+n.Network, err)
			return "", errors.Join(err, b.lineage.Remove(context.WithoutCancel(ctx), made.ID))
		}
	}
	return made.ID, nil
}

// beats says of a candidate's name that whoever builds it has lost against this rollback.
func beats(r checkpoint.Rollback, name string) bool {
	turn, ours := strings.CutPrefix(strings.TrimPrefix(name, "/"), aside.NamePrefix(r.Token))
	if i := strings.LastIndexByte(turn, '-'); i >= 0 {
		turn = turn[:i]
	}
	return ours && (turn == r.Turn || checkpoint.Rank(turn) < checkpoint.Rank(r.Turn))
}

// removeLosers removes the candidates of calls that were cut short, and what they have kept: the
// successor of this rollback is chosen, so that all others of its turn, and those of turns which it
// fences, have lost; also where the builder is still to find out.
func (b *Backend) removeLosers(ctx context.Context, r checkpoint.Rollback, chosen lineage.Successor) error {
	err := b.removeCandidates(ctx, r.Token, func(candidate container.Summary) bool {
		return candidate.ID != chosen.ID &&
			slices.ContainsFunc(candidate.Names, func(name string) bool { return beats(r, name) })
	})
	if err != nil || r.Turn != checkpoint.UndoTurn {
		return err
	}
	return b.dropSalvageBut(ctx, r.Token, chosen.Kept)
}

// removeCandidates removes those of a token's candidates that have lost.
func (b *Backend) removeCandidates(ctx context.Context, token string, lost func(container.Summary) bool) error {
	found, err := b.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("name", "^/"+aside.NamePrefix(token)), filters.Arg("status", "created"),
	)})
	if err != nil {
		return engine.Explain("looking for what was left over", err)
	}
	for _, candidate := range found {
		if lost(candidate) {
			if err := b.lineage.Remove(ctx, candidate.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// Release drops everything that is the token's. Nothing of it is under way any more: whatever
// candidate there is was left.
func (b *Backend) Release(ctx context.Context, token string) error {
	every := func(container.Summary) bool { return true }
	return errors.Join(b.dropImages(ctx, checkpointRefs(token), ""), b.dropSalvage(ctx, token),
		b.removeCandidates(ctx, token, every))
}
