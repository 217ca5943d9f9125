package stack

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Started waits until the container's first process has become the program that it was started for: before that it is its
// engine's, which runs from outside of the container, and what it does with the container's files nobody can tell. What has
// not become one after a while is Unfit.
func (t *Target) Started(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		s, err := t.Survey()
		if err != nil {
			return err
		}
		own, err := t.runsItsOwn(s)
		if own || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return unfit("the container's first process still runs a program from outside of the container after %v", patience)
		case <-time.After(pause):
		}
	}
}

// runsItsOwn says that the program of the first process is on one of the container's mounts.
func (t *Target) runsItsOwn(s Survey) (bool, error) {
	var program unix.Statx_t
	if err := unix.Statx(t.proc, "exe", unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &program); err != nil {
		return false, wrap("the program of the container's first process", err)
	}
	return slices.ContainsFunc(s.mounts, func(m mount) bool { return uint64(m.id) == program.Mnt_id }), nil //nolint:gosec // a count
}
