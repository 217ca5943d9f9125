package disk

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/disk/qcow2"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// disk.checkpoint takes an internal snapshot, which goes with its undo, unless somebody else has
// come to need it, and with its release.

// record says which disk a step is about. A step of disk.restore has one once the snapshot of what
// was there before is taken.
type record struct {
	journal.Owned

	// Path is the disk without symlinks.
	Path string `json:"path"`
	// Memory says that it is about a machine: its memory, the disk, and Others, which it writes too.
	Memory bool     `json:"memory,omitempty"`
	Others []string `json:"others,omitempty"`
	// Before is the map that a restore has kept.
	Before string            `json:"before,omitempty"`
	Result activities.Result `json:"result,omitzero"`
}

// paths are the disks that a step is about; where there is no record, that is one.
func (r record) paths(path string) []string { return append([]string{path}, r.Others...) }

// kept is the content of journal.Applied of a checkpoint.
type kept struct {
	// Map is the digest of the snapshot's map.
	Map string `json:"map"`
	// Backing is the image below the disk.
	Backing string `json:"backing,omitempty"`
	// Others are the disks that the machine wrote too, whose memory was kept.
	Others []string          `json:"others,omitempty"`
	Result activities.Result `json:"result"`
}

func (c *call) planKeep(ctx context.Context) (change activities.Change, err error) {
	p, err := decode(keepName, c.Step)
	if err != nil {
		return change, err
	}
	path, err := c.locateThere(p.Disk)
	if err != nil {
		return change, err
	}
	to, err := c.reachToKeep(ctx, path, p.Memory)
	if err != nil {
		return change, err
	}
	defer to.close()
	i, runs := to.opened()
	if p.Memory {
		return c.describeKeepMachine(ctx, to.(*running)) //nolint:forcetypeassert // as reachToKeep says
	}
	return describeKeep(path), c.checkFit(i, runs)
}

// reachToKeep is reachDisk, or reachMachine where its memory is to be kept.
func (c *call) reachToKeep(ctx context.Context, path string, memory bool) (access, error) {
	if memory {
		return c.reachMachine(ctx, path)
	}
	return c.reachDisk(ctx, path)
}

func describeKeep(path string) activities.Change {
	return activities.Change{
		Summary: "keep what " + path + " holds", Strategy: activities.Snapshot, Risk: activities.Low,
		Undo: "the checkpoint is dropped", Keys: []string{keyPrefix + path},
		Digest: activities.DigestOf([]byte(keepName), []byte(path)),
	}
}

// keep takes the checkpoint, unless an earlier attempt has.
func (c *call) keep(ctx context.Context) (result activities.Result, err error) {
	p, err := decode(keepName, c.Step)
	if err != nil {
		return result, err
	}
	rec := record{Owned: journal.Own(ctx, c.Entry)}
	found, err := c.token.Read(journal.Record, &rec)
	if err == nil && !found {
		if err = c.token.CheckNotLost(false); err == nil {
			rec.Path, err = c.locateThere(p.Disk)
		}
	}
	if err != nil {
		return result, err
	}
	var done kept
	if was, err := c.token.Read(journal.Applied, &done); err != nil || was {
		return done.Result, err
	}
	to, err := c.reachToKeep(ctx, rec.Path, p.Memory)
	if err != nil {
		return result, err
	}
	defer to.close()
	if !found {
		err = c.beginKeeping(ctx, to, &rec)
	} else if by, is := to.(*running); is && rec.Memory {
		err = c.checkSameDrives(by, rec)
	}
	if err != nil {
		return result, err
	}
	c.reach("recorded")
	if done, err = c.take(ctx, to, rec); err != nil {
		return result, err
	}
	c.reach("kept")
	if err := c.token.CheckOpen(); err != nil {
		return result, err
	}
	if _, err := c.token.Create(journal.Applied, &done); err != nil {
		return result, err
	}
	c.reach("applied")
	return done.Result, c.endWriting()
}

