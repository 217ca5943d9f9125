package isolated

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/internal/process"
)

// patience is how long other calls of a token may continue before they are killed.
const patience = 10 * time.Second

// LockToken takes the lock of the token, in the process of the call. It kills holders that cannot
// continue because their worker is stopped or dead. An undo kills forwards at once, and any other
// holder when its patience is over.
func (j Job[Config]) LockToken(ctx context.Context, t *journal.Token) (unlock func(), err error) {
	for began := time.Now(); ; {
		try, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		unlock, err := t.Lock(try)
		cancel()
		if err == nil || !errors.Is(err, context.DeadlineExceeded) {
			return unlock, err
		}
		for _, other := range listCalls(j.Entry.Token) {
			if j.Op == Undo && (other.op != Undo || time.Since(began) > patience) || other.isStuck() {
				other.kill()
			}
			unix.Close(other.fd)
		}
		if time.Since(began) > 3*patience {
			return nil, fmt.Errorf("token %s: %w", j.Entry.Token, err)
		}
	}
}

// callProcess is a process that runs a call, or was started by one that does.
type callProcess struct {
	pid int
	fd  int
	op  Op
	// isCall: it runs the call itself.
	isCall bool
}

// listProcesses lists the other processes that calls of a token are, or have started. The caller
// closes their descriptors.
func listProcesses(token string) (all []callProcess) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0) // before its token is read: the signal reaches no other process
		if err != nil {
			continue
		}
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		op, found := findVariable(string(env), token)
		if !found {
			unix.Close(fd)
			continue
		}
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		all = append(all, callProcess{pid, fd, Op(op), strings.TrimRight(string(name), "\x00") == filepath.Base(os.Args[0])})
	}
	return all
}

func listCalls(token string) (calls []callProcess) {
	for _, p := range listProcesses(token) {
		if p.isCall {
			calls = append(calls, p)
			continue
		}
		unix.Close(p.fd)
	}
	return calls
}

func findVariable(env, token string) (op string, found bool) {
	for v := range strings.SplitSeq(env, "\x00") {
		if op, found = strings.CutPrefix(v, Variable+"="+token+"/"); found {
			return op, true
		}
	}
	return "", false
}

// isStuck reports whether a process, or the worker that started it, is stopped.
func (p callProcess) isStuck() bool {
	is, err := process.ReadStatus(p.pid)
	if err != nil {
		return false
	}
	if is.IsStopped() {
		return true
	}
	worker, err := process.ReadStatus(is.Parent)
	return err == nil && worker.IsStopped()
}

func (p callProcess) kill() {
	_ = unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0) // it may have just ended
}

// KillStarted kills what other calls of a token have started and that has not ended. It is for a
// process that has the token's lock: other calls wait for it, and have nothing under way.
func KillStarted(token string) {
	own, _ := unix.Getsid(0)
	for _, p := range listProcesses(token) {
		if session, err := unix.Getsid(p.pid); err == nil && session != own && !p.isCall {
			p.kill()
			p.awaitEnd()
		}
		unix.Close(p.fd)
	}
}

// dying is how long a killed process may take to end: one that waits for a disk ends late.
const dying = 10 * time.Second

func (p callProcess) awaitEnd() {
	ended := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	for giveUp := time.Now().Add(dying); time.Now().Before(giveUp); {
		if n, err := unix.Poll(ended, int(dying.Milliseconds())); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
