package stack

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// WaitStarted waits until the container's first process runs its own program: before that it is
// still the engine's, whose use of the container's files is unpredictable. It returns an UnfitError
// when patience is over.
func (t *Target) WaitStarted(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		s, err := t.Survey()
		if err != nil {
			return err
		}
		own, err := t.runsOwnProgram(s)
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

// runsOwnProgram reports whether the program of the first process is on one of the container's
// mounts.
func (t *Target) runsOwnProgram(s Survey) (bool, error) {
	var program unix.Statx_t
	if err := unix.Statx(t.proc, "exe", unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &program); err != nil {
		return false, wrap("the program of the container's first process", err)
	}
	return slices.ContainsFunc(s.mounts, func(m mount) bool { return uint64(m.id) == program.Mnt_id }), nil //nolint:gosec // a count
}
