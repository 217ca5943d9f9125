package replace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// undoTurnTime is how long an undo waits for another one: it is only kinder to the old container
// not to have two at work on it. None relies on it.
const undoTurnTime = 5 * time.Second

func (a *Action) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (undone activities.Undone,
	err error) {
	t, err := a.Store.Open(ctx, e)
	if err != nil {
		return undone, err
	}
	if undone, over, err := t.BeginUndo(); over || err != nil {
		return undone, err
	}
	point.Reach("container.replace:undo-begun")
	turn, cancel := context.WithTimeout(ctx, undoTurnTime)
	defer cancel()
	if unlock, err := t.Lock(turn); err == nil {
		defer unlock()
		if over, err := t.Read(journal.Outcome, &undone); over || err != nil {
			return undone, err
		}
	}
	if undone, err = a.takeBack(ctx, e, t, d); err != nil || undone.Outcome == activities.Drifted {
		return undone, a.settledOr(t, &undone, err)
	}
	point.Reach("container.replace:undone")
	_, err = t.Create(journal.Outcome, &undone)
	return undone, err
}

// settledOr is nil where another undo has come to its end, with its outcome: then what stopped this
// one was that.
func (a *Action) settledOr(t *journal.Token, undone *activities.Undone, err error) error {
	if err == nil {
		return nil
	}
	over, failed := t.Read(journal.Outcome, undone)
	if over && failed == nil {
		return nil
	}
	return errors.Join(err, failed)
}

func (a *Action) takeBack(ctx context.Context, e activities.Entry, t *journal.Token,
	d activities.Decision) (activities.Undone, error) {
	var fresh, trial, old reference
	if err := a.checkNotLost(t, d.Done); err != nil {
		return activities.Undone{}, err
	}
	for _, fence := range []struct { // that of the old container last: see checkNotLost
		doc string
		of  *reference
	}{{newDoc, &fresh}, {trialDoc, &trial}, {asideDoc, &old}} {
		if _, err := t.Create(fence.doc, fence.of); err != nil {
			return activities.Undone{}, err
		}
	}
	if old.ID == "" {
		undone := activities.Undone{Outcome: activities.Nothing, Observed: "nothing was replaced, and no longer can be"}
		return undone, a.removeMade(ctx, e.Token, fresh.ID, trial.ID)
	}
	rec, found, err := a.readRecord(ctx, t)
	if err != nil || !found {
		return activities.Undone{},
			errors.Join(err, activities.Errorf(activities.DamagedRecord, "the record of token %s is gone", e.Token))
	}
	if err := a.Leases.Wait(ctx, engine.NameOf(rec.Old), e.Token); err != nil {
		return activities.Undone{}, err
	}
	if _, err := a.Engine.ContainerInspect(ctx, rec.Old.ID); d.Orphan && engine.IsNotFound(err) {
		return activities.Undone{
			Outcome: activities.Residue,
			Observed: fmt.Sprintf(
				"the old container %s has been removed by somebody: there is nothing to switch back to, and what has its name "+
					"now is left as it is", rec.Old.ID[:12]),
		}, nil
	}
	back, drifted, err := a.decide(ctx, e, t, rec, fresh.ID, d)
	if err == nil && drifted.Outcome == activities.Drifted {
		err = a.Leases.CheckLater(engine.NameOf(rec.Old), t, rec.Owned)
	}
	if err != nil || drifted.Outcome == activities.Drifted {
		return drifted, err
	}
	if _, err := a.Engine.ContainerInspect(ctx, rec.Old.ID); engine.IsNotFound(err) { // nothing is taken away for nothing
		return activities.Undone{}, goneForGood(rec.Old)
	}
	point.Reach("container.replace:drift-checked")
	if err := a.removeMade(ctx, e.Token, fresh.ID, trial.ID); err != nil {
		return activities.Undone{}, err
	}
	if back.Occupant != "" {
		if err := a.Lineage.Remove(ctx, back.Occupant); err != nil {
			return activities.Undone{}, err
		}
	}
	point.Reach("container.replace:new-removed")
	if err := a.bringBack(ctx, e.Token, rec.replacement, back.Left); err != nil {
		return activities.Undone{}, err
	}
	return a.report(ctx, rec)
}

// checkNotLost is DamagedRecord where the document is gone that names the new container, or the one
// that was put aside. An undo writes the one that was put aside last.
func (a *Action) checkNotLost(t *journal.Token, isDone bool) error {
	hasAside, err := t.Has(asideDoc)
	if err != nil {
		return err
	}
	if hasAside {
		hasNew, err := t.Has(newDoc)
		if err != nil || hasNew {
			return err
		}
		return t.CheckNotLost(true)
	}
	done, found, err := target.ReadCompletion(t)
	hasFailed := found && done.Failure != nil // and may not have put anything aside
	if err != nil || hasFailed {
		return err
	}
	return t.CheckNotLost(isDone)
}

// readRecord reads the record of a token, with the id that the old container has now: a step before
// may have been rolled back since, though this one stands in its way.
func (a *Action) readRecord(ctx context.Context, t *journal.Token) (rec stepRecord, found bool, err error) {
	if found, err = t.Read(journal.Record, &rec); err != nil || !found {
		return rec, found, err
	}
	rec.Old.ID, err = a.Lineage.Standing(ctx, rec.Old.ID)
	return rec, true, err
}

