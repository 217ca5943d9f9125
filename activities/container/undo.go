package container

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/lineage"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/container/volumes"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

func (x *execAction) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	u, undone, over, err := x.beginUndo(ctx, e)
	if over || err != nil {
		return undone, err
	}
	t := u.Token
	point.Reach("container.exec:undo-begun")
	runs, err := mayRun(t, d.Done)
	if err != nil {
		return activities.Undone{}, err
	}
	if !runs {
		return x.endUndo(ctx, e, t, nothingDone(t))
	}
	rec, found, err := readRecord(t)
	switch {
	case err != nil:
		return activities.Undone{}, err
	case !found:
		return activities.Undone{}, activities.Errorf(activities.DamagedRecord,
			"the record of token %s is gone, though its command may have run", e.Token)
	}
	if err := x.leases.Wait(ctx, engine.NameOf(rec.Container), e.Token); err != nil {
		return activities.Undone{}, err
	}
	if undone, err = x.takeBack(ctx, e, &u, rec, d); err != nil {
		return undone, err
	}
	for looks := 1; undone.Outcome == activities.Drifted; looks++ {
		var by conclusion
		if over, err := t.Read(endingDoc, &by); err != nil {
			return activities.Undone{}, err
		} else if over {
			return x.conclude(ctx, e, t, by) // what was seen is the doing of a reset that was quicker
		}
		if err := x.leases.CheckLater(engine.NameOf(rec.Container), t, rec.Owned); err != nil {
			return activities.Undone{}, err
		}
		if looks == 2 {
			return undone, nil
		}
		// A later step may have been undone since this undo looked: then what it saw was that one's
		// doing.
		u.first = false
		if undone, err = x.takeBack(ctx, e, &u, rec, d); err != nil {
			return undone, err
		}
	}
	return x.endUndo(ctx, e, t, undone)
}

// takeBack rolls the container back, unless someone else has changed it since the step.
func (x *execAction) takeBack(ctx context.Context, e activities.Entry, u *undoing, rec stepRecord,
	d activities.Decision) (undone activities.Undone, err error) {
	t := u.Token
	to, before, err := rollbackOf(t, e.Token, rec, checkpoint.UndoTurn)
	if err != nil {
		return activities.Undone{}, err
	}
	begun, err := x.hasBegun(ctx, *u, rec, to)
	if err != nil {
		return activities.Undone{}, err
	}
	var seen manifest.Manifest // what may be overwritten in volumes
	if !begun {
		var over bool
		if undone, seen, over, err = x.prepareRollback(ctx, e, u, rec, &to, before, d); over || err != nil {
			return undone, err
		}
	}
	point.Reach("container.exec:drift-checked")
	if seen == nil {
		if seen, err = x.mayOverwrite(ctx, t, rec, d); err != nil {
			return activities.Undone{}, err
		}
	}
	back, err := x.rollBack(ctx, t, rec, to, seen)
	if newer := (*snapshot.DriftError)(nil); errors.As(err, &newer) {
		return x.driftOfVolumes(ctx, t, rec, before)
	}
	if err != nil {
		return activities.Undone{}, err
	}
	point.Reach("container.exec:rolled-back")
	remains, err := x.compareRemains(ctx, t, rec, back)
	if err != nil {
		return activities.Undone{}, err
	}
	back.Differs = append(back.Differs, remains...)
	if undone, err = x.report(ctx, rec, to, back); err != nil {
		return undone, err
	}
	if undone.Outcome == activities.Compensated {
		if undone.Heals, err = x.healed(ctx, e.Token, rec); err != nil {
			return undone, err
		}
	}
	return noteUnended(t, undone)
}

// healed are the tokens of later steps whose undo had left something over in a container that this
// one has replaced by what was there before. What is left in volumes stays.
func (x *execAction) healed(ctx context.Context, token string, rec stepRecord) (tokens []string, err error) {
	if x.backends.Of(rec.Backend).Traits().Differential {
		return nil, nil
	}
	var later []string
	_, err = x.lineage.Walk(ctx, rec.Container.ID, func(s lineage.Successor) bool {
		if s.Token != token {
			later = append(later, s.Token)
		}
		return s.Token == token
	})
	for _, other := range later {
		t, failed := x.store.Journal.Token(other)
		if failed != nil {
			return nil, failed
		}
		var undone activities.Undone
		_, failed = t.Read(journal.Outcome, &undone)
		was, found, unread := readRecord(t)
		if err = errors.Join(err, failed, unread); err == nil && found && undone.Outcome == activities.Residue &&
			len(was.Volumes) == 0 {
			tokens = append(tokens, other)
		}
	}
	return tokens, err
}

// hasBegun says whether the rollback has begun already; it does not ask where it cannot have.
func (x *execAction) hasBegun(ctx context.Context, u undoing, rec stepRecord, to checkpoint.Rollback) (bool, error) {
	if u.first {
		return false, nil
	}
	return x.backends.Of(rec.Backend).HasBegun(ctx, to)
}

