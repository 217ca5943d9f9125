package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// checkpoint is folder.checkpoint. It changes nothing outside the store, and what it has put there
// goes with its undo.
type checkpoint struct{ *world }

type checkpointParams struct {
	where

	Git     bool `json:"git,omitempty"     jsonschema:"true: it is a git repository; files that git ignores are left out, and a restore leaves them alone and removes no object"`
	Ignored bool `json:"ignored,omitempty" jsonschema:"true: with git, files that git ignores are kept and restored as well"`
	Absent  bool `json:"absent,omitempty"  jsonschema:"true: where there is no such container, that is kept: a restore then sets aside one that is there; by default it is refused"`
}

// label is that of the checkpoint that the step makes.
func (p checkpointParams) label() string {
	switch {
	case p.Git && p.Ignored:
		return wholeGit
	case p.Git:
		return asGit
	}
	return ""
}

// checkpointRecord says which checkpoint the token makes.
type checkpointRecord struct {
	journal.Owned
	where

	ID string `json:"id"`
}

func (*checkpoint) Spec() activities.Spec {
	return activities.Spec{
		Name:    "folder.checkpoint",
		Summary: "Keeps what a folder, a Docker volume or a stopped container holds, for folder.restore.",
		Params:  activities.ParamsSchema[checkpointParams](),
		Outputs: map[string]string{
			"checkpoint": "the name of the checkpoint, for folder.restore",
			"paths":      "how many files, folders and links it holds",
			"bytes":      "how many bytes the files have",
			"commit":     "with git, the commit that is checked out; empty where there is none yet",
		},
		UndoParams: undoParams(), Keys: keys(),
		HostBound: true, Preflights: true, Risk: activities.Low, Strategy: activities.Snapshot,
		Undo: "The checkpoint is dropped; the folder was never changed.",
		Redo: "It runs again: the checkpoint holds what the folder holds then.",
	}
}

// checkpointID is the name of the checkpoint that a token makes.
func checkpointID(token string) string { return "cp-" + token }

func (a *checkpoint) decode(ctx context.Context, s activities.Step) (p checkpointParams, at location, err error) {
	if p, err = activities.DecodeParams[checkpointParams](s.With); err == nil {
		err = p.check()
	}
	if err == nil {
		at, err = a.find(p)(ctx, p.where)
	}
	return p, at, err
}

// find is what finds the folder.
func (a *checkpoint) find(p checkpointParams) func(context.Context, where) (location, error) {
	if p.Absent {
		return a.locateOrAbsent
	}
	return a.locateThere
}

func (p checkpointParams) check() error {
	if p.Git && p.Path == "" {
		return activities.Errorf(activities.Refused, "git: a repository is named by path")
	}
	if p.Ignored && !p.Git {
		return activities.Errorf(activities.Refused,
			"ignored: it says what becomes of files that git ignores, and needs git: true; without, all files are kept")
	}
	if p.Absent && p.Container == "" {
		return activities.Errorf(activities.Refused, "absent: it is about a container that is not there; leave it out")
	}
	return nil
}

// Preflight implements activities.Preflighter.
func (a *checkpoint) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := activities.DecodeParams[checkpointParams](o.With)
	if err != nil {
		return err
	}
	return errors.Join(p.check(), a.preflight(ctx, o, p.where, a.find(p)))
}

func (a *checkpoint) Plan(ctx context.Context, e activities.Entry, s activities.Step) (c activities.Change, err error) {
	t, err := a.token(e)
	if err == nil {
		err = t.CheckOpen()
	}
	if err != nil {
		return c, err
	}
	p, at, err := a.decode(ctx, s)
	if err != nil {
		return c, err
	}
	defer at.close()
	if _, err := lookAt(ctx, at, p.label()); err != nil {
		return c, err
	}
	if at.restless {
		if err := at.checkSettled(ctx); err != nil {
			return c, err
		}
	}
	return activities.Change{
		Summary: "keep what " + at.name + " holds", Strategy: activities.Snapshot, Risk: activities.Low,
		Undo: "the checkpoint is dropped", Keys: []string{at.key},
		Digest: activities.DigestOf([]byte(at.key), []byte(at.path), []byte(p.label())),
	}, nil
}

func (a *checkpoint) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	t, unlock, err := a.openForward(ctx, e)
	if err != nil {
		return r, err
	}
	defer unlock()
	p, at, err := a.decode(ctx, s)
	if err != nil {
		return r, err
	}
	defer at.close()
	rec := checkpointRecord{Owned: journal.Own(ctx, e), where: p.where, ID: checkpointID(e.Token)}
	if found, err := t.Read(journal.Record, &rec); err != nil {
		return r, err
	} else if !found {
		change, err := a.Plan(ctx, e, s)
		if err != nil {
			return r, err
		}
		if err := activities.Judge(ctx, change); err != nil {
			return r, err
		}
		if want != "" && want != change.Digest {
			return r, activities.Errorf(activities.StaleApproval, "%s is not the one that was approved", at.name)
		}
		if _, err := t.Create(journal.Record, &rec); err != nil {
			return r, err
		}
	}
	point.Reach("folder.checkpoint:recorded")
	if found, err := t.Read(journal.Applied, &r); err != nil {
		return r, err
	} else if !found {
		if r, err = a.keep(ctx, at, p.label(), rec, t); err != nil {
			return r, err
		}
		if _, err := t.Create(journal.Applied, &r); err != nil {
			return r, err
		}
	}
	point.Reach("folder.checkpoint:applied")
	return r, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{at})
}

