package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// step is a restore that has a record.
type step struct {
	restoreRecord

	before, after snapshot.Content
	// changed are the paths at which these differ.
	changed []string
	// label is that of the checkpoint.
	label string
}

// load reads the record of a token and what it keeps; nil if there is no record.
func (a *restore) load(t *journal.Token, e activities.Entry) (*step, error) {
	s := &step{}
	if found, err := t.Read(journal.Record, &s.restoreRecord); err != nil || !found {
		return nil, err
	}
	before, after := trees(e.Token)
	var err error
	if s.Remake != nil {
		s.after, _, err = a.kept(after, s.After)
		return s, err
	}
	if s.before, s.label, err = a.kept(before, s.Before); err != nil {
		return nil, err
	}
	if s.after, _, err = a.kept(after, s.After); err != nil {
		return nil, err
	}
	if s.after, _, err = s.after.Around(s.before); err != nil {
		return nil, err
	}
	s.changed = s.before.Differs(s.after)
	return s, nil
}

// leaves says whether a path was left alone when the folder was kept.
func (s *step) leaves(at string) bool { return s.before[at].Kind == snapshot.Left }

// kept is what a tree of a record holds, and its label.
func (a *restore) kept(name string, want activities.Digest) (snapshot.Content, string, error) {
	k, err := a.store.Load(name)
	c := k.Content
	if errors.Is(err, fs.ErrNotExist) {
		err = &snapshot.DamageError{Why: "tree " + name + " is gone from the store"}
	}
	if err == nil && c.Digest() != want {
		err = &snapshot.DamageError{Why: "tree " + name + " is not that of the record"}
	}
	return c, k.Label, explain(err)
}

// left are the changed paths that are not as the step left them.
func (s *step) left(now snapshot.Content) []string {
	return slices.DeleteFunc(slices.Clone(s.changed), func(at string) bool { return s.after[at] == now[at] })
}

// way is what an undo makes of a folder that holds something now.
type way struct {
	*step

	// want is what the folder is to hold: of what the step has changed what was there before, and all
	// else as it is.
	want snapshot.Content
	// stay are folders that hold what is left alone, though they should go.
	stay []string
}

func (s *step) plan(now snapshot.Content) (w way, err error) {
	w = way{step: s, want: maps.Clone(now)}
	for _, at := range s.changed {
		if was, there := s.before[at]; there {
			w.want[at] = was
		} else {
			delete(w.want, at)
		}
		// The time of a folder goes with all that is done in it, also by a step that was cut short.
		folder := path.Dir(at)
		if was, is := s.before[folder], w.want[folder]; was.Kind == snapshot.Folder && is.Kind == snapshot.Folder {
			is.MTime = was.MTime
			w.want[folder] = is
		}
	}
	for _, at := range slices.Sorted(maps.Keys(w.want)) { // what is in a folder after the folder
		if folder, there := w.want[path.Dir(at)]; at != "/" && (!there || folder.Kind != snapshot.Folder) {
			delete(w.want, at) // somebody has put it there
		}
	}
	w.want, w.stay, err = w.want.Around(now)
	return w, err
}

// newer are the paths at which the undo would overwrite what somebody else has done.
func (w way) newer(now snapshot.Content) []string {
	r := snapshot.Restore{Want: w.want, Seen: w.after}
	return r.Newer(now)
}

func (w way) drift(at location, now snapshot.Content) *activities.Drift {
	paths := w.newer(now)
	seen := snapshot.Content{}
	for _, path := range paths {
		if is, there := now[path]; there {
			seen[path] = is
		}
	}
	return &activities.Drift{
		Digest: activities.DigestOf(fmt.Appendf(nil, "%q", paths), []byte(seen.Digest())),
		Diff:   at.lines(paths, w.after, now),
	}
}

func (a *restore) Undo(ctx context.Context, e activities.Entry,
	d activities.Decision) (u activities.Undone, err error) {
	t, err := a.token(e)
	if err != nil {
		return u, err
	}
	u, isOver, err := t.BeginUndo()
	if err == nil && !isOver {
		u, err = a.settle(ctx, t, e, d)
	}
	if err != nil || u.Outcome == activities.Drifted {
		return u, err
	}
	return u, a.clearStage(ctx, t, e) // from here on no other call does more
}

