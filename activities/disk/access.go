package disk

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/disk/qcow2"
	"github.com/seed-62bf7108/unwind/activities/isolated"
)

// access is how snapshots of a disk are taken and dropped: by qemu-img, in an image that is held, or
// by the machine that has it open.
type access interface {
	keep(ctx context.Context, name string) error
	drop(ctx context.Context, name string) error
	freeLeaks(ctx context.Context) error
	view(name string) (v qcow2.View, found bool, err error)
	// opened is the image, and runs says whether a machine has it open.
	opened() (i *image, runs bool)
	close()
}

func (i *image) opened() (*image, bool) { return i, false }

// reachDisk finds the way to the snapshots of a disk.
func (c *call) reachDisk(ctx context.Context, path string) (access, error) {
	var by *running
	i, err := awaitImage(ctx, path, func(ctx context.Context) (found bool, err error) {
		by, err = c.findMachine(ctx, path)
		return by != nil, err
	})
	if by != nil {
		return by, nil
	}
	if err != nil {
		return nil, c.explainUse(path, err)
	}
	return i, nil
}

// holdDisk opens a disk that no machine may have open.
func (c *call) holdDisk(ctx context.Context, path string) (*image, error) {
	i, err := awaitImage(ctx, path, func(ctx context.Context) (bool, error) {
		by, err := c.findMachine(ctx, path)
		if by != nil {
			by.close()
			err = activities.Errorf(activities.Refused, "disk: %s is in use by the machine %s; stop it first", path, by.name)
		}
		return by != nil, err
	})
	return i, c.explainUse(path, err)
}

// explainUse says what can be done about a disk in use. An undo is tried again.
func (c *call) explainUse(path string, err error) error {
	if !errors.Is(err, errInUse) {
		return err
	}
	e, is := errors.AsType[*activities.Error](err)
	if !is {
		e = activities.Errorf(activities.Refused, "disk: %s is in use: %v; stop it, or name the machine's QMP socket in "+
			"disk.machines of the worker's config, for checkpoints while it runs", path, err)
	}
	if c.Op == isolated.Undo || c.Op == isolated.Release {
		e.Type = activities.ActionFailed
	}
	return e
}

// writingDoc is the document of a token whose calls write to an image. What is cut short leaves
// references counted that nobody has.
const writingDoc = "writing"

// beginWriting announces that the image is written to. What an earlier call has announced, and not
// ended, was cut short.
func (c *call) beginWriting(ctx context.Context, to access) error {
	first, err := c.token.Create(writingDoc, &struct{}{})
	if err != nil || first {
		return err
	}
	return to.freeLeaks(ctx)
}

func (c *call) endWriting() error { return c.token.Drop(writingDoc) }

// dropSnapshots drops snapshots of disks, as far as they are there, and mends what was cut short. A
// disk that is gone has none.
func (c *call) dropSnapshots(ctx context.Context, paths []string, names ...string) error {
	cut, err := c.token.Has(writingDoc)
	if err != nil {
		return err
	}
	for _, path := range paths {
		isImage, there, err := haveSnapshots(path, names)
		if err == nil && isImage && (there || cut) {
			err = c.dropFrom(ctx, path, names)
		}
		if err != nil {
			return err
		}
	}
	return c.endWriting()
}

func (c *call) dropFrom(ctx context.Context, path string, names []string) error {
	to, err := c.reachDisk(ctx, path)
	if err != nil {
		return err
	}
	defer to.close()
	if err := c.beginWriting(ctx, to); err != nil {
		return err
	}
	for _, name := range names {
		_, there, err := to.view(name)
		if err == nil && there {
			err = to.drop(ctx, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// haveSnapshots says whether there is an image at a path, and whether it has one of several snapshots.
func haveSnapshots(path string, names []string) (isImage, have bool, err error) {
	i, err := readImage(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, qcow2.ErrFormat) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	return true, slices.ContainsFunc(names, func(name string) bool { _, found := i.Find(name); return found }), nil
}
