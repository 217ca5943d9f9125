package helper

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/seed-62bf7108/unwind/internal/filelock"
)

// patience is how long a request waits for another helper.
const patience = 30 * time.Second

// startGrace is how long a container's own program may take to start.
const startGrace = 10 * time.Second

// lockFile takes a lock file, or returns Busy.
func lockFile(ctx context.Context, name string, patience time.Duration) (*filelock.Lock, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return lockOpenFile(ctx, f, patience)
}

// lockHost takes a lock that all helpers on this host share: on their PID namespace, which no
// container has that layers may be used on. It leaves no file.
func lockHost(ctx context.Context, patience time.Duration) (*filelock.Lock, error) {
	f, err := os.Open("/proc/self/ns/pid")
	if err != nil {
		return nil, err
	}
	return lockOpenFile(ctx, f, patience)
}

// lockOpenFile locks a file, or closes it.
func lockOpenFile(ctx context.Context, f *os.File, patience time.Duration) (*filelock.Lock, error) {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l, err := filelock.AcquireFile(patient, f)
	if errors.Is(err, filelock.ErrHeld) && ctx.Err() == nil {
		return nil, newFailure(Busy, "another helper is working on the container, or is stopped: %s has been locked for %v",
			f.Name(), patience)
	}
	return l, err
}
