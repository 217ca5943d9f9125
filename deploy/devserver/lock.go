package devserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-62bf7108/unwind/internal/filelock"
)

// lockFile takes the lock at path and returns the function that releases it. If another process
// holds it, lockFile calls waiting and then waits until ctx ends.
func lockFile(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	l, err := filelock.Try(path)
	if errors.Is(err, filelock.ErrHeld) {
		waiting()
		l, err = filelock.Acquire(ctx, path)
	}
	if err != nil {
		return nil, fmt.Errorf("wait for the lock %s: %w", path, err)
	}
	return l.Release, nil
}
