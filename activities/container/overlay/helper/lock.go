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
	return f, hold(ctx, f, patience)
}

// lockHost takes a lock that the helpers of all homes on this host share: on their process namespace, which no container has
// that layers may stand on. It leaves nothing.
func lockHost(ctx context.Context, patience time.Duration) (*os.File, error) {
	f, err := os.Open("/proc/self/ns/pid")
	if err != nil {
		return nil, err
	}
	return f, hold(ctx, f, patience)
}

// hold locks a file, or closes it.
func hold(ctx context.Context, f *os.File, patience time.Duration) error {
	until := time.Now().Add(patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return err
		}
		if time.Now().After(until) {
			f.Close()
			return failure(Busy, "another helper is at work on the container, or is stopped: %s is locked for %v", f.Name(), patience)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}
