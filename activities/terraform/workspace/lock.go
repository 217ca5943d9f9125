package workspace

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"regexp"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
)

// stateLock is what terraform reports of a state's lock that somebody else holds.
type stateLock struct {
	ID      string
	Who     string
	Created time.Time
}

var (
	lockHeld  = "Error acquiring the state lock"
	lockID    = regexp.MustCompile(`(?m)^\s*ID:\s+(\S+)`)
	lockWho   = regexp.MustCompile(`(?m)^\s*Who:\s+(\S+)`)
	lockSince = regexp.MustCompile(`(?m)^\s*Created:\s+(\S+ \S+)`)
	// Some backends report the holder's ID here, and in the rest what the requester's lock would have
	// been.
	lockOther = regexp.MustCompile(`already locked:\s+ID=(\S+)`)
)

// lockIn reads the error of a terraform that could not lock the state; found is false for any other
// error, and if the backend does not report the holder.
func lockIn(said stream.Report) (l stateLock, found bool) {
	for _, d := range said.Errors {
		if d.Summary != lockHeld {
			continue
		}
		id, who, since := lockID.FindStringSubmatch(d.Detail), lockWho.FindStringSubmatch(d.Detail),
			lockSince.FindStringSubmatch(d.Detail)
		other := lockOther.FindStringSubmatch(d.Detail)
		if id == nil || who == nil || since == nil || other != nil && other[1] != id[1] {
			return l, false
		}
		created, err := time.Parse("2006-01-02 15:04:05.999999999", since[1])
		if err != nil {
			return l, false
		}
		return stateLock{id[1], who[1], created}, true
	}
	return l, false
}

// unlock removes the lock that a killed terraform of this very step has left in a remote backend.
// It is proved to be its lock by this host's name and user in it, and by a time while that run
// lived; its holder is proved to be dead by the run itself: supervisor and terraform have ended
// (PID, start time and boot), and the lock that they inherited is free. A lock from after asked is
// what the requester's own would have been: some backends report that.
func (ws *Workspace) unlock(ctx context.Context, said stream.Report, asked time.Time) (done bool, err error) {
	l, found := lockIn(said)
	if !found || ws.StateFile != "" || l.Who != lockOwner() || !l.Created.Before(asked) {
		return false, nil
	}
	all, err := run.List(ws.Token)
	if err != nil {
		return false, err
	}
	for _, r := range all {
		end, err := r.Await(ctx, ws.Ending, run.Patiently)
		if err != nil {
			return false, err
		}
		if !end.Killed {
			continue
		}
		born, died, err := lifetimeOf(r)
		if err != nil {
			return false, err
		}
		if !l.Created.Before(born) && !l.Created.After(died) {
			if err := ws.SkipSupervisor(); err != nil {
				return false, err
			}
			return true, ws.CLI.ForceUnlock(ctx, l.ID)
		}
	}
	return false, nil
}

// LockHint says how a person removes the lock of a dead holder when this step must not do so
// itself.
func LockHint(said stream.Report) string {
	for _, d := range said.Errors {
		if d.Summary != lockHeld {
			continue
		}
		id := lockOther.FindStringSubmatch(d.Detail)
		if id == nil {
			id = lockID.FindStringSubmatch(d.Detail)
		}
		if id != nil {
			return fmt.Sprintf(
				"; if its holder is gone, run terraform force-unlock %s in the configuration's folder; the step is then retried",
				id[1])
		}
	}
	return ""
}

// lifetimeOf is when a run began, and when it was last seen, approximately.
func lifetimeOf(r run.Run) (born, died time.Time, err error) {
	const moment = 2 * time.Second
	folder, err := os.Stat(r.Folder())
	if err != nil {
		return born, died, err
	}
	said, err := os.Stat(run.Stdout(r.Folder()))
	if err != nil {
		return born, died, err
	}
	return folder.ModTime().Add(-moment), said.ModTime().Add(moment), nil
}

// lockOwner is how terraform names itself in a lock.
func lockOwner() string {
	host, _ := os.Hostname()
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return strings.TrimSpace(fmt.Sprintf("%s@%s", name, host))
}
