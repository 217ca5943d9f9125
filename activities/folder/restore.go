package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// restore is folder.restore.
type restore struct{ *world }

type restoreParams struct {
	where

	Checkpoint string `json:"checkpoint" jsonschema:"the checkpoint that says what it is to hold: an output of folder.checkpoint"`
}

// restoreRecord is all that must be known before the folder is touched. What it held, and what it
// is to hold, are trees of the store: see trees.
type restoreRecord struct {
	journal.Owned
	where

	// At is where the folder was.
	At     string            `json:"at"`
	Before activities.Digest `json:"before"`
	After  activities.Digest `json:"after"`
	Result activities.Result `json:"result"`
	// Remake is what a container needs that is made again; nil: none was. Then what it held stays in
	// what is set aside, and Before only says what that was.
	Remake *remake `json:"remake,omitempty"`
}

func (*restore) Spec() activities.Spec {
	return activities.Spec{
		Name: "folder.restore",
		Summary: "Makes a folder, a Docker volume or a stopped container hold what a checkpoint has kept of it, exactly: " +
			"what was made since goes, what was changed or removed comes back. A container that was removed, or made anew " +
			"in another way, is made again as it was.",
		Params:     activities.ParamsSchema[restoreParams](),
		Outputs:    map[string]string{"changed": "how many paths were put back or taken out"},
		UndoParams: undoParams("checkpoint"), Keys: keys(),
		HostBound: true, Preflights: true, Risk: activities.Medium, Strategy: activities.Snapshot,
		Undo: "What the folder held before is kept, and the paths that were changed are put back exactly, but for access " +
			"times, times of creation and inode numbers. A container that was made again is removed, and the one that was set " +
			"aside has its name again.",
		Redo: "It runs again: the folder holds what the checkpoint has, as long as that is kept.",
	}
}

// trees are the names of what a token keeps: what the folder held before, and what it is to hold.
func trees(token string) (before, after string) { return token + ".before", token + ".after" }

// Preflight implements activities.Preflighter.
func (a *restore) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := activities.DecodeParams[restoreParams](o.With)
	if err != nil {
		return err
	}
	problems := []error{a.preflight(ctx, o, p.where, a.locateOrAbsent)}
	if !o.Awaits("checkpoint") && !isCheckpoint(p.Checkpoint) {
		problems = append(problems, refuseName(p.Checkpoint))
	}
	return errors.Join(problems...)
}

func isCheckpoint(name string) bool {
	token, is := strings.CutPrefix(name, checkpointID(""))
	return is && path.Base(token) == token && token != "" && token[0] != '.'
}

func refuseName(name string) error {
	return activities.Errorf(activities.Refused,
		"checkpoint: %q is no name of a checkpoint; take the output checkpoint of a step of folder.checkpoint", name)
}

// wanted is what a checkpoint has of a folder.
type wanted struct {
	snapshot.Kept

	// look is how the folder is looked at.
	look look
	// remake is what has to be made again; nil: the folder is there.
	remake *remake
}

// wanted loads what a checkpoint has of a folder.
func (a *restore) wanted(ctx context.Context, name string, at location) (want wanted, err error) {
	if !isCheckpoint(name) {
		return want, refuseName(name)
	}
	kept, err := a.store.Load(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return want, activities.Errorf(activities.Refused,
			"checkpoint: there is no %s on this worker: it was never made here, was undone, or its record was released", name)
	case err != nil:
		return want, explain(err)
	case at.absent && kept.About == "":
		return want, refuseAbsent(strings.TrimPrefix(at.key, containerKey))
	case kept.Root != at.path && (kept.About == "" || !strings.HasPrefix(at.key, containerKey)):
		return want, activities.Errorf(activities.Refused, "checkpoint: %s is of what was at %s, and %s is at %s", name,
			kept.Root, at.name, at.path)
	}
	if err := checkRights(kept.Content); err != nil {
		return want, err
	}
	want.Kept = kept
	if kept.About != "" {
		want.remake, err = toRemake(name, kept, at)
		return want, explain(err)
	}
	want.look, err = a.lookBack(ctx, at, kept)
	return want, err
}

// locateAgain finds the folder of a record.
func (a *restore) locateAgain(ctx context.Context, rec restoreRecord) (at location, err error) {
	if at, err = a.locate(ctx, rec.where); err == nil && at.absent {
		return at, refuseAbsent(rec.Container)
	}
	if err == nil && at.path != rec.At {
		at.close()
		err = activities.RefuseCurrent(at.key, "%s is at %s now, and the step put back what was at %s", at.name, at.path,
			rec.At)
	}
	return at, err
}

// Plan says what would change, path by path.
func (a *restore) Plan(ctx context.Context, e activities.Entry, s activities.Step) (c activities.Change, err error) {
	t, err := a.token(e)
	if err == nil {
		err = t.CheckOpen()
	}
	if err != nil {
		return c, err
	}
	p, err := activities.DecodeParams[restoreParams](s.With)
	if err != nil {
		return c, err
	}
	at, err := a.locateOrAbsent(ctx, p.where)
	if err != nil {
		return c, err
	}
	defer at.close()
	want, err := a.wanted(ctx, p.Checkpoint, at)
	if err == nil && want.remake != nil {
		err = a.checkRemake(ctx, want.remake)
	}
	if err != nil {
		return c, err
	}
	progress, stop := snapshot.Show(ctx, at.name)
	defer stop()
	before, err := a.scan(ctx, at, snapshot.Look{Leave: want.look.leaves, Progress: progress})
	if err == nil {
		err = checkRights(before)
	}
	if err != nil {
		return c, explain(err)
	}
	if want.remake != nil {
		if want.remake.Aside, err = a.findAside(ctx, want.remake, want.Content); err != nil {
			return c, err
		}
		return want.remake.describe(at, p.Checkpoint, before, want.Content)
	}
	return describe(at, p.Checkpoint, before, want.Content)
}

