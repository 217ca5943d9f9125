package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/disk/qcow2"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// A restore with memory pauses the machine, keeps it as it is, puts the checkpoint back, looks at
// the disks, and lets it go on. A call that finds the machine running in between knows that somebody
// else has continued it, or has started it again.

// pausedDoc is the document of a token that is about to pause a machine.
const pausedDoc = "paused"

// othersDoc is the document of a token that says which disks its snapshots are in, besides its own.
const othersDoc = "others"

type pausing struct {
	// Ran says that the guest ran before.
	Ran bool `json:"ran"`
	// Lost is the drift that a person has seen to go with the undo that pauses it.
	Lost activities.Digest `json:"lost,omitempty"`
}

// pause pauses a machine, and says whether it goes on once the call is done.
func (c *call) pause(ctx context.Context, r *running, lost activities.Digest) (goesOn bool, err error) {
	p := pausing{Lost: lost}
	if p.Ran, err = r.runs(ctx); err != nil {
		return false, err
	}
	if p.Ran { // what an earlier call has noted is over
		err = c.token.Drop(pausedDoc)
	}
	first, createErr := c.token.Create(pausedDoc, &p)
	if err = errors.Join(err, createErr); err == nil && !first {
		_, err = c.token.Read(pausedDoc, &p)
	}
	if err == nil {
		err = r.ask(ctx, "stop", nil)
	}
	if err != nil {
		return false, err
	}
	c.reach("paused")
	return p.Ran, nil
}

// isLosing says that an undo was cut short which a person has let lose this drift, and which keeps
// the machine paused.
func (c *call) isLosing(ctx context.Context, r *running, drift activities.Digest) (bool, error) {
	var p pausing
	found, err := c.token.Read(pausedDoc, &p)
	if err != nil || !found || drift == "" || p.Lost != drift {
		return false, err
	}
	runs, err := r.runs(ctx)
	return !runs, err
}

