package disk

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/disk/qcow2"
	"github.com/seed-62bf7108/unwind/activities/isolated"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

const nothingDone = "the step had changed nothing, and no longer can"

// undo ends the forwards of the token and takes back what one of them has done.
func (c *call) undo(ctx context.Context) (undone activities.Undone, err error) {
	began := time.Now()
	undone, isOver, err := c.token.BeginUndo()
	if err != nil {
		return undone, err
	}
	if !isOver {
		c.reach("undo-begun")
	}
	unlock, err := c.LockToken(ctx, c.token)
	if err != nil {
		return undone, err
	}
	defer unlock()
	isolated.KillStarted(c.Entry.Token)
	if err := c.thawForgotten(); err != nil {
		return undone, err
	}
	if isOver {
		return undone, c.tidy(ctx)
	}
	c.reach("undo-fenced")
	if found, err := c.token.Read(journal.Outcome, &undone); found || err != nil {
		return undone, errors.Join(err, c.tidy(ctx))
	}
	if undone, err = c.settle(ctx); err != nil || undone.Outcome == activities.Drifted {
		return undone, err
	}
	c.reach("undo-settled")
	undone.Took = time.Since(began).Round(time.Millisecond)
	if _, err := c.token.Create(journal.Outcome, &undone); err != nil {
		return undone, err
	}
	c.reach("undone")
	return undone, c.tidy(ctx)
}

// tidy drops what a restore has kept.
func (c *call) tidy(ctx context.Context) error {
	if c.Entry.Action != restoreName {
		return nil
	}
	rec, path, err := c.recorded()
	if err != nil || path == "" {
		return err
	}
	if err := c.goOn(ctx, path); err != nil {
		return err
	}
	return c.dropSnapshots(ctx, rec.paths(path), beforeOf(c.Entry.Token), leftOf(c.Entry.Token))
}

// recorded is the record of the step, and the path of its disk; where there is no record, the path
// that the entry leads to, and none where it leads nowhere.
func (c *call) recorded() (rec record, path string, err error) {
	found, err := c.token.Read(journal.Record, &rec)
	if err != nil || found {
		return rec, rec.Path, err
	}
	if _, err := c.token.Read(othersDoc, &rec.Others); err != nil {
		return rec, "", err
	}
	p, err := activities.DecodeParams[allParams](c.Entry.Params)
	if err != nil {
		return rec, "", err
	}
	path, err = c.locate(p.Disk)
	if e, is := errors.AsType[*activities.Error](err); is && e.Current != "" {
		return rec, "", nil
	}
	return rec, path, err
}

// settle takes the change back, or reports why there is nothing to take back or what prevents it.
func (c *call) settle(ctx context.Context) (undone activities.Undone, err error) {
	rec, _, err := c.recorded()
	if err != nil {
		return undone, err
	}
	if rec.Path == "" {
		reads := c.Entry.Action == verifyName || c.Entry.Action == compareName
		return activities.Undone{Outcome: activities.Nothing, Observed: nothingDone},
			c.token.CheckNotLost(c.Decision.Done && !reads)
	}
	if c.Entry.Action == keepName {
		return c.letGo(ctx, rec)
	}
	if rec.Memory {
		return c.takeBackMachine(ctx, rec)
	}
	return c.takeBack(ctx, rec)
}

// takeBack makes the disk hold what it held before a restore.
func (c *call) takeBack(ctx context.Context, rec record) (undone activities.Undone, err error) {
	undone = activities.Undone{Outcome: activities.Restored, Observed: rec.Path + " holds what it held before"}
	i, err := c.holdDisk(ctx, rec.Path)
	if errors.Is(err, fs.ErrNotExist) {
		drift := activities.Drift{Digest: activities.DigestOf([]byte(rec.Path)), Diff: "- " + rec.Path + " is gone"}
		if c.Decision.Force != drift.Digest {
			return activities.Undone{Outcome: activities.Drifted, Drift: &drift, Observed: rec.Path + " is gone"}, nil
		}
		return activities.Undone{Outcome: activities.Residue, Observed: "there is no disk any more",
			Losses: []string{rec.Path + " is gone"}}, nil
	}
	if err != nil {
		return undone, err
	}
	defer i.close()
	if err := c.beginWriting(ctx, i); err != nil {
		return undone, err
	}
	s, err := c.see(i, rec)
	if err != nil {
		return undone, err
	}
	switch {
	case s.State == activities.AsBefore:
	case s.Drift != nil && s.Drift.Digest != c.Decision.Force:
		undone = activities.Undone{Outcome: activities.Drifted, Drift: s.Drift, Observed: s.Detail}
	default:
		if err := replace(ctx, i, beforeOf(c.Entry.Token)); err != nil {
			return undone, err
		}
	}
	return undone, c.endWriting()
}

