package container

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/container/volumes"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

func (x *execAction) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	t, undone, over, err := x.beginUndo(ctx, e)
	if over || err != nil {
		return undone, err
	}
	point.Reach("container.exec:undo-begun")
	runs, err := mayRun(t)
	if err != nil {
		return activities.Undone{}, err
	}
	if !runs {
		return x.end(ctx, e, t, nothingDone(t))
	}
	rec, found, err := readRecord(t)
	switch {
	case err != nil:
		return activities.Undone{}, err
	case !found:
		return activities.Undone{}, activities.Errorf(activities.DamagedRecord, "the record of token %s is gone, though its command may have run", e.Token)
	}
	if err := x.leases.Wait(ctx, nameOf(rec.Container), e.Token); err != nil {
		return activities.Undone{}, err
	}
	if undone, err = x.takeBack(ctx, e, t, rec, d); err != nil {
		return undone, err
	}
	if undone.Outcome == activities.Drifted {
		var by ending
		if over, err := t.Read(endingDoc, &by); err != nil || !over {
			return undone, err
		}
		return x.finish(ctx, e, t, by) // what was seen is the doing of a reset that was quicker
	}
	return x.end(ctx, e, t, undone)
}

// takeBack rolls the container back, unless someone else has changed it since the step.
func (x *execAction) takeBack(ctx context.Context, e activities.Entry, t *journal.Token, rec record, d activities.Decision) (activities.Undone, error) {
	to, before, err := rollbackOf(t, e.Token, rec, undoTurn)
	if err != nil {
		return activities.Undone{}, err
	}
	var seen manifest // what may be overwritten in volumes
	switch begun, err := x.keeper(rec).begun(ctx, to); {
	case err != nil:
		return activities.Undone{}, err
	case !begun:
		now, err := x.lookUndisturbed(ctx, t, rec, e.Token)
		if err != nil {
			return activities.Undone{}, err
		}
		drift := now.drift()
		if drift != nil && d.Force != drift.Digest {
			return activities.Undone{Outcome: activities.Drifted, Observed: now.say(), Drift: drift}, nil
		}
		if drift != nil {
			seen = now.now
		}
		if err := x.unwritten(ctx, rec, now.id); err != nil { // before anything is touched
			return activities.Undone{}, err
		}
		to.Usurper, to.Stopped = now.usurper, now.stopped
		if d.Redoable && now.after != nil && !now.gone && len(rec.Volumes) == 0 && !x.lacksLayers(ctx, rec, now.id) {
			to.Keep = now.now.digest()
			if err := now.now.save(t.Dir(), keptFile(to.Keep)); err != nil {
				return activities.Undone{}, err
			}
		}
	}
	point.Reach("container.exec:drift-checked")
	if seen == nil {
		if seen, err = x.mayOverwrite(t, rec, d); err != nil {
			return activities.Undone{}, err
		}
	}
	back, err := x.roll(ctx, t, rec, to, before, seen)
	if newer := (*volumes.Drifted)(nil); errors.As(err, &newer) {
		return x.driftOfVolumes(t, rec, before)
	}
	if err != nil {
		return activities.Undone{}, err
	}
	point.Reach("container.exec:rolled-back")
	remains, err := x.remains(ctx, t, rec, back.ID)
	if err != nil {
		return activities.Undone{}, err
	}
	back.Differs = append(back.Differs, remains...)
	undone, err := x.report(ctx, rec, to, back)
	if err != nil {
		return undone, err
	}
	if _, ended, err := readApplied(t); err != nil || ended {
		return undone, err
	}
	const meanwhile = "the step had not come to its end: what others changed in the container since the checkpoint cannot be told from its doings, and is gone too"
	if undone.Outcome == activities.Restored {
		undone.Observed += "; " + meanwhile
	} else {
		undone.Losses = append(undone.Losses, meanwhile)
	}
	return undone, nil
}

// report says what was seen after a rollback.
func (x *execAction) report(ctx context.Context, rec record, to rollback, back restored) (activities.Undone, error) {
	name := nameOf(rec.Container)
	undone := activities.Undone{
		Outcome:  activities.Compensated,
		Observed: fmt.Sprintf("the filesystem of %s equals that before the step (%d paths)", name, len(to.Before)),
	}
	_, undone.Losses = x.undoOf(rec.Chosen, rec.Container, rec.Ignore, rec.Volumes...)
	if back.Stays {
		undone = exact(undone, rec, back)
	} else if rec.Chosen.Why != "" {
		undone.Observed += "; by docker commit, not by a layer: " + rec.Chosen.Why
	}
	if len(rec.Volumes) > 0 {
		undone.Observed += "; its volumes hold what they held before"
	}
	if len(back.Differs) > 0 {
		undone.Outcome = activities.Residue
		undone.Observed = fmt.Sprintf("%d paths of %s are not as before the step", len(back.Differs), name)
		undone.Losses = append(few(back.Differs), undone.Losses...)
	}
	return x.standsNow(ctx, undone, back)
}

