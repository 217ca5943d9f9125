package disk

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/disk/qcow2"
)

// disk.verify and disk.compare change nothing.

func (c *call) planLook() (change activities.Change, err error) {
	p, path, err := c.located()
	if err != nil {
		return change, err
	}
	summary := "verify checkpoint " + p.Checkpoint + " of " + path
	if c.Entry.Action == compareName {
		summary = "compare " + path + " as " + p.Checkpoint + " has it with " + p.other()
	}
	return activities.Change{
		Summary: summary, Strategy: activities.NoUndo, Undo: "it changes nothing", Risk: activities.Low, Unchanged: true,
		Keys: []string{keyPrefix + path}, Digest: c.digestLook(path),
	}, nil
}

func (c *call) digestLook(path string) activities.Digest {
	return activities.DigestOf(c.Step.With, []byte(path))
}

// beginLook opens the image of a look that is the one that was approved.
func (c *call) beginLook() (p allParams, i *image, err error) {
	p, path, err := c.located()
	if err == nil {
		err = c.checkApproved(c.digestLook(path))
	}
	if err == nil {
		i, err = openImage(path)
	}
	return p, i, err
}

// verify compares the map of a checkpoint with its digest, and has QEMU check the whole image where
// no machine has it open. It does not read what the clusters have: a qcow2 image has no sums to
// compare that with, and most of it is the live disk's as well.
func (c *call) verify(ctx context.Context) (r activities.Result, err error) {
	p, i, err := c.beginLook()
	if err != nil {
		return r, err
	}
	defer i.close()
	_, m, err := c.openKept(i, p.Checkpoint)
	if err != nil {
		return r, err
	}
	if p.Memory {
		by, err := c.reachMachine(ctx, i.path)
		if err != nil {
			return r, err
		}
		defer by.close()
		if _, err := c.checkResumable(ctx, by, p.Checkpoint); err != nil {
			return r, err
		}
	}
	if err := c.checkFit(i, true); err != nil {
		return r, err
	}
	c.reach("opened")
	held, err := holdImage(i.path)
	switch {
	case err == nil:
		defer held.close()
		if err := held.check(ctx); err != nil {
			return r, err
		}
	case errors.Is(err, errInUse):
		r.Notes = []string{i.path + " is in use: the rest of the image was not checked"}
	default:
		return r, err
	}
	r.Summary = fmt.Sprintf("checkpoint %s of %s can be put back: %s", p.Checkpoint, i.path,
		activities.CountOf(m.Bytes, "byte"))
	r.Outputs = map[string]any{"bytes": m.Bytes}
	return r, nil
}

// compare says where the disk differs.
func (c *call) compare(ctx context.Context) (r activities.Result, err error) {
	p, i, err := c.beginLook()
	if err != nil {
		return r, err
	}
	defer i.close()
	was, _, err := c.openKept(i, p.Checkpoint)
	if err != nil {
		return r, err
	}
	c.reach("opened")
	var d qcow2.Difference
	if p.With != "" {
		is, _, err := c.openKept(i, p.With)
		if err != nil {
			return r, err
		}
		if d, err = was.Differs(is); err != nil {
			return r, explain(i.path, err)
		}
	} else if d, err = c.compareNow(ctx, i, p.Checkpoint); err != nil {
		return r, err
	}
	return activities.Result{
		Summary: fmt.Sprintf("%s: %s different between %s and %s", i.path, activities.CountOf(d.Bytes, "byte"), p.Checkpoint,
			p.other()),
		Outputs: map[string]any{"changed": d.Bytes, "diff": activities.HeadDiff(lines(d), activities.MaxOutputs/2)},
	}, nil
}

// compareNow compares a checkpoint with what the disk holds now. A running machine writes what it
// has not written yet first, and may go on to write: the maps are read until they have not moved
// meanwhile.
func (c *call) compareNow(ctx context.Context, i *image, checkpoint string) (d qcow2.Difference, err error) {
	to, err := c.reachDisk(ctx, i.path)
	if err != nil {
		return d, err
	}
	defer to.close()
	by, runs := to.(*running)
	const tries = 5
	for range tries {
		if runs {
			if err := by.flush(ctx); err != nil {
				return d, err
			}
		}
		opened, _ := to.opened()
		was, _, err := opened.view(snapshotOf(checkpoint))
		if err != nil {
			return d, err
		}
		first, err := opened.Now()
		if err == nil {
			d, err = was.Differs(first)
		}
		if err != nil && !runs {
			return d, explain(i.path, err)
		}
		last, again := opened.Now()
		if err == nil && again == nil && first.Equal(last) {
			return d, nil
		}
	}
	return d, activities.Errorf(activities.ActionFailed,
		"the machine writes to %s all the time; take a checkpoint of it, and compare with that", i.path)
}
