package run

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/internal/filelock"
	"github.com/seed-62bf7108/unwind/internal/process"
)

// End is how a run ended.
type End struct {
	Exit
	// Never: no supervisor ever registered. The fence stops one that still might.
	Never bool
	// Killed: supervisor and terraform died without recording an exit.
	Killed bool
}

// ErrWorking means that a run has not ended within the time that one attempt waits for it.
var ErrWorking = &activities.Error{Type: activities.ActionFailed, NextRetry: 5 * time.Second,
	Message: "an earlier terraform of " +
		"this step has been interrupted or is still working, and has not ended yet; the next attempt waits for it"}

// Manner says how a run is waited for.
type Manner bool

// The manners. A run that is interrupted is resumed before, and interrupted once in its life.
const (
	Patiently    Manner = false
	Interrupting Manner = true
)

// Await waits at most limit until a run has ended.
func (r Run) Await(ctx context.Context, limit time.Duration, manner Manner) (End, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var supervisor Supervisor
	var child process.Identity
	woken := false
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var orphaned time.Time // since when no process is left to say how it ended
	for {
		var e Exit
		if found, err := r.Token.Read(r.Doc(DocExit), &e); err != nil || found {
			return End{Exit: e}, err
		}
		registered, err := r.Token.Read(r.Doc(DocProcess), &supervisor)
		if err != nil || !registered {
			return End{Never: true}, err
		}
		if _, err := r.Token.Read(r.Doc(docChild), &child); err != nil {
			return End{}, err
		}
		if manner == Interrupting && !woken {
			woken = true
			resumeAndInterrupt(r, supervisor.Identity, child)
		}
		if !supervisor.IsAlive() && !child.IsAlive() {
			// The lock is free once no terraform of this token is left, nor any process that one has
			// started.
			held, err := filelock.Held(lockFile(r.Token))
			if err != nil {
				return End{}, err
			}
			if !held {
				// The exit may have been written between the check and the death of its writer.
				found, err := r.Token.Read(r.Doc(DocExit), &e)
				return End{Exit: e, Killed: !found}, err
			}
			if orphaned.IsZero() {
				orphaned = time.Now()
			} else if time.Since(orphaned) > time.Second {
				supervisor.KillSession() // providers without their terraform: nothing else will end them
			}
		}
		select {
		case <-ctx.Done():
			return End{}, ErrWorking
		case <-tick.C:
		}
	}
}

// resumeAndInterrupt continues a stopped run and interrupts it: through its supervisor or, if that
// is dead, directly.
func resumeAndInterrupt(r Run, supervisor, child process.Identity) {
	for _, p := range []process.Identity{supervisor, child} {
		p.Signal(unix.SIGCONT)
	}
	if supervisor.IsAlive() {
		supervisor.Signal(unix.SIGINT)
		return
	}
	interruptOnce(r, func() { child.Signal(unix.SIGINT) })
}

// Finished is a run and its end.
type Finished struct {
	Run
	End
	what string
}

// AppliedAll reports whether the run has applied its whole plan.
func (o *Finished) AppliedAll() bool {
	return o != nil && o.Code == 0 && !o.Killed && (o.what == OpApply || o.what == "")
}

// AwaitAll waits for a token's runs, and returns the last run of the forward that started.
func AwaitAll(ctx context.Context, t *journal.Token, limit time.Duration, manner Manner) (last *Finished, err error) {
	all, err := List(t)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		end, err := r.Await(ctx, limit, manner)
		if err != nil {
			return nil, err
		}
		var s Supervisor
		if _, err := t.Read(r.Doc(DocProcess), &s); err != nil {
			return nil, err
		}
		if !end.Never && end.Refused == "" && s.Turn == 0 {
			last = &Finished{r, end, s.What}
		}
	}
	return last, nil
}
