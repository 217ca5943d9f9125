package helper

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a request waits for another helper.
const patience = 30 * time.Second

// starting is how long one waits for a container's program.
const starting = 10 * time.Second

// lock takes a lock file, or says Busy.
func lock(ctx context.Context, name string, patience time.Duration) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, err
		}
		if time.Now().After(until) {
			f.Close()
			return nil, failure(Busy, "another helper is at work on the container, or is stopped: %s is locked for %v", name, patience)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}