// see compares what a disk holds with what it held before, and with the checkpoint.
func (c *call) see(i *image, rec record) (seen activities.Observation, err error) {
	m, err := readMap(i, beforeOf(c.Entry.Token))
	if err == nil && m.Digest != rec.Before {
		err = activities.Errorf(activities.DamagedRecord, "the map of snapshot %s of %s is not as it was kept",
			beforeOf(c.Entry.Token), i.path)
	}
	if err != nil {
		return seen, err
	}
	before, _, err := i.view(beforeOf(c.Entry.Token))
	if err != nil {
		return seen, err
	}
	now, err := i.Now()
	if err != nil {
		return seen, explain(i.path, err)
	}
	if now.Equal(before) {
		return activities.Observation{State: activities.AsBefore}, nil
	}
	left, found, err := c.left(i)
	if err != nil {
		return seen, err
	}
	if found && now.Equal(left) {
		return activities.Observation{State: activities.AsLeft}, nil
	}
	if found && now.IsMixOf(before, left) {
		return activities.Observation{State: activities.Elsewise, Detail: i.path + " was put back in part"}, nil
	}
	if !found {
		left = before
	}
	d, err := left.Differs(now)
	if err != nil {
		return seen, explain(i.path, err)
	}
	return drifted(i.path, d), nil
}

// left is what a restore has left: what its own snapshot has, or where it has come no further than
// putting it back, that of the checkpoint.
func (c *call) left(i *image) (v qcow2.View, found bool, err error) {
	v, found, err = i.view(leftOf(c.Entry.Token))
	if found || err != nil {
		return v, found, err
	}
	p, err := activities.DecodeParams[allParams](c.Entry.Params)
	if err != nil {
		return v, false, err
	}
	return i.view(snapshotOf(p.Checkpoint))
}

func drifted(path string, d qcow2.Difference) activities.Observation {
	return activities.Observation{
		State: activities.Elsewise, Detail: path + " was written to since the step: " + activities.CountOf(d.Bytes, "byte"),
		Drift: &activities.Drift{
			Digest: activities.DigestOf([]byte(d.Digest)), Diff: activities.HeadDiff(lines(d), activities.MaxDiff),
		},
	}
}

// observe compares the disk with what the step left and with what was there before.
func (c *call) observe(ctx context.Context) (seen activities.Observation, err error) {
	rec, _, err := c.recorded()
	switch {
	case err != nil:
		return seen, err
	case rec.Path == "":
		return activities.Observation{State: activities.Unseen, Detail: "the journal has no record of a change"}, nil
	case c.Entry.Action == keepName:
		return c.observeKept(rec)
	}
	if done, err := c.token.Has(journal.Outcome); err != nil || done {
		return activities.Observation{State: activities.AsBefore, Detail: "the step was undone"}, err
	}
	if rec.Memory {
		return c.observeMachine(ctx, rec)
	}
	i, err := holdImage(rec.Path)
	switch {
	case errors.Is(err, errInUse):
		return activities.Observation{State: activities.Unseen,
			Detail: rec.Path + " cannot be looked at: " + err.Error()}, nil
	case errors.Is(err, fs.ErrNotExist):
		return activities.Observation{State: activities.Elsewise, Detail: rec.Path + " is gone"}, nil
	case err != nil:
		return seen, err
	}
	defer i.close()
	return c.see(i, rec)
}

// release drops the snapshot of the token.
func (c *call) release(ctx context.Context) error {
	if _, err := c.token.DecideReleasing(); err != nil {
		return err
	}
	unlock, err := c.LockToken(ctx, c.token)
	if err != nil {
		return err
	}
	defer unlock()
	isolated.KillStarted(c.Entry.Token)
	rec, path, err := c.recorded()
	if err != nil && activities.TypeOf(err) != activities.DamagedRecord {
		return err
	}
	if path != "" {
		token := c.Entry.Token
		err := c.dropSnapshots(ctx, rec.paths(path), snapshotOf(nameOf(token)), beforeOf(token), leftOf(token))
		if err != nil {
			return err
		}
	}
	for _, name := range []string{journal.Record, journal.Applied, writingDoc, frozenDoc, thawedDoc, pausedDoc,
		othersDoc} {
		if err := c.token.Drop(name); err != nil {
			return err
		}
	}
	return c.token.MarkReleased()
}