// standsNow adds how the container stands after a rollback.
func (x *execAction) standsNow(ctx context.Context, undone activities.Undone, back restored) (activities.Undone, error) {
	after, err := x.engine.ContainerInspect(ctx, back.ID)
	switch {
	case engine.IsNotFound(err):
		undone.Outcome, undone.Observed = activities.Residue, "the container was removed by someone else after the rollback"
	case err != nil:
		return activities.Undone{}, engine.Explain("looking at the container after the rollback", err)
	case back.Stopped:
		undone.Observed += "; it was stopped since the step, and stays so"
	case !after.State.Running:
		undone.Outcome = activities.Residue
		undone.Observed += fmt.Sprintf("; it does not run: %s with exit status %d after its start", after.State.Status, after.State.ExitCode)
	}
	return undone, nil
}

// few keeps a report short.
func few(lines []string) []string {
	const most = 20
	if len(lines) <= most {
		return lines
	}
	return append(lines[:most:most], fmt.Sprintf("and %d more paths", len(lines)-most))
}

// sight is what a container looks like now, against what the step knew.
type sight struct {
	name, id string
	// gone says that the container is not in its place; usurper is another one that has its name.
	gone    bool
	usurper string
	// stopped says that someone has stopped it since the step.
	stopped bool
	now     manifest
	before  manifest
	// after is nil where the step has not come to its end: then nobody can tell its doings from others'.
	after manifest
	// unread says that now could not be read.
	unread bool
}

// look observes the container of a step, under whatever id it has now.
func (x *execAction) look(ctx context.Context, t *journal.Token, rec record) (sight, error) {
	s := sight{name: nameOf(rec.Container)}
	done, ended, err := readApplied(t)
	if err != nil {
		return s, err
	}
	if s.before, err = loadManifest(t.Dir(), beforeFile, rec.Before); err != nil {
		return s, err
	}
	if ended && done.After != "" {
		if s.after, err = loadManifest(t.Dir(), afterFile, done.After); err != nil {
			return s, err
		}
	}
	id, err := x.backend.standing(ctx, rec.Container.ID)
	if err != nil {
		return s, err
	}
	s.id = id
	present, err := x.engine.ContainerInspect(ctx, id)
	if engine.IsNotFound(err) || err == nil && isPutAside(present) {
		s.gone = true
		s.usurper, err = x.holderOf(ctx, s.name)
		return s, err
	}
	if err != nil {
		return s, engine.Explain("looking at the container", err)
	}
	s.stopped = ended && done.stoppedSince(present)
	s.now, err = x.keeper(rec).look(ctx, filepath.Base(t.Dir()), id, rec.Ignore)
	if err != nil && s.after == nil { // no drift can be told anyway, and the step itself may have made it unreadable
		s.now, s.unread, err = manifest{}, true, nil
	}
	if err != nil {
		return s, err
	}
	if !present.State.Running {
		s.now.adopt(s.after)
	}
	return s, s.now.addVolumes(rec.Volumes)
}

// holderOf is the id of the container that has a name, and empty where none has.
func (x *execAction) holderOf(ctx context.Context, name string) (string, error) {
	c, err := x.engine.ContainerInspect(ctx, name)
	if engine.IsNotFound(err) {
		return "", nil
	}
	return c.ID, engine.Explain("looking for container "+name, err)
}

// drift is what someone else has done to the container since the step; nil is nothing.
func (s sight) drift() *activities.Drift {
	switch {
	case s.gone && s.usurper != "":
		return &activities.Drift{
			Digest: activities.DigestOf([]byte("usurped"), []byte(s.usurper)),
			Diff:   fmt.Sprintf("- container %s\n+ container %s, another one: %s\n", s.name, s.name, s.usurper[:12]),
		}
	case s.gone:
		return &activities.Drift{Digest: activities.DigestOf([]byte("gone")), Diff: fmt.Sprintf("- container %s\n", s.name)}
	case s.after == nil:
		return nil
	}
	lines := s.after.diff(s.now)
	if len(lines) == 0 || len(s.before.diff(s.now)) == 0 {
		return nil
	}
	return &activities.Drift{
		Digest: activities.DigestOf([]byte("filesystem"), []byte(s.now.digest())),
		Diff:   strings.Join(lines, "\n") + "\n",
	}
}

func (s sight) say() string {
	switch {
	case s.gone && s.usurper != "":
		return "another container has the name " + s.name + " now"
	case s.gone:
		return "container " + s.name + " has been removed, or put aside"
	}
	return fmt.Sprintf("%d paths in %s are not as the step left them", len(s.after.diff(s.now)), s.name)
}
