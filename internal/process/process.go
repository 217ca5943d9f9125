// Package process identifies processes of this host for good, and signals exactly the one that is
// meant.
package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Identity identifies a process for good: a PID is reused, a PID with a start time in one boot is
// not.
type Identity struct {
	PID   int    `json:"pid"`
	Start string `json:"start"`
	Boot  string `json:"boot"`
}

var bootID = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(b))
})

// Identify returns the identity of a running process.
func Identify(pid int) (Identity, error) {
	s, err := ReadStatus(pid)
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, Start: s.start, Boot: bootID()}, nil
}

// Status is what the kernel reports about a process.
type Status struct {
	Parent int

	state   string // R, S, T (stopped), Z (dead, not yet waited for) ...
	session int
	start   string
}

// IsStopped reports whether a signal has stopped the process.
func (s Status) IsStopped() bool { return s.state == "T" || s.state == "t" }

// ReadStatus reads the status of the process that has this PID now.
func ReadStatus(pid int) (Status, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Status{}, err
	}
	// The name, in parentheses, may contain anything: count from its end.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 20 {
		return Status{}, fmt.Errorf("/proc/%d/stat: %d is too few fields", pid, len(fields))
	}
	s := Status{state: fields[0], start: fields[19]}
	if s.Parent, err = strconv.Atoi(fields[1]); err != nil {
		return Status{}, err
	}
	s.session, err = strconv.Atoi(fields[3])
	return s, err
}

// readStatus returns the status of i, and false if i has ended.
func (i Identity) readStatus() (Status, bool) {
	if i.PID == 0 || i.Boot != bootID() {
		return Status{}, false
	}
	s, err := ReadStatus(i.PID)
	return s, err == nil && s.start == i.Start && s.state != "Z" && s.state != "X"
}

// IsAlive reports whether the process has not ended yet.
func (i Identity) IsAlive() bool { _, ok := i.readStatus(); return ok }

// CanContinue reports whether the process can continue by itself: it has neither ended nor been
// stopped by a signal.
func (i Identity) CanContinue() bool {
	s, ok := i.readStatus()
	return ok && !s.IsStopped()
}

// Signal sends sig if the process still runs. It opens a pidfd before it checks, so the signal
// never reaches another process.
func (i Identity) Signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(i.PID, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if i.IsAlive() {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0) // it may have just ended
	}
}

// KillSession kills what the leader of a session, itself dead, has left in it.
func (i Identity) KillSession() {
	for _, each := range i.listSession() {
		each.Signal(unix.SIGKILL)
	}
}

// EndSession kills the leader of a session and all that is left in it, and returns when none of
// them runs any more.
func (i Identity) EndSession(ctx context.Context) error {
	for {
		running := i.listSession()
		if len(running) == 0 {
			return nil
		}
		for _, each := range running {
			each.Signal(unix.SIGKILL)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("process %d was killed and has not ended: %w", running[0].PID, context.Cause(ctx))
		}
	}
}

// listSession lists the processes that run in the session that i leads, or led.
func (i Identity) listSession() (running []Identity) {
	if i.PID == 0 || i.Boot != bootID() {
		return nil
	}
	// A PID is free again only when no session has its number any more.
	if now, err := ReadStatus(i.PID); err == nil && now.start != i.Start {
		return nil
	}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s, err := ReadStatus(pid)
		if err != nil || s.session != i.PID || !notOlder(s.start, i.Start) {
			continue
		}
		if each := (Identity{PID: pid, Start: s.start, Boot: i.Boot}); each.IsAlive() {
			running = append(running, each)
		}
	}
	return running
}

func notOlder(start, than string) bool {
	a, _ := strconv.ParseUint(start, 10, 64)
	b, _ := strconv.ParseUint(than, 10, 64)
	return a >= b
}