func (a *checkpoint) keep(ctx context.Context, at location, label string, rec checkpointRecord,
	t *journal.Token) (r activities.Result, err error) {
	progress, stop := snapshot.Show(ctx, at.name)
	defer stop()
	look, err := lookAt(ctx, at, label)
	if err != nil {
		return r, err
	}
	root, about, done, err := at.toKeep()
	if err != nil {
		return r, err
	}
	defer done()
	content, err := a.store.Keep(ctx, root, snapshot.Keeping{
		Name: rec.ID, Over: t.CheckOpen, Label: label, About: about,
		Look: snapshot.Look{Leave: look.leaves, Progress: progress},
	})
	if err == nil && at.restless {
		err = at.checkSettled(ctx)
	}
	if err == nil {
		r.Notes, err = a.holdImage(ctx, at, rec.ID)
	}
	if err == nil {
		err = errors.Join(checkRights(content), t.CheckOpen())
	}
	if err != nil {
		return r, errors.Join(explain(err), a.dropOf(ctx, rec.where, rec.ID))
	}
	if at.absent {
		return activities.Result{
			Summary: "kept that there is no " + at.name,
			Outputs: map[string]any{"checkpoint": rec.ID, "paths": 0, "bytes": 0}, After: content.Digest(),
		}, nil
	}
	outputs := map[string]any{"checkpoint": rec.ID, "paths": content.Paths(), "bytes": content.Bytes()}
	if label != "" {
		if outputs["commit"], err = a.commitOf(content); err != nil {
			return r, explain(err)
		}
	}
	return activities.Result{
		Summary: fmt.Sprintf("kept what %s holds: %s, %s", at.name, activities.CountOf(content.Paths(), "path"),
			activities.CountOf(content.Bytes(), "byte")),
		Outputs: outputs,
		After:   content.Digest(),
		Notes:   r.Notes,
	}, nil
}

func (a *checkpoint) Undo(ctx context.Context, e activities.Entry,
	d activities.Decision) (u activities.Undone, err error) {
	t, err := a.token(e)
	if err != nil {
		return u, err
	}
	if u, isOver, err := t.BeginUndo(); isOver || err != nil {
		return u, err
	}
	point.Reach("folder.checkpoint:closed")
	var rec checkpointRecord
	found, err := t.Read(journal.Record, &rec)
	if err == nil && !found {
		err = t.CheckNotLost(d.Done)
	}
	if err != nil {
		return u, err
	}
	keeper, isKept, err := t.Keeper()
	if err == nil && !isKept {
		err = a.dropOf(ctx, rec.where, checkpointID(e.Token))
	}
	if err != nil {
		return u, err
	}
	point.Reach("folder.checkpoint:dropped")
	u = activities.Undone{Outcome: activities.Nothing, Observed: "no checkpoint was made"}
	if isKept {
		u.Observed = fmt.Sprintf("checkpoint %s is that of %s by now, and stays", rec.ID, keeper.Workflow)
		_, err = t.Create(journal.Outcome, &u)
		return u, err
	}
	if found {
		u = activities.Undone{Outcome: activities.Restored, Observed: "checkpoint " + rec.ID + " is dropped"}
	}
	_, err = t.Create(journal.Outcome, &u)
	return u, err
}

// dropOf is drop for what was kept of a folder, which may be a container's.
func (w *world) dropOf(ctx context.Context, f where, names ...string) error {
	err := w.drop(names...)
	if err == nil && f.Container != "" {
		err = w.releaseImages(ctx)
	}
	return err
}

// drop lets go of trees, and of what only they needed.
func (w *world) drop(names ...string) error {
	if err := w.store.Drop(names...); err != nil {
		return err
	}
	err := w.store.Sweep()
	if damaged := (*snapshot.DamageError)(nil); errors.As(err, &damaged) {
		return nil // whoever needs that tree is told; until it goes, no space is freed
	}
	return err
}

func (a *checkpoint) Observe(_ context.Context, e activities.Entry) (o activities.Observation, err error) {
	t, err := a.token(e)
	if err != nil {
		return o, err
	}
	var rec checkpointRecord
	if found, err := t.Read(journal.Record, &rec); err != nil || !found {
		return activities.Observation{State: activities.Unseen, Detail: "the journal has no record of a checkpoint"}, err
	}
	_, err = a.store.Load(rec.ID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return activities.Observation{State: activities.AsBefore, Detail: "there is no checkpoint " + rec.ID}, nil
	case err == nil:
		o.State = activities.AsLeft
	}
	return o, explain(err)
}

func (a *checkpoint) Release(ctx context.Context, e activities.Entry) error {
	t, err := a.token(e)
	if err != nil {
		return err
	}
	var rec checkpointRecord
	if _, err := t.Read(journal.Record, &rec); err != nil {
		return err
	}
	return a.release(ctx, e, rec.where, checkpointID(e.Token))
}

// release drops what a token keeps of a folder.
func (w *world) release(ctx context.Context, e activities.Entry, f where, trees ...string) error {
	t, err := w.token(e)
	if err != nil {
		return err
	}
	if _, err := t.DecideReleasing(); err != nil {
		return err
	}
	return errors.Join(w.dropOf(ctx, f, trees...), t.Drop(journal.Record), t.Drop(journal.Applied), t.MarkReleased())
}