// noteUnended adds what cannot be told where the step had not come to its end.
func noteUnended(t *journal.Token, undone activities.Undone) (activities.Undone, error) {
	if _, ended, err := target.ReadCompletion(t); err != nil || ended {
		return undone, err
	}
	const meanwhile = "the step had not come to its end: what others changed in the container since the checkpoint " +
		"cannot be told from its doings, and is gone too"
	if undone.Outcome == activities.Restored {
		undone.Observed += "; " + meanwhile
	} else {
		undone.Losses = append(undone.Losses, meanwhile)
	}
	return undone, nil
}

// prepareRollback looks for drift, and checks that the rollback can do what it has to, before
// anything is touched. Seen is what may be overwritten in volumes. Over says that there is nothing
// to roll back, as undone tells.
func (x *execAction) prepareRollback(ctx context.Context, e activities.Entry, u *undoing, rec stepRecord,
	to *checkpoint.Rollback, before manifest.Manifest, d activities.Decision) (undone activities.Undone,
	seen manifest.Manifest, over bool, err error) {
	t := u.Token
	now, present, err := x.viewUndisturbed(ctx, t, rec, e.Token)
	if err != nil {
		return undone, nil, false, err
	}
	if u.left != nil {
		now.After = u.left
	}
	u.left = now.After
	drift := now.Drift()
	if d.Orphan && x.isLost(rec, now, present) && (now.Occupant == "" || d.Force == drift.Digest) {
		undone, err = x.settleLost(ctx, t, rec, before, d)
		return undone, nil, true, err
	}
	if drift != nil && d.Force != drift.Digest {
		// Another call of this undo may have begun since; then what was seen may be its doing.
		if begun, err := x.backends.Of(rec.Backend).HasBegun(ctx, *to); begun || err != nil {
			return undone, nil, false, err
		}
		return activities.Undone{Outcome: activities.Drifted, Observed: now.String(), Drift: drift}, nil, true, nil
	}
	if drift != nil {
		seen = now.Now
	}
	if err := x.copies(t, rec).CheckCopies(ctx); err != nil {
		return undone, nil, false, err
	}
	if err := x.copies(t, rec).CheckWriters(ctx, now.ID); err != nil {
		return undone, nil, false, err
	}
	to.Occupant, to.Stopped = now.Occupant, now.Stopped
	if len(rec.Volumes) == 0 { // to check their copies may take long
		to.Now = present
	}
	if d.Redoable && now.After != nil && !now.Gone && len(rec.Volumes) == 0 {
		to.Keep = now.Now.Digest()
		if _, err := now.Now.Save(t.Dir(), salvageFile(to.Keep)); err != nil {
			return undone, nil, false, err
		}
	}
	return undone, seen, false, nil
}

// report says what was seen after a rollback.
func (x *execAction) report(ctx context.Context, rec stepRecord, r checkpoint.Rollback,
	back checkpoint.Restoration) (activities.Undone, error) {
	undone := x.backends.Of(rec.Backend).Report(volumes.Without(rec.Container, rec.Volumes), r, back)
	if how := rec.Backend.Remark(); how != "" {
		undone.Observed += "; " + how
	}
	if len(rec.Volumes) > 0 {
		undone.Observed += "; its volumes hold what they held before"
	}
	if len(back.Differs) > 0 {
		undone.Outcome = activities.Residue
		undone.Observed = fmt.Sprintf("not as before the step: %s of %s", activities.CountOf(len(back.Differs), "path"),
			engine.NameOf(rec.Container))
		undone.Losses = append(manifest.Few(back.Differs), undone.Losses...)
	}
	stands, err := x.standsNow(ctx, undone, back)
	if err != nil || stands.Outcome == undone.Outcome || back.Unstartable != "" {
		return stands, err
	}
	if taken, err := x.leases.IsEarlierUndoing(rec.Owned); taken || err != nil {
		undone.Observed += "; how it runs is reported by the undo of an earlier step, which continues from there"
		return undone, err
	}
	return stands, nil
}

// standsNow adds how the container stands after a rollback.
func (x *execAction) standsNow(ctx context.Context, undone activities.Undone,
	back checkpoint.Restoration) (activities.Undone, error) {
	if back.Runs {
		return undone, nil
	}
	after, err := x.engine.ContainerInspect(ctx, back.ID)
	switch {
	case back.Unstartable != "": // one that is removed at its end is gone then
		undone.Outcome = activities.Residue
		undone.Observed += "; it does not run, and cannot be started: " + back.Unstartable
	case engine.IsNotFound(err):
		undone.Outcome, undone.Observed = activities.Residue, "the container was removed by someone else after the rollback"
	case err != nil:
		return activities.Undone{}, engine.Explain("looking at the container after the rollback", err)
	case back.Stopped:
		undone.Observed += "; it was stopped since the step, and stays so"
	case !after.State.Running:
		undone.Outcome = activities.Residue
		undone.Observed += fmt.Sprintf("; it does not run: %s with exit status %d after its start", after.State.Status,
			after.State.ExitCode)
	}
	return undone, nil
}
