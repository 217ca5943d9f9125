package terraform

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/filelock"
)

// runEnd says how a run ended.
type runEnd struct {
	exit
	// Never: no supervisor ever registered. The fence stops one that still might.
	Never bool
	// Killed: supervisor and terraform died without recording an exit.
	Killed bool
}

// errWorking means that a run has not ended within the time that one attempt waits for it.
var errWorking = &activities.Error{Type: activities.ActionFailed, NextRetry: 5 * time.Second, Message: "an earlier terraform of " +
	"this step has been interrupted or is still working, and has not ended yet; the next attempt waits for it"}

// awaitRun waits until a run has ended. With interrupt it resumes and interrupts it, once in its life.
func (w *world) awaitRun(ctx context.Context, r run, interrupt bool) (runEnd, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Ending)
	defer cancel()
	var supervisor supervisorRecord
	var child process
	woken := false
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var orphaned time.Time // since when no process is left to say how it ended
	for {
		var e exit
		if found, err := r.token.Read(r.doc(docExit), &e); err != nil || found {
			return runEnd{exit: e}, err
		}
		registered, err := r.token.Read(r.doc(docProcess), &supervisor)
		if err != nil || !registered {
			return runEnd{Never: true}, err
		}
		if _, err := r.token.Read(r.doc(docChild), &child); err != nil {
			return runEnd{}, err
		}
		if interrupt && !woken {
			woken = true
			resumeAndInterrupt(r, supervisor.process, child)
		}
		if !supervisor.isAlive() && !child.isAlive() {
			// The lock is free once no terraform of this token is left, nor any process that one has started.
			held, err := filelock.Held(lockFile(r.token))
			if err != nil {
				return runEnd{}, err
			}
			if !held {
				// The exit may have been written between the check and the death of its writer.
				found, err := r.token.Read(r.doc(docExit), &e)
				return runEnd{exit: e, Killed: !found}, err
			}
			if orphaned.IsZero() {
				orphaned = time.Now()
			} else if time.Since(orphaned) > time.Second {
				killSession(supervisor.process) // providers without their terraform: nothing else will end them
			}
		}
		select {
		case <-ctx.Done():
			return runEnd{}, errWorking
		case <-tick.C:
		}
	}
}

// resumeAndInterrupt continues a stopped run and interrupts it: through its supervisor or, if that is dead, directly.
func resumeAndInterrupt(r run, supervisor, child process) {
	for _, p := range []process{supervisor, child} {
		p.signal(unix.SIGCONT)
	}
	if supervisor.isAlive() {
		supervisor.signal(unix.SIGINT)
		return
	}
	interruptOnce(r, func() { child.signal(unix.SIGINT) })
}
