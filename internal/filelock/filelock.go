// Package filelock locks files with flock(2): between processes, and between goroutines of one process, since every lock
// opens the file anew. The lock of a process that is killed is free; that of one that is stopped stays held, so no fence
// may wait for one.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld says that somebody else holds the lock.
var ErrHeld = errors.New("the lock is held by another")

// Lock is a lock on a file, held until Release and until every process that inherited File has ended or closed it.
type Lock struct{ file *os.File }

// File is the open file of the lock, for a child process to inherit.
func (l *Lock) File() *os.File { return l.file }

// Release closes the file. It never unlocks it: a process that inherited the lock goes on holding it.
func (l *Lock) Release() { l.file.Close() }

// Try locks the file at path, which it makes where there is none, or returns ErrHeld.
func Try(path string) (*Lock, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	if err := try(f, unix.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return &Lock{f}, nil
}

// Acquire locks the file at path, which it makes where there is none. It tries until ctx ends; then it returns an error that
// is both ErrHeld and the cause.
func Acquire(ctx context.Context, path string) (*Lock, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	return AcquireFile(ctx, f)
}

// AcquireFile is Acquire for an open file. The file is the lock's from then on, and closed where there is none.
func AcquireFile(ctx context.Context, f *os.File) (*Lock, error) {
	const longest = 20 * time.Millisecond
	for pause := time.Millisecond; ; pause = min(2*pause, longest) {
		err := try(f, unix.LOCK_EX)
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

// Held reports whether anybody holds the lock on the file at path. A file that does not exist is not locked. Two who ask at
// once do not take each other for a holder.
func Held(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = try(f, unix.LOCK_SH)
	if errors.Is(err, ErrHeld) {
		return true, nil
	}
	return false, err
}

func open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}

func try(f *os.File, how int) error {
	for {
		switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); {
		case errors.Is(err, unix.EINTR): // filesystems in user space may say so
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrHeld
		case err != nil:
			return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
		default:
			return nil
		}
	}
}