// settle undoes what has no outcome yet, and keeps that.
func (a *restore) settle(ctx context.Context, t *journal.Token, e activities.Entry,
	d activities.Decision) (u activities.Undone, err error) {
	point.Reach("folder.restore:closed")
	s, err := a.load(t, e)
	if err == nil && s == nil {
		err = t.CheckNotLost(d.Done, madeDoc, turnDoc)
	}
	if err != nil {
		return u, err
	}
	u = activities.Undone{Outcome: activities.Nothing, Observed: "nothing was put back"}
	if s == nil {
		before, after := trees(e.Token)
		if err := a.drop(before, after); err != nil {
			return u, err
		}
	} else if u, err = a.takeBackBy(s)(ctx, t, e, s, d); err != nil || u.Outcome == activities.Drifted {
		return u, err
	}
	_, err = t.Create(journal.Outcome, &u)
	point.Reach("folder.restore:undone")
	return u, err
}

// takeBackBy is what takes a step back.
func (a *restore) takeBackBy(s *step) func(context.Context, *journal.Token, activities.Entry, *step,
	activities.Decision) (activities.Undone, error) {
	if s.Remake != nil {
		return a.takeBackRemade
	}
	return a.takeBack
}

// clearStage removes the stage of a token that has a record. That of a container that was made is in
// a folder of its own, which goes with it.
func (a *restore) clearStage(ctx context.Context, t *journal.Token, e activities.Entry) error {
	var rec restoreRecord
	if found, err := t.Read(journal.Record, &rec); err != nil || !found || rec.Remake != nil {
		return err
	}
	at, err := a.locateAgain(ctx, rec)
	if activities.TypeOf(err) == activities.Refused { // what it was in is gone, and the stage with it
		return nil
	}
	if err != nil {
		return err
	}
	defer at.close()
	return snapshot.Restore{Stage: at.stage(e.Token)}.Clear()
}

// takeBack puts back what the step has changed.
func (a *restore) takeBack(ctx context.Context, t *journal.Token, e activities.Entry, s *step,
	d activities.Decision) (u activities.Undone, err error) {
	at, err := a.locateAgain(ctx, s.restoreRecord)
	if err != nil {
		return u, err
	}
	defer at.close()
	progress, stop := snapshot.Show(ctx, at.name)
	defer stop()
	if why := at.unusable(); why != "" {
		return u, activities.Errorf(activities.ActionFailed,
			"%s %s; make it (mkdir %s), and what it held is put into it", at.name, why, at.path)
	}
	if err := at.checkSettled(ctx); err != nil {
		return u, activities.Errorf(activities.ActionFailed, "%v", err)
	}
	if s.label != "" && isChanging(at) {
		return u, activities.Errorf(activities.ActionFailed, changing, at.path)
	}
	r := snapshot.Restore{Root: at.root(), From: a.store, Stage: at.stage(e.Token),
		Over: func() error { return checkUnsettled(t) }, Look: snapshot.Look{Leave: s.leaves, Progress: progress}}
	if err := r.Clear(); err != nil { // a forward that was under way does no more
		return u, err
	}
	point.Reach("folder.restore:fenced")
	now, err := a.store.Scan(ctx, at.root(), r.Look)
	if err != nil {
		return u, explain(err)
	}
	if err := a.forgiveRefresh(ctx, at, s, now); err != nil {
		return u, err
	}
	back, err := s.plan(now)
	if err != nil {
		return u, err
	}
	r.Want, r.Seen = back.want, s.after
	if newer := back.newer(now); len(newer) > 0 {
		drift := back.drift(at, now)
		if drift.Digest != d.Force {
			return activities.Undone{Outcome: activities.Drifted, Drift: drift,
				Observed: at.name + " is not as the step left it: " + newer[0]}, nil
		}
		r.Seen = now
	}
	differs, err := r.Run(ctx)
	if err == nil {
		err = at.checkSettled(ctx)
	}
	if err != nil {
		return u, explain(err)
	}
	differs = slices.DeleteFunc(differs, func(at string) bool { _, is := slices.BinarySearch(s.changed, at); return !is })
	if len(differs) > 0 {
		return u, fmt.Errorf("%s is being changed by someone else: %s is not as it was put back", at.name, differs[0])
	}
	u = activities.Undone{Outcome: activities.Restored,
		Observed: fmt.Sprintf("%s: %s as before", at.name, activities.CountOf(len(s.changed), "path"))}
	if len(back.stay) > 0 {
		u.Outcome, u.Losses = activities.Residue, []string{describeStay(back.stay)}
	}
	return u, nil
}

// checkUnsettled is an error where an undo of the token is over.
func checkUnsettled(t *journal.Token) error {
	over, err := t.Has(journal.Outcome)
	if over {
		err = errors.New("another call has undone the step")
	}
	return err
}
