package stack

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
)

// Target is a running container as seen from the host. Its handles stay valid when its first
// process exits, and are never taken for those of a process with a reused PID.
type Target struct {
	pid   int
	proc  int // /proc folder of its first process
	procs int // its own /proc; -1 until needed
	root  int // its base
	mnt   int // its mount namespace
	pidns uint64
	// outside identifies the caller's own PID namespace, whose processes are not the container's;
	// empty if they share one.
	outside string
}

// Open opens the container whose first process is pid in the caller's own PID namespace.
func Open(pid int) (*Target, error) {
	t := &Target{pid: pid, proc: -1, procs: -1, root: -1, mnt: -1}
	if err := t.open(); err != nil {
		t.Close()
		return nil, fmt.Errorf("the container's first process, %d: %w", pid, err)
	}
	return t, nil
}

func (t *Target) open() (err error) {
	t.proc, err = unix.Open("/proc/"+strconv.Itoa(t.pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if t.root, err = unix.Openat(t.proc, "root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return wrap("its root", err)
	}
	if t.mnt, err = unix.Openat(t.proc, "ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return wrap("its mounts", err)
	}
	var ns, own unix.Stat_t
	err = errors.Join(unix.Fstatat(t.proc, "ns/pid", &ns, 0), unix.Stat("/proc/self/ns/pid", &own))
	if t.pidns = ns.Ino; own.Ino != ns.Ino {
		t.outside = fmt.Sprintf("pid:[%d]", own.Ino)
	}
	return wrap("its process namespace", err)
}

// StartTime is when the container's first process started, in clock ticks since boot: each start of
// the container has its own.
func (t *Target) StartTime() (string, error) {
	stat, err := t.readProc("stat")
	if err != nil {
		return "", err
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // a program may have any name
	const startTime = 19                                                 // counted after the name
	if len(f) <= startTime {
		return "", fmt.Errorf("the container's first process: cannot read %q", stat)
	}
	return f[startTime], nil
}

// InCgroup reports whether a process belongs to a container: engines put the container's ID in the
// name of its cgroup.
func InCgroup(pid int, container string) bool {
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return err == nil && strings.Contains(string(groups), container)
}

// Base is the container's own root, which layers lie over.
func (t *Target) Base() layer.Base { return layer.Base(t.root) }

// Close closes the handles.
func (t *Target) Close() {
	for _, fd := range []int{t.proc, t.procs, t.root, t.mnt} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// readProc reads a file of the first process's folder in /proc.
func (t *Target) readProc(name string) ([]byte, error) {
	fd, err := unix.Openat(t.proc, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, wrap(name+" of the container", err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return readAll(f)
}

// onThread runs f on a thread of its own, which may change its namespaces and root, and ends with
// f.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// enterMountNamespace moves the calling thread to the topmost root of the container.
func (t *Target) enterMountNamespace() error {
	return wrap("entering the container's mounts", unix.Setns(t.mnt, unix.CLONE_NEWNS))
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// UnfitError says why no overlay of ours can be used on a container, or on this host.
type UnfitError struct{ Why string }

func (u *UnfitError) Error() string { return u.Why }

func unfit(format string, args ...any) error { return &UnfitError{fmt.Sprintf(format, args...)} }

// IsFull reports whether err is about a full disk.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// IsUnfit reports whether err is an [UnfitError].
func IsUnfit(err error) bool {
	var u *UnfitError
	return errors.As(err, &u)
}
