package helper

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// A container's spare is room that is held beside its layers: files, with nothing in them. What makes room needs some first
// (a rollback a new layer, with a door, and pages of the book), and where the disk is full it takes that of the spare.
const (
	spareName  = "spare"
	spareFiles = 16       // inodes: a new layer takes six
	spareBytes = 64 << 10 // of each: together a book of some thousand checkpoints, and the layer
)

// keepSpare holds the spare, or as much of it as there is room for.
func (o *open) keepSpare() error {
	dir := filepath.Join(o.dir, spareName)
	if held, err := os.ReadDir(dir); err == nil && len(held) == spareFiles {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for i := range spareFiles {
		if err := reserve(filepath.Join(dir, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return nil
}

// reserve makes a file that has room and no content.
func reserve(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, spareBytes)
	if errors.Is(err, unix.EOPNOTSUPP) { // its inode is held
		err = nil
	}
	return errors.Join(err, f.Close())
}

// giveSpare gives the spare up for a change. Whoever writes in what the change takes away is ended first: he would take it.
func (o *open) giveSpare(ctx context.Context, c change) error {
	if c.Ends && o.shown != nil {
		if err := o.target.End(ctx, *o.shown, false); err != nil {
			return err
		}
	}
	return o.yield()
}

// write puts the book on the disk, on the room of the spare where there is no other.
func (o *open) write(dir string, told bool) error {
	if o.cramped {
		if err := o.yield(); err != nil {
			return err
		}
	}
	if err := o.book.write(dir, told); err != nil {
		return err
	}
	o.memory.remember(o.book)
	return nil
}

// yield returns when the disk has the room of the spare.
func (o *open) yield() error {
	spare := filepath.Join(o.dir, spareName)
	if _, err := os.Lstat(spare); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.RemoveAll(spare); err != nil {
		return err
	}
	dir, err := os.Open(o.dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
}
