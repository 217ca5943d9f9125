package container

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/internal/filelock"
)

// maxStarts bounds how often one call of Apply starts a supervisor for a run that does not begin.
const maxStarts = 3

// maxRuns bounds how often a command is run whose result is lost each time.
const maxRuns = 5

func attemptDoc(n int) string { return fmt.Sprintf("attempt-%d", n) }

// attempts brings the command to its end: it waits for a run that is under way, starts one where none is, and where a
// result is lost for good rolls back and starts another. It returns the number of the run that ended, and its container.
func (a *application) attempts(ctx context.Context) (n int, in string, end ended, err error) {
	for n = 1; ; n++ {
		if in, err = a.enterable(ctx, n); err != nil {
			return n, in, end, err
		}
		end, over, err := a.await(ctx, n, in)
		if err != nil || over {
			if n > 1 {
				a.notes = append(a.notes, fmt.Sprintf("the command ran %d times: the result of a run was lost, and the container was rolled back to the step's checkpoint before the next", n))
			}
			return n, in, end, err
		}
		if !a.params.mayRerun() {
			return n, in, end, activities.Errorf(activities.UnknownOutcome,
				"the result of the command in container %s is lost: its supervisor is gone; it may have run, and rerun: false forbids another run", nameOf(a.rec.Container))
		}
		if n == maxRuns {
			return n, in, end, activities.Errorf(activities.ActionDenied,
				"the result of the command in container %s has been lost %d times, and it is not run again: something ends its supervisor, or leaves no room in %s",
				nameOf(a.rec.Container), n, a.journal.Dir())
		}
	}
}

// enterable is the container that run n happens in: the step's own, or that of a rollback after the run before.
func (a *application) enterable(ctx context.Context, n int) (string, error) {
	if n == 1 {
		return a.rec.Container.ID, nil
	}
	var in attempt
	if found, err := a.token.Read(attemptDoc(n), &in); found || err != nil {
		return in.Container, err
	}
	if err := a.token.CheckOpen(); err != nil {
		return "", err
	}
	to, before, err := rollbackOf(a.token, a.entry.Token, a.rec, attemptDoc(n))
	if err != nil {
		return "", err
	}
	back, err := a.roll(ctx, a.token, a.rec, to, before, nil)
	if err != nil {
		return "", err
	}
	in.Container = back.ID
	point.Reach("container.exec:rolled-back-to-rerun")
	_, err = a.token.Create(attemptDoc(n), &in)
	return in.Container, err
}

// await waits for the end of run n and starts it where it has not begun. It is not over where the result is lost: the run
// has begun, and its supervisor is dead.
func (a *application) await(ctx context.Context, n int, in string) (end ended, over bool, err error) {
	starts := 0
	var exited <-chan struct{} // of a supervisor that this call has started; one of another process is asked for by its lock
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		lock, err := lockAlive(a.token, n)
		if errors.Is(err, filelock.ErrHeld) {
			select {
			case <-ctx.Done():
				return end, false, ctx.Err()
			case <-exited:
				exited = nil
			case <-time.After(pause):
			}
			continue
		}
		if err != nil {
			return end, false, err
		}
		end, over, lost, err := a.lookAt(n)
		if over || lost || err != nil {
			lock.Release()
			return end, over, err
		}
		pause = 5 * time.Millisecond
		if starts++; starts > maxStarts {
			lock.Release()
			if err := writable(a.token.Dir()); err != nil {
				return end, false, fmt.Errorf("the command in container %s has not begun: %w", nameOf(a.rec.Container), err)
			}
			return end, false, activities.Errorf(activities.ActionFailed,
				"the command in container %s has not begun: its supervisor ends before it reaches the container engine", nameOf(a.rec.Container))
		}
		if exited, err = a.launch(ctx, n, in, lock); err != nil {
			return end, false, err
		}
	}
}

// lookAt tells what a run without a supervisor has come to: its end, a loss, or neither: it has not begun.
func (a *application) lookAt(n int) (end ended, over, lost bool, err error) {
	if over, err = a.token.Read(endedDoc(n), &end); over || err != nil {
		return end, over, false, err
	}
	var since begun
	lost, err = a.token.Read(begunDoc(n), &since)
	return end, false, lost, err
}

// launch starts a supervisor for run n, unless the step has been undone, and hands it the lock: it is held without a gap
// from before the supervisor lives until it is dead.
// The channel is closed when that supervisor has exited.
func (a *application) launch(ctx context.Context, n int, in string, lock *filelock.Lock) (exited <-chan struct{}, err error) {
	defer lock.Release()
	if err := a.token.CheckOpen(); err != nil {
		return nil, err
	}
	command, err := a.through(ctx, a.params.command().marked(a.entry.Token))
	if err != nil {
		return nil, err
	}
	point.Reach("container.exec:before-supervisor")
	return startSupervisor(job{
		Journal: a.journal.Dir(), Token: a.entry.Token, Attempt: n, Host: a.host, Target: in, Command: command,
	}, lock)
}

// rollbackOf is the rollback of a step to its checkpoint. Before is the step's whole manifest: of its volumes too.
func rollbackOf(t *journal.Token, token string, rec record, turn string) (to rollback, before manifest, err error) {
	var at checkpointAt
	if found, err := t.Read(checkpointDoc, &at); err != nil || !found {
		return to, nil, errors.Join(err, activities.Errorf(activities.DamagedRecord, "the record of token %s names no checkpoint", token))
	}
	before, err = loadManifest(t.Dir(), beforeFile, rec.Before)
	return rollback{
		Token: token, Turn: turn, Container: rec.Container, Checkpoint: at.Checkpoint, Before: before.files(), Ignore: rec.Ignore,
	}, before, err
}