// decide looks for drift, each time again for as long as the new container is there. What is not
// there any more once an undo has decided, that undo may have removed.
func (a *Action) decide(ctx context.Context, e activities.Entry, t *journal.Token, rec stepRecord, fresh string,
	d activities.Decision) (back goingBack, drifted activities.Undone, err error) {
	seen, failed := a.view(ctx, t, rec, fresh)
	found, err := t.Read(backDoc, &back)
	if err != nil {
		return back, drifted, err
	}
	left, err := a.setAside(e.Token, rec.replacement).LeftBy(ctx)
	if err != nil {
		return back, drifted, err
	}
	back.Left = cmp.Or(left, back.Left) // what an earlier undo has found may be another one by now
	if found {
		if stands, err := a.stands(ctx, fresh); err != nil || !stands {
			return back, drifted, err
		}
	}
	if failed != nil {
		return back, drifted, failed
	}
	if drift := seen.Drift(); drift != nil && d.Force != drift.Digest {
		return back, activities.Undone{Outcome: activities.Drifted, Observed: seen.String(), Drift: drift}, nil
	}
	back.Occupant = seen.Occupant
	decided := back // what another undo has decided is of another one
	_, err = t.Create(backDoc, &decided)
	back.Left = cmp.Or(back.Left, decided.Left)
	return back, drifted, err
}

// stands says whether a container is there, under whatever id it has now.
func (a *Action) stands(ctx context.Context, id string) (bool, error) {
	now, err := a.Lineage.Standing(ctx, id)
	if err != nil {
		return false, err
	}
	_, err = a.Engine.ContainerInspect(ctx, now)
	if engine.IsNotFound(err) {
		return false, nil
	}
	return true, engine.Explain("looking at the new container", err)
}

func goneForGood(old container.InspectResponse) error {
	return activities.Errorf(activities.DamagedRecord,
		"the old container %s has been removed by somebody: there is nothing to switch back to; resolve with accept to "+
			"keep the new one", old.ID[:12])
}

// goingBack is what an undo has decided, once it has looked for drift.
type goingBack struct {
	// Occupant is another container that has the name now, and that a person has decided to replace.
	Occupant string `json:"occupant,omitempty"`
	// Left is the name under which a later step has left the old container aside.
	Left string `json:"left,omitempty"`
}

// removeMade removes what the step has made: the new container, under whatever id it has now, the
// trial, and what has no name yet.
func (a *Action) removeMade(ctx context.Context, token, fresh, trial string) error {
	ids := []string{fresh, trial}
	if fresh != "" {
		standing, err := a.Lineage.Standing(ctx, fresh)
		if err != nil {
			return err
		}
		ids = append(ids, standing)
	}
	for _, id := range ids {
		if id == "" {
			continue
		}
		if err := a.Lineage.RemoveMade(ctx, id); err != nil {
			return err
		}
	}
	return a.sweep(ctx, token, "")
}

// bringBack gives the old container its name again and starts it. Left is the name under which a
// later step had left it aside.
func (a *Action) bringBack(ctx context.Context, token string, r replacement, left string) error {
	old := a.setAside(token, r)
	old.Left = left
	err := old.BringBack(ctx, func(ctx context.Context, name string) error { return a.restart(ctx, name, old) })
	if errors.Is(err, aside.ErrGone) {
		return goneForGood(r.Old)
	}
	return err
}

// restart starts the old container under the name that only an undo gives it. A forward may be
// stopping it at this moment: it must not end after its start, so it is stopped first.
func (a *Action) restart(ctx context.Context, name string, old aside.Container) error {
	if err := a.Engine.ContainerStop(ctx, name, container.StopOptions{}); err != nil {
		return engine.Explain("stopping the old container", err)
	}
	point.Reach("container.replace:old-stopped-again")
	if err := old.RestoreRestarts(ctx, name); err != nil {
		return err
	}
	if err := a.Engine.ContainerStart(ctx, name, container.StartOptions{}); err != nil {
		return engine.Explain("starting the old container", err)
	}
	point.Reach("container.replace:old-started")
	return nil
}

// report says what is seen after a switch back.
func (a *Action) report(ctx context.Context, rec stepRecord) (activities.Undone, error) {
	name := engine.NameOf(rec.Old)
	now, err := a.Engine.ContainerInspect(ctx, rec.Old.ID)
	if err != nil {
		return activities.Undone{}, engine.Explain("looking at the old container", err)
	}
	undone := activities.Undone{
		Outcome: activities.Compensated,
		Observed: fmt.Sprintf("container %s (%s) has its name %s again, and runs", rec.Old.ID[:12], rec.Old.Config.Image,
			name),
		Losses: slices.Concat(rec.losses(), moved(rec.Old, now), target.NotRolledBack(rec.Old, rec.Ignore)),
	}
	if engine.NameOf(now) != name || !now.State.Running {
		undone.Outcome = activities.Residue
		undone.Observed = fmt.Sprintf("container %s is called %s and is %s; it was running as %s", rec.Old.ID[:12],
			engine.NameOf(now), now.State.Status, name)
	}
	return undone, nil
}

// moved names the addresses and ports that an engine has chosen anew.
func moved(was, is container.InspectResponse) []string {
	var lost []string
	for _, name := range slices.Sorted(maps.Keys(was.NetworkSettings.Networks)) {
		had, has := was.NetworkSettings.Networks[name], is.NetworkSettings.Networks[name]
		if has == nil {
			lost = append(lost, "it is not in network "+name+" any more")
		} else if had.IPAddress != has.IPAddress {
			lost = append(lost, fmt.Sprintf("its address in network %s is %s; it was %s", name, has.IPAddress, had.IPAddress))
		}
	}
	for _, port := range slices.Sorted(maps.Keys(was.NetworkSettings.Ports)) {
		had := was.NetworkSettings.Ports[port]
		if has := is.NetworkSettings.Ports[port]; !slices.Equal(had, has) {
			lost = append(lost, fmt.Sprintf("its port %s is published at %v; it was at %v", port, has, had))
		}
	}
	return lost
}
