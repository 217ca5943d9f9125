// Package filelock locks files with flock(2): between processes, and between goroutines of one
// process, since every lock opens the file again. A killed process frees its lock; a stopped one
// keeps it, so no fence may wait for a lock.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld means that another holds the lock.
var ErrHeld = errors.New("the lock is held by another")

// Lock is a lock on a file, held until Release and until every process that inherited File has
// ended or closed it.
type Lock struct{ file *os.File }

// File is the open file of the lock, for a child process to inherit.
func (l *Lock) File() *os.File { return l.file }

// Release closes the file. It never unlocks it: a process that inherited the lock goes on holding
// it.
func (l *Lock) Release() { l.file.Close() }

// Try locks the file at path, creating it if needed, or returns ErrHeld.
func Try(path string) (*Lock, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	if err := tryLock(f, unix.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return &Lock{f}, nil
}

// Acquire locks the file at path, creating it if needed. It retries until ctx ends, and then
// returns an error that is both ErrHeld and the cause.
func Acquire(ctx context.Context, path string) (*Lock, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	return AcquireFile(ctx, f)
}

// AcquireFile is Acquire for an open file, which then belongs to the lock. It is closed on failure.
func AcquireFile(ctx context.Context, f *os.File) (*Lock, error) {
	const longest = 20 * time.Millisecond
	for pause := time.Millisecond; ; pause = min(2*pause, longest) {
		err := tryLock(f, unix.LOCK_EX)
		if err == nil {
			return &Lock{f}, nil
		}
		if !errors.Is(err, ErrHeld) {
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// Held reports whether anybody holds the lock on the file at path. A missing file is not locked.
// Concurrent calls do not take each other for a holder.
func Held(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = tryLock(f, unix.LOCK_SH)
	if errors.Is(err, ErrHeld) {
		return true, nil
	}
	return false, err
}

func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}

func tryLock(f *os.File, how int) error {
	for {
		switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); {
		case errors.Is(err, unix.EINTR): // FUSE filesystems may return it
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrHeld
		case err != nil:
			return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
		default:
			return nil
		}
	}
}
