package file

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// A ticket is a path in the store with the other half of a change: the new content before the step,
// the original after it. A change and its undo are the same call: it exchanges what is at the
// ticket and at the target.
//
// The kernel resolves the ticket's path when the call runs. So moving the folder of the tickets
// away makes every late call fail, even in a process that was stopped just before it. A tombstone,
// a plain file at the folder's path, keeps the folder from being made again.

func stagePath(token string, more ...string) string {
	return filepath.Join(append([]string{stageDir, token}, more...)...)
}

func undoPath(token string, more ...string) string {
	return filepath.Join(append([]string{undoDir, token}, more...)...)
}

func redoPath(token string, more ...string) string {
	return filepath.Join(append([]string{redoDir, token}, more...)...)
}

// ticket is where the n-th change of a forward's attempt has its other half.
func (o op) ticket(n int) string { return filepath.Join(strconv.Itoa(n), filepath.Base(o.Target)) }

// errLost means that the ticket or its target had gone, or the target was taken: look again.
var errLost = errors.New("the ticket or its target has changed")

func isLost(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EEXIST)
}

// swap exchanges a ticket and a target atomically. Its caller says which of the two exist.
func (r *root) swap(ticket, target string, atTicket, atTarget bool) error {
	dir, err := r.folderOf(target)
	if err != nil {
		if isLost(err) {
			return errLost
		}
		return err
	}
	defer dir.Close()
	fd, base := int(dir.Fd()), filepath.Base(target)
	switch {
	case atTicket && atTarget:
		err = unix.Renameat2(r.storeFD(), ticket, fd, base, unix.RENAME_EXCHANGE)
	case atTicket:
		err = unix.Renameat2(r.storeFD(), ticket, fd, base, unix.RENAME_NOREPLACE)
	case atTarget:
		err = unix.Renameat2(fd, base, r.storeFD(), ticket, unix.RENAME_NOREPLACE)
	}
	switch {
	case err == nil:
	case isLost(err):
		return errLost
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EBUSY):
		return activities.Errorf(activities.ActionDenied,
			"%s is or has a mount point; make its folder an allowed root of its own", filepath.Join(r.path, target))
	default:
		return fmt.Errorf("%s: %w", filepath.Join(r.path, target), err)
	}
	return errors.Join(dir.Sync(), r.syncFolder(filepath.Dir(ticket)))
}

// folderOf opens the folder that a target is in.
func (r *root) folderOf(target string) (*os.File, error) { return r.dir.Open(filepath.Dir(target)) }

// atTarget scans a target.
func (r *root) atTarget(ctx context.Context, target string) (tree, error) {
	return scanIn(ctx, r.dir, target)
}

// atTicket scans a ticket.
func (r *root) atTicket(ctx context.Context, ticket string) (tree, error) {
	return scanIn(ctx, r.store, ticket)
}

func scanIn(ctx context.Context, in *os.Root, name string) (tree, error) {
	dir, err := in.Open(filepath.Dir(name))
	if err != nil {
		if isLost(err) {
			return tree{}, nil
		}
		return tree{}, err
	}
	defer dir.Close()
	t, err := scanTree(ctx, dir, filepath.Base(name))
	if err != nil {
		return t, fmt.Errorf("%s: %w", filepath.Join(in.Name(), name), err)
	}
	return t, nil
}

// syncFolder syncs a folder of the store; one that a fence has moved is no longer ours.
func (r *root) syncFolder(folder string) error {
	f, err := r.store.Open(folder)
	if err != nil {
		if isLost(err) {
			return nil
		}
		return err
	}
	defer f.Close()
	return f.Sync()
}

// makeFolder makes the folders of a path below stage or undo. It returns errLost at a tombstone.
func (r *root) makeFolder(path string) error {
	for i := range path {
		if path[i] != filepath.Separator {
			continue
		}
		if err := r.mkdir(path[:i]); err != nil {
			return err
		}
	}
	return r.mkdir(path)
}

func (r *root) mkdir(path string) error {
	err := r.store.Mkdir(path, 0o700)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil // a tombstone fails the next part of the path
	case isLost(err):
		return errLost
	}
	return err
}

// leaveTombstone moves the folder at path away (to another path, or to the trash if that is taken
// or empty), and puts a tombstone in its place. Afterwards nothing can be done through a path below
// it.
func (r *root) leaveTombstone(path, to string) error {
	for {
		// The slash at the end makes the call fail on a tombstone.
		err := unix.ENOENT
		if to != "" {
			err = errno(unix.Renameat2(r.storeFD(), path+"/", r.storeFD(), to, unix.RENAME_NOREPLACE))
			if err == 0 {
				if err := r.syncFolder(filepath.Dir(to)); err != nil {
					return err
				}
			}
		}
		if to == "" || err == unix.EEXIST || err == unix.ENOTDIR || err == unix.ENOTEMPTY {
			trash := filepath.Join(trashDir, rand.Text())
			if err = errno(unix.Renameat2(r.storeFD(), path+"/", r.storeFD(), trash, unix.RENAME_NOREPLACE)); err == 0 {
				defer r.discard(trash)
			}
		}
		if err != 0 && err != unix.ENOENT && err != unix.ENOTDIR {
			return &fs.PathError{Op: "rename", Path: path, Err: err}
		}
		point.Reach("file:moved-away")
		f, cerr := r.store.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if cerr == nil {
			return errors.Join(f.Close(), r.syncFolder(filepath.Dir(path)))
		}
		if !errors.Is(cerr, fs.ErrExist) {
			return cerr
		}
		info, serr := r.store.Lstat(path)
		if serr == nil && info.Mode().IsRegular() {
			return r.syncFolder(filepath.Dir(path))
		}
		if serr != nil && !errors.Is(serr, fs.ErrNotExist) {
			return serr
		}
	}
}

// errno is the number of a system call's error, 0 for none.
func errno(err error) unix.Errno {
	var n unix.Errno
	if err != nil && !errors.As(err, &n) {
		return unix.EIO
	}
	return n
}
