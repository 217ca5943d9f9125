package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// undoTurnTime is how long an undo waits for another one: it is only kinder to the old container not to have two at work
// on it. None relies on it.
const undoTurnTime = 5 * time.Second

func (a *replaceAction) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (undone activities.Undone, err error) {
	t, err := a.x.token(ctx, e)
	if err != nil {
		return undone, err
	}
	if over, err := t.Read(journal.Outcome, &undone); over || err != nil {
		return undone, err
	}
	fate, err := t.Decide(journal.Undoing)
	if err != nil {
		return undone, err
	}
	if fate != journal.Undoing {
		return undone, activities.Errorf(activities.Fenced, "the step's record is released: its rollback window has closed")
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

// settledOr is nil where another undo has come to its end, with its outcome: then what stopped this one was that.
func (a *replaceAction) settledOr(t *journal.Token, undone *activities.Undone, err error) error {
	if err == nil {
		return nil
	}
	over, failed := t.Read(journal.Outcome, undone)
	if over && failed == nil {
		return nil
	}
	return errors.Join(err, failed)
}

func (a *replaceAction) takeBack(ctx context.Context, e activities.Entry, t *journal.Token, d activities.Decision) (activities.Undone, error) {
	var fresh, trial, aside made
	for doc, m := range map[string]*made{newDoc: &fresh, trialDoc: &trial, asideDoc: &aside} {
		if _, err := t.Create(doc, m); err != nil {
			return activities.Undone{}, err
		}
	}
	if aside.ID == "" {
		undone := activities.Undone{Outcome: activities.Nothing, Observed: "nothing was replaced, and no longer can be"}
		return undone, a.clear(ctx, e.Token, fresh.ID, trial.ID)
	}
	rec, found, err := a.record(ctx, t)
	if err != nil || !found {
		return activities.Undone{}, errors.Join(err, activities.Errorf(activities.DamagedRecord, "the record of token %s is gone", e.Token))
	}
	if err := a.x.leases.Wait(ctx, nameOf(rec.Old), e.Token); err != nil {
		return activities.Undone{}, err
	}
	usurper, drifted, err := a.decide(ctx, t, rec, fresh.ID, d)
	if err != nil || drifted.Outcome == activities.Drifted {
		return drifted, err
	}
	if _, err := a.x.engine.ContainerInspect(ctx, rec.Old.ID); engine.IsNotFound(err) { // nothing is taken away for nothing
		return activities.Undone{}, goneForGood(rec.Old)
	}
	point.Reach("container.replace:drift-checked")
	if err := a.clear(ctx, e.Token, fresh.ID, trial.ID); err != nil {
		return activities.Undone{}, err
	}
	if usurper != "" {
		if err := a.x.discardOthers(ctx, usurper); err != nil {
			return activities.Undone{}, err
		}
	}
	point.Reach("container.replace:new-removed")
	if err := a.bringBack(ctx, e.Token, rec.replacement); err != nil {
		return activities.Undone{}, err
	}
	return a.report(ctx, rec)
}

// record reads the record of a token, with the id that the old container has now: a step before may have been rolled back
// since, though this one stands in its way.
func (a *replaceAction) record(ctx context.Context, t *journal.Token) (rec replaced, found bool, err error) {
	if found, err = t.Read(journal.Record, &rec); err != nil || !found {
		return rec, found, err
	}
	rec.Old.ID, err = a.x.backend.standing(ctx, rec.Old.ID)
	return rec, true, err
}

// decide looks for drift, each time again for as long as the new container is there. What is not there any more once an undo
// has decided, that undo may have removed.
func (a *replaceAction) decide(ctx context.Context, t *journal.Token, rec replaced, fresh string, d activities.Decision) (usurper string, drifted activities.Undone, err error) {
	seen, failed := a.look(ctx, t, rec, fresh)
	var back goingBack
	found, err := t.Read(backDoc, &back)
	if err != nil {
		return "", drifted, err
	}
	if found {
		if stands, err := a.stands(ctx, fresh); err != nil || !stands {
			return back.Usurper, drifted, err
		}
	}
	if failed != nil {
		return "", drifted, failed
	}
	if drift := seen.drift(); drift != nil && d.Force != drift.Digest {
		return "", activities.Undone{Outcome: activities.Drifted, Observed: seen.say(), Drift: drift}, nil
	}
	back.Usurper = seen.usurper
	_, err = t.Create(backDoc, &back)
	return seen.usurper, drifted, err
}

// stands says whether a container is there, under whatever id it has now.
func (a *replaceAction) stands(ctx context.Context, id string) (bool, error) {
	now, err := a.x.backend.standing(ctx, id)
	if err != nil {
		return false, err
	}
	_, err = a.x.engine.ContainerInspect(ctx, now)
	if engine.IsNotFound(err) {
		return false, nil
	}
	return true, engine.Explain("looking at the new container", err)
}

func goneForGood(old container.InspectResponse) error {
	return activities.Errorf(activities.DamagedRecord,
		"the old container %s has been removed by somebody: there is nothing to switch back to; resolve with accept to keep the new one", old.ID[:12])
}

// goingBack is what an undo has decided, once it has looked for drift.
type goingBack struct {
	// Usurper is another container that has the name now, and that a person has decided to replace.
	Usurper string `json:"usurper,omitempty"`
}

// clear removes what the step has made: the new container, under whatever id it has now, the trial, and what has no name yet.
func (a *replaceAction) clear(ctx context.Context, token, fresh, trial string) error {
	ids := []string{fresh, trial}
	if fresh != "" {
		standing, err := a.x.backend.standing(ctx, fresh)
		if err != nil {
			return err
		}
		ids = append(ids, standing)
	}
	for _, id := range ids {
		if id == "" {
			continue
		}
		if err := a.x.discard(ctx, id); err != nil {
			return err
		}
	}
	return a.sweep(ctx, token, "")
}

// bringBack gives the old container its name again and starts it. It ends when no forward and no other undo of the token
// can do anything to it any more: both names by which they could are taken.
func (a *replaceAction) bringBack(ctx context.Context, token string, r replacement) error {
	old, back, aside := r.Old, returnName(token), asideName(token)
	name := nameOf(old)
	for {
		holder, err := a.x.holderOf(ctx, back)
		if err != nil || holder != "" && holder != old.ID { // it is done
			return err
		}
		now, err := a.x.engine.ContainerInspect(ctx, old.ID)
		if engine.IsNotFound(err) {
			return goneForGood(old)
		}
		if err != nil {
			return engine.Explain("looking at the old container", err)
		}
		if nameOf(now) != back {
			point.Reach("container.replace:before-return")
			if err := a.x.engine.ContainerRename(ctx, old.ID, back); err != nil {
				return engine.Explain("taking the old container back", err)
			}
		}
		point.Reach("container.replace:old-returning")
		if fenced, err := a.barrier(ctx, aside, r); err != nil {
			return err
		} else if !fenced { // a forward was quicker
			continue
		}
		point.Reach("container.replace:forward-fenced")
		if err := a.restart(ctx, back, old); err != nil {
			return err
		}
		point.Reach("container.replace:old-started")
		if err := a.x.engine.ContainerRename(ctx, old.ID, name); err != nil {
			return engine.Explain("giving the old container its name "+name, err)
		}
		point.Reach("container.replace:old-named")
		if fenced, err := a.barrier(ctx, back, r); err != nil || fenced {
			point.Reach("container.replace:undo-fenced")
			return err
		}
	}
}

// restart starts the old container under the name that only an undo gives it. A forward may be stopping it at this moment:
// it must not end after its start, so it is stopped first.
func (a *replaceAction) restart(ctx context.Context, name string, old container.InspectResponse) error {
	if err := a.x.engine.ContainerStop(ctx, name, container.StopOptions{}); err != nil {
		return engine.Explain("stopping the old container", err)
	}
	point.Reach("container.replace:old-stopped-again")
	if policy := old.HostConfig.RestartPolicy; !policy.IsNone() {
		if err := a.x.restarts(ctx, name, policy); err != nil {
			return err
		}
	}
	return engine.Explain("starting the old container", a.x.engine.ContainerStart(ctx, name, container.StartOptions{}))
}

// report says what is seen after a switch back.
func (a *replaceAction) report(ctx context.Context, rec replaced) (activities.Undone, error) {
	name := nameOf(rec.Old)
	now, err := a.x.engine.ContainerInspect(ctx, rec.Old.ID)
	if err != nil {
		return activities.Undone{}, engine.Explain("looking at the old container", err)
	}
	undone := activities.Undone{
		Outcome:  activities.Compensated,
		Observed: fmt.Sprintf("container %s (%s) has its name %s again, and runs", rec.Old.ID[:12], rec.Old.Config.Image, name),
		Losses:   slices.Concat(rec.losses(), moved(rec.Old, now), outside(rec.Old, rec.Ignore)),
	}
	if nameOf(now) != name || !now.State.Running {
		undone.Outcome = activities.Residue
		undone.Observed = fmt.Sprintf("container %s is called %s and is %s; it was running as %s", rec.Old.ID[:12], nameOf(now), now.State.Status, name)
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

// look observes the container that has taken the old one's place.
func (a *replaceAction) look(ctx context.Context, t *journal.Token, rec replaced, fresh string) (sight, error) {
	s := sight{name: nameOf(rec.Old), before: manifest{}}
	done, ended, err := readApplied(t)
	if err != nil || !ended || done.After == "" {
		return s, err
	}
	if s.after, err = loadManifest(t.Dir(), afterFile, done.After); err != nil {
		return s, err
	}
	id, err := a.x.backend.standing(ctx, fresh)
	if err != nil {
		return s, err
	}
	holder, err := a.x.holderOf(ctx, s.name)
	if err != nil {
		return s, err
	}
	if holder == rec.Old.ID {
		if stands, err := a.stands(ctx, fresh); err != nil || !stands { // it is back already: nothing is in its way
			s.after = nil
			return s, err
		}
	}
	if holder != id {
		s.gone, s.usurper = true, holder
		return s, nil
	}
	s.now, err = takeManifest(ctx, a.x.engine, id, rec.Ignore)
	return s, err
}

func (a *replaceAction) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	t, err := a.x.token(ctx, e)
	if err != nil {
		return activities.Observation{}, err
	}
	rec, found, err := a.record(ctx, t)
	if err != nil {
		return activities.Observation{}, err
	}
	if !found {
		return activities.Observation{State: activities.Unseen, Detail: "there is no record of the step: it has not run, or its record is released"}, nil
	}
	name := nameOf(rec.Old)
	holder, err := a.x.holderOf(ctx, name)
	if err != nil {
		return activities.Observation{}, err
	}
	if holder == rec.Old.ID {
		return activities.Observation{State: activities.AsBefore, Detail: name + " is the container that it was before the step"}, nil
	}
	var fresh made
	if _, err := t.Read(newDoc, &fresh); err != nil {
		return activities.Observation{}, err
	}
	if fresh.ID == "" {
		return activities.Observation{State: activities.Unseen, Detail: name + " is another container than before, and the step has not made it"}, nil
	}
	s, err := a.look(ctx, t, rec, fresh.ID)
	if err != nil {
		return activities.Observation{}, err
	}
	if drift := s.drift(); drift != nil {
		return activities.Observation{State: activities.Elsewise, Detail: s.say(), Drift: drift}, nil
	}
	if s.after == nil {
		return activities.Observation{State: activities.Unseen, Detail: "the step has not come to its end"}, nil
	}
	return activities.Observation{State: activities.AsLeft, Detail: name + " is the container that the step has made"}, nil
}

// Release removes the old container, which was kept until now, and what holds its names after an undo.
func (a *replaceAction) Release(ctx context.Context, e activities.Entry) error {
	t, err := a.x.token(ctx, e)
	if err != nil {
		return err
	}
	fate, err := t.DecideReleasing()
	if err != nil {
		return err
	}
	rec, _, err := a.record(ctx, t)
	if err != nil && !damaged(err) {
		return err
	}
	var aside made
	if _, err := t.Read(asideDoc, &aside); err != nil && !damaged(err) {
		return err
	}
	if err := a.dropNames(ctx, e.Token, fate, rec, aside.ID); err != nil {
		return err
	}
	bulk, err := filepath.Glob(filepath.Join(t.Dir(), "*.gz"))
	if err != nil {
		return err
	}
	for _, file := range bulk {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errors.Join(t.Drop(journal.Record), t.MarkReleased())
}

// dropNames removes whatever has a name of the token: after a commit the old container, after an undo what fences it, and
// never the old one; unless that has been made anew since, so that it is not what was put aside any more.
func (a *replaceAction) dropNames(ctx context.Context, token string, fate journal.Fate, rec replaced, aside string) error {
	for _, name := range []string{asideName(token), returnName(token)} {
		holder, err := a.x.holderOf(ctx, name)
		if err != nil {
			return err
		}
		if holder == "" || fate == journal.Undoing && (rec.Old.ContainerJSONBase == nil || holder == rec.Old.ID) {
			continue
		}
		drop := a.x.discard
		if holder == aside {
			drop = a.x.discardOthers
		}
		if err := drop(ctx, holder); err != nil {
			return err
		}
	}
	return a.sweep(ctx, token, "")
}