// beginKeeping makes the record of a checkpoint that may be taken. Before its first one an image is
// checked as a whole: later, that would take longer with each.
func (c *call) beginKeeping(ctx context.Context, to access, rec *record) error {
	i, runs := to.opened()
	change := describeKeep(rec.Path)
	if by, is := to.(*running); is && by.memory {
		var err error
		if change, err = c.describeKeepMachine(ctx, by); err != nil {
			return err
		}
		rec.Memory, rec.Others = true, by.others()
	}
	if err := c.checkFit(i, runs); err != nil {
		return err
	}
	if !runs && !i.hasOurs() {
		if err := i.check(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(c.Approval.Judge(change), c.checkApproved(change.Digest)); err != nil {
		return err
	}
	_, err := c.token.Create(journal.Record, rec)
	return err
}

// take takes the snapshot, unless it is there.
func (c *call) take(ctx context.Context, to access, rec record) (done kept, err error) {
	name := nameOf(c.Entry.Token)
	i, runs := to.opened()
	if err := c.beginWriting(ctx, to); err != nil {
		return done, err
	}
	_, there, err := to.view(snapshotOf(name))
	if err == nil && (!there || rec.Memory) {
		err = to.keep(ctx, snapshotOf(name))
	}
	if err != nil {
		return done, err
	}
	m, err := readMap(i, snapshotOf(name))
	if err != nil {
		return done, err
	}
	frozen, notes := false, []string(nil)
	if by, is := to.(*running); is {
		frozen, notes = by.frozen, by.notes
	}
	s, _ := i.Find(snapshotOf(name))
	summary := fmt.Sprintf("kept what %s holds: %s", rec.Path, activities.CountOf(m.Bytes, "byte"))
	if rec.Memory {
		summary += fmt.Sprintf(", and %s of its machine's memory", activities.CountOf(s.Memory, "byte"))
	}
	return kept{Map: m.Digest, Backing: i.Backing, Others: rec.Others, Result: activities.Result{
		Summary: summary,
		Outputs: map[string]any{"checkpoint": name, "bytes": m.Bytes + s.Memory, "memory": s.Memory, "running": runs,
			"frozen": frozen},
		After: activities.Digest("sha256:" + m.Digest), Notes: notes,
	}}, nil
}

// readMap reads the map of a snapshot that must be there.
func readMap(i *image, name string) (m qcow2.Map, err error) {
	v, found, err := i.view(name)
	if err != nil {
		return m, err
	}
	if !found {
		return m, noSnapshot(i.path, name)
	}
	m, err = v.ReadMap()
	if damaged, is := errors.AsType[*qcow2.DamageError](err); is {
		return m, activities.Errorf(activities.DamagedRecord, "snapshot %s of %s: %v", name, i.path, damaged)
	}
	return m, err
}

func noSnapshot(path, name string) error {
	return activities.Errorf(activities.DamagedRecord,
		"%s has no snapshot %s any more: somebody has deleted it, or has put another file there", path, name)
}

// findKept finds the checkpoint with a name of the disk at a path.
func (c *call) findKept(name, path string) (k kept, err error) {
	token, err := tokenOf(name)
	if err != nil {
		return k, err
	}
	t, err := c.journal.Token(token)
	if err != nil {
		return k, err
	}
	var rec record
	found, err := t.Read(journal.Record, &rec)
	if err == nil && found {
		if found, err = t.Read(journal.Applied, &k); err == nil && found {
			fate, ferr := t.Fate()
			found, err = fate == journal.Undecided, ferr
		}
	}
	switch {
	case err != nil:
		return k, err
	case !found || rec.Entry.Action != keepName:
		return k, activities.Errorf(activities.Refused,
			"checkpoint: there is no %s on this worker: it was never made here, was undone, or its record was released", name)
	case rec.Path != path:
		return k, activities.Errorf(activities.Refused, "checkpoint: %s is of %s, and the disk is %s", name, rec.Path, path)
	}
	return k, nil
}

// openKept finds what an image has of a checkpoint, whose map is as it was kept.
func (c *call) openKept(i *image, name string) (v qcow2.View, m qcow2.Map, err error) {
	k, err := c.findKept(name, i.path)
	if err != nil {
		return v, m, err
	}
	if m, err = readMap(i, snapshotOf(name)); err != nil {
		return v, m, err
	}
	if m.Digest != k.Map {
		return v, m, activities.Errorf(activities.DamagedRecord,
			"the map of snapshot %s of %s is not as it was kept: somebody has changed it, or the file is damaged",
			snapshotOf(name), i.path)
	}
	if i.Backing != k.Backing {
		return v, m, activities.Errorf(activities.Refused,
			"checkpoint: %s is of %s as it lay over %q, and it lies over %q now; put it back over that (%s rebase -u)", name,
			i.path, k.Backing, i.Backing, program)
	}
	v, _, err = i.view(snapshotOf(name))
	return v, m, err
}

// letGo drops the checkpoint, unless it is that of somebody else by now.
func (c *call) letGo(ctx context.Context, rec record) (activities.Undone, error) {
	name := nameOf(c.Entry.Token)
	keeper, isKept, err := c.token.Keeper()
	if err != nil {
		return activities.Undone{}, err
	}
	if isKept {
		return activities.Undone{Outcome: activities.Nothing,
			Observed: fmt.Sprintf("checkpoint %s is that of %s by now, and stays", name, keeper.Workflow)}, nil
	}
	return activities.Undone{Outcome: activities.Restored, Observed: "checkpoint " + name + " is dropped"},
		c.dropSnapshots(ctx, rec.paths(rec.Path), snapshotOf(name))
}

// observeKept reports whether the checkpoint is there.
func (c *call) observeKept(rec record) (seen activities.Observation, err error) {
	name := nameOf(c.Entry.Token)
	_, there, err := haveSnapshots(rec.Path, []string{snapshotOf(name)})
	if err != nil || !there {
		return activities.Observation{State: activities.AsBefore, Detail: "there is no checkpoint " + name}, err
	}
	return activities.Observation{State: activities.AsLeft}, nil
}
