package terraform

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// process identifies a process for ever: a PID is reused, a PID with a start time in one boot is not.
type process struct {
	PID   int    `json:"pid"`
	Start string `json:"start"`
	Boot  string `json:"boot"`
}

var bootID = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(b))
})

// processOf describes a running process.
func processOf(pid int) (process, error) {
	s, err := statOf(pid)
	if err != nil {
		return process{}, err
	}
	return process{PID: pid, Start: s.start, Boot: bootID()}, nil
}

// stat is what /proc says of a process.
type stat struct {
	state   string // R, S, T (stopped), Z (dead, not yet waited for) ...
	session int
	start   string
}

func statOf(pid int) (stat, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The name, in parentheses, may contain anything: count from its end.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	session, err := strconv.Atoi(fields[3])
	return stat{state: fields[0], session: session, start: fields[19]}, err
}

// readStat returns what /proc says of p, and false if p has ended.
func (p process) readStat() (stat, bool) {
	if p.PID == 0 || p.Boot != bootID() {
		return stat{}, false
	}
	s, err := statOf(p.PID)
	return s, err == nil && s.start == p.Start && s.state != "Z" && s.state != "X"
}

func (p process) isAlive() bool { _, ok := p.readStat(); return ok }

// isStopped reports whether p cannot continue by itself: it has ended, or a signal has stopped it.
func (p process) isStopped() bool {
	s, ok := p.readStat()
	return !ok || s.state == "T" || s.state == "t"
}

// signal sends sig if p still runs. It opens a pidfd before it checks, so the signal never reaches another process.
func (p process) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if p.isAlive() {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0) // it may have just ended
	}
}

// killSession kills what a dead leader has left in its session: orphaned providers and provisioners.
func killSession(leader process) {
	if leader.Boot != bootID() {
		return
	}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s, err := statOf(pid)
		if err != nil || s.session != leader.PID || !notOlder(s.start, leader.Start) {
			continue
		}
		process{PID: pid, Start: s.start, Boot: leader.Boot}.signal(unix.SIGKILL)
	}
}

func notOlder(start, than string) bool {
	a, _ := strconv.ParseUint(start, 10, 64)
	b, _ := strconv.ParseUint(than, 10, 64)
	return a >= b
}
