package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/internal/filelock"
)

// maxStarts bounds how often one call starts a supervisor for a run that does not begin.
const maxStarts = 3

// Attempt is one run of a step's command. A supervisor does it, once; whoever asks again waits for
// that.
type Attempt struct {
	Journal *journal.Journal
	Token   *journal.Token
	// Name is the container's, for messages, and Container its id.
	Name, Container string
	// Number tells the attempts of a token from each other; the first is 1.
	Number int
	// Host is the engine's address.
	Host string
	// Prepare makes the command, just before a supervisor is started for it.
	Prepare func(context.Context) (Command, error)
}

// Await waits for the end of the run and starts it where it has not begun. It is not over where the
// result is lost: the run has begun, and its supervisor is dead.
func (a *Attempt) Await(ctx context.Context) (end Ending, over bool, err error) {
	starts := 0
	// of a supervisor that this call has started; one of another process is asked for by its lock
	var exited <-chan struct{}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		lock, err := a.lockAlive()
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
		end, over, lost, err := a.readEnding()
		if over || lost || err != nil {
			lock.Release()
			return end, over, err
		}
		pause = 5 * time.Millisecond
		if starts++; starts > maxStarts {
			lock.Release()
			if err := checkWritable(a.Token.Dir()); err != nil {
				return end, false, fmt.Errorf("the command in container %s has not begun: %w", a.Name, err)
			}
			return end, false, activities.Errorf(activities.ActionFailed,
				"the command in container %s has not begun: its supervisor ends before it reaches the container engine", a.Name)
		}
		if exited, err = a.launch(ctx, lock); err != nil {
			return end, false, err
		}
	}
}

// readEnding reads what a run without a supervisor has come to: its end, a loss, or neither where
// it has not begun.
func (a *Attempt) readEnding() (end Ending, over, lost bool, err error) {
	if over, err = a.Token.Read(endingDoc(a.Number), &end); over || err != nil {
		return end, over, false, err
	}
	var since beginning
	lost, err = a.Token.Read(beginningDoc(a.Number), &since)
	return end, false, lost, err
}

// Standing says how far a run has come, for callers that do not wait for it; empty where the
// command has not begun.
func (a *Attempt) Standing() (string, error) {
	begun, err := a.Token.Has(beginningDoc(a.Number))
	if err != nil || !begun {
		return "", err
	}
	lock, err := a.lockAlive()
	if errors.Is(err, filelock.ErrHeld) {
		return "the command has begun, and still runs", nil
	}
	if err != nil {
		return "", err
	}
	defer lock.Release()
	end, over, _, err := a.readEnding()
	switch {
	case err != nil || end.Refused != "":
		return "", err
	case over:
		return fmt.Sprintf("the command has ended with exit status %d, but its step has not ended", end.Exit), nil
	}
	return "the command has begun, and how it ended is lost", nil
}

// launch starts a supervisor, unless the step has been undone, and hands it the lock, which is held
// without a gap from before the supervisor lives until it is dead. The channel is closed when the
// supervisor has exited.
func (a *Attempt) launch(ctx context.Context, lock *filelock.Lock) (exited <-chan struct{}, err error) {
	defer lock.Release()
	if err := a.Token.CheckOpen(); err != nil {
		return nil, err
	}
	c, err := a.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	point.Reach("container.exec:before-supervisor")
	return startSupervisor(job{
		Journal: a.Journal.Dir(), Token: filepath.Base(a.Token.Dir()), Attempt: a.Number, Host: a.Host, Target: a.Container,
		Command: c,
		Hide:    activities.MaskerFrom(ctx).Hidden(),
	}, lock)
}

// checkWritable says why a supervisor can write nothing in a folder.
func checkWritable(dir string) error {
	f, err := os.CreateTemp(dir, ".try-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, 16<<10)) // a log and two documents
	return errors.Join(err, f.Sync(), f.Close())
}

// lockAlive takes the lock that the supervisor of an attempt holds for its life: [filelock.ErrHeld]
// while one lives.
func (a *Attempt) lockAlive() (*filelock.Lock, error) {
	return filelock.Try(filepath.Join(a.Token.Dir(), aliveName(a.Number)))
}
