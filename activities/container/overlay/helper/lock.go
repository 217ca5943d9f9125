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

// starting is how long one waits for a container's program.
const starting = 10 * time.Second

// lock takes a lock file, or says Busy.
func lock(ctx context.Context, name string, patience time.Duration) (*filelock.Lock, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return hold(ctx, f, patience)
}

// lockHost takes a lock that the helpers of all homes on this host share: on their process namespace, which no container has
// that layers may stand on. It leaves nothing.
func lockHost(ctx context.Context, patience time.Duration) (*filelock.Lock, error) {
	f, err := os.Open("/proc/self/ns/pid")
	if err != nil {
		return nil, err
	}
	return hold(ctx, f, patience)
}

// hold locks a file, or closes it.
func hold(ctx context.Context, f *os.File, patience time.Duration) (*filelock.Lock, error) {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l, err := filelock.AcquireFile(patient, f)
	if errors.Is(err, filelock.ErrHeld) && ctx.Err() == nil {
		return nil, failure(Busy, "another helper is at work on the container, or is stopped: %s is locked for %v", f.Name(), patience)
	}
	return l, err
}
