package disk

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/disk/qcow2"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

func (c *call) planRestore(ctx context.Context) (change activities.Change, err error) {
	p, path, err := c.located()
	if err != nil {
		return change, err
	}
	if p.Memory {
		return c.planResume(ctx, p, path)
	}
	i, err := c.holdDisk(ctx, path)
	if err != nil {
		return change, err
	}
	defer i.close()
	change, _, err = c.weigh(i, p.Checkpoint)
	return change, err
}

// located is the parameters of a step, and the path of its disk.
func (c *call) located() (p allParams, path string, err error) {
	if p, err = decode(c.Entry.Action, c.Step); err == nil {
		path, err = c.locateThere(p.Disk)
	}
	return p, path, err
}

// weigh says what putting back a checkpoint would do to a disk that is held.
func (c *call) weigh(i *image, checkpoint string) (change activities.Change, d qcow2.Difference, err error) {
	if err := c.checkFit(i, false); err != nil {
		return change, d, err
	}
	wanted, _, err := c.openKept(i, checkpoint)
	if err != nil {
		return change, d, err
	}
	now, err := i.Now()
	if err == nil {
		d, err = wanted.Differs(now)
	}
	if err != nil {
		return change, d, explain(i.path, err)
	}
	change = activities.Change{
		Summary: fmt.Sprintf("put %s back to %s, from which it differs in %s", i.path, checkpoint,
			activities.CountOf(d.Bytes, "byte")),
		Diff:     activities.HeadDiff(lines(d), activities.MaxDiff),
		Strategy: activities.Snapshot, Risk: activities.High, Unchanged: d.IsNone(),
		Undo:   "what it holds now is kept, and put back, unless somebody has written to it since",
		Keys:   []string{keyPrefix + i.path},
		Digest: activities.DigestOf([]byte(restoreName), []byte(i.path), []byte(checkpoint), []byte(d.Digest)),
		Facts:  []string{"everything that has been written to the disk since the checkpoint goes, whoever has written it"},
	}
	if change.Unchanged {
		change.Summary = fmt.Sprintf("leave %s: it holds what %s has", i.path, checkpoint)
	}
	return change, d, nil
}

// lines say where a disk differs.
func lines(d qcow2.Difference) string {
	var b strings.Builder
	if d.Was != d.Is {
		fmt.Fprintf(&b, "~ size: %s (was %d)\n", activities.CountOf(d.Is, "byte"), d.Was)
	}
	for _, s := range d.Spans {
		fmt.Fprintf(&b, "~ %s\n", s)
	}
	return b.String()
}

// restore makes the disk hold what a checkpoint has.
func (c *call) restore(ctx context.Context) (none activities.Result, err error) {
	p, path, err := c.located()
	if err != nil {
		return none, err
	}
	if p.Memory {
		return c.resume(ctx, p, path)
	}
	var rec record
	found, err := c.token.Read(journal.Record, &rec)
	if err != nil {
		return none, err
	}
	if done, err := c.token.Has(journal.Applied); err != nil || found && done {
		return rec.Result, err
	}
	if found {
		path = rec.Path
	}
	i, err := c.holdDisk(ctx, path)
	if err != nil {
		return none, err
	}
	defer i.close()
	if !found {
		if err = c.token.CheckNotLost(false); err == nil {
			rec, err = c.capture(ctx, i, p.Checkpoint)
		}
	} else {
		err = c.beginWriting(ctx, i)
	}
	if err != nil {
		return none, err
	}
	c.reach("recorded")
	if err := c.putBack(ctx, i, snapshotOf(p.Checkpoint)); err != nil {
		return none, err
	}
	c.reach("put-back")
	if _, there := i.Find(leftOf(c.Entry.Token)); !there {
		if err := i.keep(ctx, leftOf(c.Entry.Token)); err != nil {
			return none, err
		}
	}
	c.reach("left")
	if _, err := c.token.Create(journal.Applied, &struct{}{}); err != nil {
		return none, err
	}
	c.reach("applied")
	return rec.Result, c.endWriting()
}

// capture takes a snapshot of what the disk holds, and makes the record of a restore that may be
// made.
func (c *call) capture(ctx context.Context, i *image, checkpoint string) (rec record, err error) {
	change, d, err := c.weigh(i, checkpoint)
	if err == nil {
		err = errors.Join(c.Approval.Judge(change), c.checkApproved(change.Digest))
	}
	if err == nil {
		err = c.beginWriting(ctx, i)
	}
	if err != nil {
		return rec, err
	}
	before := beforeOf(c.Entry.Token)
	if _, there := i.Find(before); there { // of an attempt that has come no further
		if err := i.drop(ctx, before); err != nil {
			return rec, err
		}
	}
	if err := i.keep(ctx, before); err != nil {
		return rec, err
	}
	c.reach("captured")
	m, err := readMap(i, before)
	if err == nil {
		err = c.token.CheckOpen()
	}
	if err != nil {
		return rec, err
	}
	rec = record{
		Owned: journal.Own(ctx, c.Entry), Path: i.path, Before: m.Digest,
		Result: activities.Result{
			Summary: fmt.Sprintf("%s holds what %s has; before, it differed in %s", i.path, checkpoint,
				activities.CountOf(d.Bytes, "byte")),
			Outputs: map[string]any{"changed": d.Bytes}, After: change.Digest,
		},
	}
	_, err = c.token.Create(journal.Record, &rec)
	return rec, err
}

// putBack makes the disk hold what a snapshot has, if it holds what the record says, or what an
// attempt that was cut short has left.
func (c *call) putBack(ctx context.Context, i *image, name string) error {
	before, wanted, now, err := views(i, beforeOf(c.Entry.Token), name)
	if err != nil {
		return err
	}
	if now.Equal(wanted) {
		return nil
	}
	if !now.Equal(before) && !now.IsMixOf(before, wanted) {
		return activities.Errorf(activities.ActionDenied,
			"%s was written to by someone else since an earlier attempt of the step; nothing more was done to it", i.path)
	}
	if err := c.token.CheckOpen(); err != nil {
		return err
	}
	return replace(ctx, i, name)
}

// replace makes the disk hold what a snapshot has, and looks whether it does.
func replace(ctx context.Context, i *image, name string) error {
	if err := i.putBack(ctx, name); err != nil {
		return err
	}
	wanted, _, err := i.view(name)
	if err != nil {
		return err
	}
	now, err := i.Now()
	if err == nil && !now.Equal(wanted) {
		err = activities.Errorf(activities.ActionFailed,
			"%s does not hold what its snapshot %s has, though %s has put it back", i.path, name, program)
	}
	return err
}

// views reads what two snapshots have, which must be there, and what the disk holds now.
func views(i *image, one, other string) (a, b, now qcow2.View, err error) {
	for name, v := range map[string]*qcow2.View{one: &a, other: &b} {
		if _, err := readMap(i, name); err != nil {
			return a, b, now, err
		}
		if *v, _, err = i.view(name); err != nil {
			return a, b, now, err
		}
	}
	now, err = i.Now()
	return a, b, now, explain(i.path, err)
}
