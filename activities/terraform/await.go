package terraform

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/filelock"
)

// ending says how a run has come to its end.
type ending struct {
	exit
	// Never: no supervisor has ever registered. The fence stops one that still might.
	Never bool
	// Killed: supervisor and terraform are gone without having said so.
	Killed bool
}

// errWorking: a run has not ended within the time that one attempt waits for it.
var errWorking = &activities.Error{Type: activities.ActionFailed, NextRetry: 5 * time.Second, Message: "an earlier terraform of " +
	"this step has been interrupted or is still working, and has not ended yet; it is waited for again"}

// await waits until a run has ended. With interrupt it wakes the run and interrupts it, once in its life.
func (w *world) await(ctx context.Context, r run, interrupt bool) (ending, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Ending)
	defer cancel()
	var supervisor supervisorRecord
	var child process
	woken := false
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var orphaned time.Time // since when nobody has been left to say how it ended
	for {
		var e exit
		if found, err := r.token.Read(r.doc(docExit), &e); err != nil || found {
			return ending{exit: e}, err
		}
		registered, err := r.token.Read(r.doc(docProcess), &supervisor)
		if err != nil || !registered {
			return ending{Never: true}, err
		}
		if _, err := r.token.Read(r.doc(docChild), &child); err != nil {
			return ending{}, err
		}
		if interrupt && !woken {
			woken = true
			wake(r, supervisor.process, child)
		}
		if !supervisor.alive() && !child.alive() {
			// The lock is free once no terraform of this token is left, nor anything that one has started.
			held, err := filelock.Held(lockFile(r.token))
			if err != nil {
				return ending{}, err
			}
			if !held {
				// The exit may have been written between the look for it and the death of its writer.
				found, err := r.token.Read(r.doc(docExit), &e)
				return ending{exit: e, Killed: !found}, err
			}
			if orphaned.IsZero() {
				orphaned = time.Now()
			} else if time.Since(orphaned) > time.Second {
				killSession(supervisor.process) // providers without their terraform: nothing else will end them
			}
		}
		select {
		case <-ctx.Done():
			return ending{}, errWorking
		case <-tick.C:
		}
	}
}

// wake lets a run that was stopped go on, and interrupts it: through its supervisor or, if that is dead, directly.
func wake(r run, supervisor, child process) {
	for _, p := range []process{supervisor, child} {
		p.signal(unix.SIGCONT)
	}
	if supervisor.alive() {
		supervisor.signal(unix.SIGINT)
		return
	}
	interruptOnce(r, func() { child.signal(unix.SIGINT) })
}
