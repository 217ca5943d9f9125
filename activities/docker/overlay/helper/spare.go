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

// A container's spare is space reserved beside its layers, as empty files. Freeing space needs some
// first (a rollback takes a layer, a door and pages of the book); on a full disk it uses the spare.
const (
	spareName  = "spare"
	spareFiles = 16       // inodes: a new layer takes six
	spareBytes = 64 << 10 // of each: together a book of some thousand checkpoints, and the layer
)

// keepSpare reserves the spare, or as much of it as fits.
func (o *lockedBook) keepSpare() error {
	dir := filepath.Join(o.dir, spareName)
	if held, err := os.ReadDir(dir); err == nil && len(held) == spareFiles {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for i := range spareFiles {
		if err := reserveFile(filepath.Join(dir, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return nil
}

// reserveFile makes an empty file with blocks allocated.
func reserveFile(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, spareBytes)
	if errors.Is(err, unix.EOPNOTSUPP) { // its inode is reserved
		err = nil
	}
	return errors.Join(err, f.Close())
}

// giveSpare frees the spare for a change. Processes in what the change removes are ended first,
// since they would use it up.
func (o *lockedBook) giveSpare(ctx context.Context, c topChange) error {
	if c.Ends && o.shown != nil {
		if err := o.target.EndUsers(ctx, *o.shown); err != nil {
			return err
		}
	}
	return o.freeSpare()
}

// writeBook puts the book on the disk, using the spare if there is no other space.
func (o *lockedBook) writeBook() error { return o.writeBookTelling(false) }

func (o *lockedBook) writeBookTelling(told bool) error {
	if o.cramped {
		if err := o.freeSpare(); err != nil {
			return err
		}
	}
	if err := o.write(o.dir, told); err != nil {
		return err
	}
	o.memory.remember(o.book)
	return nil
}

// freeSpare returns when the space of the spare is free.
func (o *lockedBook) freeSpare() error {
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