// scan reads what is at a location.
func (w *world) scan(ctx context.Context, at location, l snapshot.Look) (snapshot.Content, error) {
	if at.absent {
		return snapshot.Content{}, nil
	}
	return w.store.Scan(ctx, at.root(), l)
}

func describe(at location, name string, before, wanted snapshot.Content) (c activities.Change, err error) {
	after, stay, err := wanted.Around(before)
	if err != nil {
		return c, err
	}
	changed := before.Differs(after)
	c = activities.Change{
		Summary:  "put " + at.name + " back to " + name + ": " + activities.CountOf(len(changed), "path") + " differ",
		Diff:     at.lines(changed, before, after),
		Strategy: activities.Snapshot, Risk: activities.Medium, Unchanged: len(changed) == 0,
		Undo:   "what the folder holds now is kept, and the paths that change are put back",
		Keys:   []string{at.key},
		Digest: activities.DigestOf([]byte(at.key), []byte(at.path), []byte(before.Digest()), []byte(after.Digest())),
	}
	if len(stay) > 0 {
		c.Facts = []string{"stays: " + describeStay(stay)}
	}
	if len(changed) == 1 {
		c.Summary = strings.TrimSuffix(c.Summary, "differ") + "differs"
	}
	if len(changed) == 0 {
		c.Summary = "leave " + at.name + ": it holds what " + name + " has"
	}
	return c, nil
}

// describeStay says which folders stay though they should go.
func describeStay(folders []string) string {
	const most = 5
	named := strings.Join(folders[:min(most, len(folders))], ", ")
	holds := "they hold"
	if len(folders) == 1 {
		holds = "it holds"
	}
	return fmt.Sprintf("%s that would have to go, for %s what is left alone: %s",
		activities.CountOf(len(folders), "folder"), holds, named)
}

// lines say what differs at paths, one line each, as many as a person may be shown.
func (l location) lines(paths []string, was, is snapshot.Content) string {
	describe := snapshot.Describe
	if l.image != nil {
		describe = l.image.describe
	}
	var b strings.Builder
	for i, at := range paths {
		line := describe(at, was[at], is[at]) + "\n"
		rest := "and " + activities.CountOf(len(paths)-i, "more path") + "\n"
		if b.Len()+len(line)+len(rest) > activities.MaxDiff {
			return b.String() + rest
		}
		b.WriteString(line)
	}
	return b.String()
}

// Observe compares the paths that the step has changed.
func (a *restore) Observe(ctx context.Context, e activities.Entry) (o activities.Observation, err error) {
	t, err := a.token(e)
	if err != nil {
		return o, err
	}
	step, err := a.load(t, e)
	if err != nil {
		return o, err
	}
	if step == nil {
		return activities.Observation{State: activities.Unseen, Detail: "the journal has no record of a restore"}, nil
	}
	if step.Remake != nil {
		m, err := a.remaking(t, e, step)
		if err != nil {
			return o, err
		}
		return m.observe(ctx)
	}
	at, err := a.locateAgain(ctx, step.restoreRecord)
	if err != nil {
		return o, err
	}
	defer at.close()
	now, err := a.store.Scan(ctx, at.root(), snapshot.Look{Leave: step.leaves})
	if errors.Is(err, fs.ErrNotExist) {
		return activities.Observation{State: activities.Elsewise, Detail: at.name + " is gone"}, nil
	}
	if err != nil {
		return o, err
	}
	if err := a.forgiveRefresh(ctx, at, step, now); err != nil {
		return o, err
	}
	back, err := step.plan(now)
	if err != nil {
		return o, err
	}
	switch {
	case len(back.newer(now)) > 0:
		drift := back.drift(at, now)
		return activities.Observation{State: activities.Elsewise, Detail: drift.Diff, Drift: drift}, nil
	case len(back.want.Differs(now)) == 0:
		o.State = activities.AsBefore
	case len(step.left(now)) == 0:
		o.State = activities.AsLeft
	default:
		o = activities.Observation{State: activities.Elsewise, Detail: at.name + " was put back in part"}
	}
	return o, nil
}

func (a *restore) Release(ctx context.Context, e activities.Entry) error {
	t, err := a.token(e)
	if err != nil {
		return err
	}
	fate, err := t.DecideReleasing()
	if err != nil {
		return err
	}
	var rec restoreRecord
	if _, err := t.Read(journal.Record, &rec); err != nil {
		return err
	}
	if rec.Remake != nil {
		m, err := a.remaking(t, e, &step{restoreRecord: rec})
		if err == nil {
			err = m.release(ctx, fate)
		}
		if err != nil {
			return err
		}
	}
	if err := a.clearStage(ctx, t, e); err != nil {
		return err
	}
	before, after := trees(e.Token)
	return a.release(ctx, e, rec.where, before, after)
}