// goOn lets a machine go on that a call has paused, if it ran before. One that has ended since needs
// nobody for that.
func (c *call) goOn(ctx context.Context, path string) error {
	var p pausing
	found, err := c.token.Read(pausedDoc, &p)
	if err != nil || !found {
		return err
	}
	if p.Ran {
		r, err := c.findMachine(ctx, path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if r != nil {
			defer r.close()
			if err := r.ask(ctx, "cont", nil); err != nil {
				return err
			}
		} else if i, err := holdImage(path); err == nil {
			i.close()
		} else if errors.Is(err, errInUse) { // its socket is another one by now
			return activities.Errorf(activities.ActionFailed,
				"disk: the machine with %s was paused by the step, and cannot be continued: no socket of disk.machines in the "+
					"worker's config leads to it any more; name it there", path)
		}
	}
	c.reach("went-on")
	return c.token.Drop(pausedDoc)
}

func (c *call) planResume(ctx context.Context, p allParams, path string) (change activities.Change, err error) {
	r, err := c.reachMachine(ctx, path)
	if err != nil {
		return change, err
	}
	defer r.close()
	return c.weighResume(ctx, r, p.Checkpoint)
}

// weighResume says what putting a checkpoint back into a machine would do. Its guest may write all
// the time: what is approved is that all goes which it has done.
func (c *call) weighResume(ctx context.Context, r *running, checkpoint string) (change activities.Change, err error) {
	k, err := c.checkResumable(ctx, r, checkpoint)
	if err != nil {
		return change, err
	}
	change = activities.Change{
		Summary:  fmt.Sprintf("put the machine %s back to %s, from where it goes on", r.name, checkpoint),
		Strategy: activities.Snapshot, Risk: activities.High,
		Undo:   "the machine is kept as it is now, and put back, unless it has run since",
		Keys:   []string{keyPrefix + r.path},
		Digest: activities.DigestOf([]byte(restoreName), []byte(r.path), []byte(checkpoint), []byte("memory")),
		Facts: []string{"everything that the machine has done since the checkpoint goes, from its memory and its disks",
			"the machine stands still meanwhile, and its connections are as old as the checkpoint"},
	}
	for _, other := range k.Others {
		change.Keys = append(change.Keys, keyPrefix+other)
	}
	return change, nil
}

// checkResumable finds a checkpoint that can be put back into a machine.
func (c *call) checkResumable(ctx context.Context, r *running, checkpoint string) (k kept, err error) {
	if _, _, err = c.openKept(r.image, checkpoint); err != nil {
		return k, err
	}
	name := snapshotOf(checkpoint)
	if s, _ := r.Find(name); s.Memory == 0 {
		return k, activities.Errorf(activities.Refused,
			"memory: %s was taken without; stop the machine %s, and put it back without memory", checkpoint, r.name)
	}
	if k, err = c.findKept(checkpoint, r.path); err != nil {
		return k, err
	}
	if err := c.checkMachine(ctx, r); err != nil {
		return k, err
	}
	if others := r.others(); !slices.Equal(others, k.Others) {
		return k, activities.Errorf(activities.Refused,
			"memory: besides %s, the machine %s writes %s, and when %s was taken, it wrote %s; start it as it was then",
			r.path, r.name, listed(others), checkpoint, listed(k.Others))
	}
	for _, d := range r.drives {
		if !slices.Contains(d.snapshots, name) {
			return k, noSnapshot(d.path, name)
		}
	}
	return k, nil
}

func listed(paths []string) string {
	if len(paths) == 0 {
		return "nothing"
	}
	return strings.Join(paths, ", ")
}

// resume puts a checkpoint back into a machine, which goes on from there.
func (c *call) resume(ctx context.Context, p allParams, path string) (none activities.Result, err error) {
	var rec record
	found, err := c.token.Read(journal.Record, &rec)
	if err != nil {
		return none, err
	}
	if done, err := c.token.Has(journal.Applied); err != nil || found && done {
		return rec.Result, errors.Join(err, c.goOn(ctx, rec.Path))
	}
	if found {
		path = rec.Path
	}
	r, err := c.reachMachine(ctx, path)
	if err != nil {
		return none, err
	}
	defer r.close()
	if found {
		err = c.checkStillPaused(ctx, r, rec)
	} else if err = c.token.CheckNotLost(false); err == nil {
		rec, err = c.captureMachine(ctx, r, p.Checkpoint)
	}
	if err != nil {
		return none, err
	}
	c.reach("recorded")
	if err := r.load(ctx, snapshotOf(p.Checkpoint)); err != nil {
		return none, err
	}
	c.reach("put-back")
	if _, err := c.token.Create(journal.Applied, &struct{}{}); err != nil {
		return none, err
	}
	c.reach("applied")
	r.close() // its monitor serves one at a time
	return rec.Result, errors.Join(c.goOn(ctx, rec.Path), c.endWriting())
}

// checkStillPaused refuses to go on where an earlier attempt was cut short, if the machine has run
// since.
func (c *call) checkStillPaused(ctx context.Context, r *running, rec record) error {
	runs, err := r.runs(ctx)
	if err == nil && runs {
		err = activities.Errorf(activities.ActionDenied,
			"the machine %s was continued, or started again, by someone else since an earlier attempt of the step; nothing "+
				"more was done to it", r.name)
	}
	if err != nil {
		return err
	}
	return c.checkSameDrives(r, rec)
}

// captureMachine pauses a machine and keeps it, and makes the record of a restore that may be made.
func (c *call) captureMachine(ctx context.Context, r *running, checkpoint string) (rec record, err error) {
	change, err := c.weighResume(ctx, r, checkpoint)
	if err == nil {
		err = errors.Join(c.Approval.Judge(change), c.checkApproved(change.Digest))
	}
	if err == nil {
		err = c.beginWriting(ctx, r)
	}
	if err == nil {
		others := r.others()
		_, err = c.token.Create(othersDoc, &others)
	}
	var goesOn bool
	if err == nil {
		goesOn, err = c.pause(ctx, r, "")
	}
	if err != nil {
		return rec, err
	}
	summary := fmt.Sprintf("the machine %s goes on from %s", r.name, checkpoint)
	if !goesOn {
		summary = fmt.Sprintf("the machine %s was put back to %s, and is paused, as it was before", r.name, checkpoint)
	}
	rec = record{
		Owned: journal.Own(ctx, c.Entry), Path: r.path, Memory: true, Others: r.others(),
		Result: activities.Result{
			Summary: summary, After: change.Digest, Outputs: map[string]any{"changed": 0},
		},
	}
	if err = c.recordMachine(ctx, r, checkpoint, &rec); err != nil {
		r.close() // its monitor serves one at a time
		err = errors.Join(err, c.goOn(ctx, r.path))
	}
	return rec, err
}

// recordMachine keeps a machine that is paused, and makes the record.
func (c *call) recordMachine(ctx context.Context, r *running, checkpoint string, rec *record) error {
	before := beforeOf(c.Entry.Token)
	have, err := r.having(ctx, before)
	if err == nil {
		err = r.dropHalf(ctx, before, have) // of an attempt that has come no further
	}
	if err == nil {
		err = r.save(ctx, before)
	}
	if err != nil {
		return err
	}
	c.reach("captured")
	m, err := readMap(r.image, before)
	if err == nil {
		err = c.token.CheckOpen()
	}
	if err != nil {
		return err
	}
	rec.Before = m.Digest
	was, _, err := r.view(snapshotOf(checkpoint))
	if err != nil {
		return err
	}
	is, _, err := r.view(before)
	if err != nil {
		return err
	}
	d, err := was.Differs(is)
	if err != nil {
		return explain(r.path, err)
	}
	rec.Result.Outputs["changed"] = d.Bytes
	_, err = c.token.Create(journal.Record, rec)
	return err
}

// takeBackMachine puts back the machine as it was before a restore. It goes on once the outcome is
// written: see tidy.
func (c *call) takeBackMachine(ctx context.Context, rec record) (undone activities.Undone, err error) {
	r, err := c.reachMachine(ctx, rec.Path)
	if err != nil {
		return undone, err
	}
	defer r.close()
	if err := c.checkSameDrives(r, rec); err != nil {
		return undone, err
	}
	s, err := c.seeMachine(ctx, r, rec)
	if err != nil {
		return undone, err
	}
	isLosing, err := c.isLosing(ctx, r, c.Decision.Force)
	if err != nil {
		return undone, err
	}
	if s.Drift != nil && s.Drift.Digest != c.Decision.Force && !isLosing {
		return activities.Undone{Outcome: activities.Drifted, Drift: s.Drift, Observed: s.Detail}, nil
	}
	goesOn, err := c.pause(ctx, r, c.Decision.Force)
	if err != nil {
		return undone, err
	}
	undone.Outcome, undone.Observed = activities.Restored, "the machine "+r.name+" goes on from where it was"
	if !goesOn {
		undone.Observed = "the machine " + r.name + " is as it was before the step, and is paused"
	}
	return undone, r.load(ctx, beforeOf(c.Entry.Token))
}

// seeMachine says whether a machine has run since it was put back: then it has done what nobody else
// has kept, and goes on to do so, so that what was shown of it covers that. Of one that is paused, its
// disks tell what has been done.
func (c *call) seeMachine(ctx context.Context, r *running, rec record) (seen activities.Observation, err error) {
	m, err := readMap(r.image, beforeOf(c.Entry.Token))
	if err == nil && m.Digest != rec.Before {
		err = activities.Errorf(activities.DamagedRecord, "the map of snapshot %s of %s is not as it was kept",
			beforeOf(c.Entry.Token), rec.Path)
	}
	if err != nil {
		return seen, err
	}
	runs, err := r.runs(ctx)
	if err != nil {
		return seen, err
	}
	applied, err := c.token.Has(journal.Applied)
	if err != nil {
		return seen, err
	}
	if !runs && !applied {
		seen.State, seen.Detail = activities.Elsewise, "the machine "+r.name+" was put back in part"
		return seen, nil
	}
	if !runs {
		return c.seePaused(ctx, r)
	}
	detail := "the machine " + r.name + " has run since the step"
	return activities.Observation{State: activities.Elsewise, Detail: detail, Drift: &activities.Drift{
		Digest: activities.DigestOf([]byte(rec.Before), []byte("ran")),
		Diff:   "~ " + detail + ": what it has done since goes\n",
	}}, nil
}

// seePaused says what the disks of a machine hold that is paused.
func (c *call) seePaused(ctx context.Context, r *running) (seen activities.Observation, err error) {
	p, err := activities.DecodeParams[allParams](c.Entry.Params)
	if err != nil {
		return seen, err
	}
	left := snapshotOf(p.Checkpoint)
	if is, err := r.hold(ctx, left); err != nil || is {
		return activities.Observation{State: activities.AsLeft}, err
	}
	if is, err := r.hold(ctx, beforeOf(c.Entry.Token)); err != nil || is {
		return activities.Observation{State: activities.AsBefore}, err
	}
	have, err := r.having(ctx, left)
	if err != nil {
		return seen, err
	}
	if len(have) < len(r.drives) { // somebody has dropped the checkpoint
		left = beforeOf(c.Entry.Token)
	}
	var all qcow2.Difference
	var diff strings.Builder
	for _, d := range r.drives {
		one, err := differs(d.path, left)
		if err != nil {
			return seen, err
		}
		all.Bytes, all.Digest = all.Bytes+one.Bytes, all.Digest+one.Digest
		if !one.IsNone() {
			fmt.Fprintf(&diff, "%s:\n%s", d.path, lines(one))
		}
	}
	seen = drifted(r.path, all)
	seen.Detail += "; the machine " + r.name + " is paused"
	seen.Drift.Diff = activities.HeadDiff(diff.String(), activities.MaxDiff)
	return seen, nil
}

// differs says where the disk at a path differs from what a snapshot has.
func differs(path, name string) (d qcow2.Difference, err error) {
	i, err := openImage(path)
	if err != nil {
		return d, err
	}
	defer i.close()
	if _, err := readMap(i, name); err != nil {
		return d, err
	}
	was, _, err := i.view(name)
	if err != nil {
		return d, err
	}
	is, err := i.Now()
	if err == nil {
		d, err = was.Differs(is)
	}
	return d, explain(path, err)
}

// observeMachine is observe for a restore with memory.
func (c *call) observeMachine(ctx context.Context, rec record) (seen activities.Observation, err error) {
	r, err := c.findMachine(ctx, rec.Path)
	if err != nil {
		return seen, err
	}
	if r == nil {
		return activities.Observation{State: activities.Unseen, Detail: "no machine runs with " + rec.Path}, nil
	}
	defer r.close()
	if err := c.checkSameDrives(r, rec); err != nil {
		return seen, err
	}
	return c.seeMachine(ctx, r, rec)
}
