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
)

// Target is a running container as the host sees it. Its handles outlast its first process; a process that gets the
// number of that one later is never taken for it.
type Target struct {
	pid   int
	proc  int // the folder of its first process in /proc
	procs int // its own /proc; -1 until it is needed
	root  int // its base
	mnt   int // its mount namespace
	pidns uint64
	// outside names the caller's own process namespace: what is in it is not in the container's. It is empty where they
	// share one.
	outside string
}

// Open opens the container whose first process is pid, in the caller's own process namespace.
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

// Born is when the container's first process was started, in the kernel's ticks since its own start: after a restart of the
// container it is another.
func (t *Target) Born() (string, error) {
	stat, err := t.read("stat")
	if err != nil {
		return "", err
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // a program may have any name
	const startTime = 19                                                 // of what stands behind the name
	if len(f) <= startTime {
		return "", fmt.Errorf("the container's first process: cannot read %q", stat)
	}
	return f[startTime], nil
}

// InCgroup says whether a process is a container's: it finds the container's id among the control groups of the process,
// where engines put it.
func InCgroup(pid int, container string) bool {
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return err == nil && strings.Contains(string(groups), container)
}

// Close lets go of the handles.
func (t *Target) Close() {
	for _, fd := range []int{t.proc, t.procs, t.root, t.mnt} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// read reads a file of the first process's folder in /proc.
func (t *Target) read(name string) ([]byte, error) {
	fd, err := unix.Openat(t.proc, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, wrap(name+" of the container", err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return readAll(f)
}

// onThread runs f on a thread of its own, which may change its namespaces and root and ends with f.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: so the thread ends
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// enter puts the calling thread at the topmost root of the container.
func (t *Target) enter() error {
	return wrap("entering the container's mounts", unix.Setns(t.mnt, unix.CLONE_NEWNS))
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Unfit says why no overlay of ours may stand on a container, or on this host.
type Unfit struct{ Why string }

func (u *Unfit) Error() string { return u.Why }

func unfit(format string, args ...any) error { return &Unfit{fmt.Sprintf(format, args...)} }

// IsFull says that err is one of a disk without room.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// IsUnfit says that err is an [Unfit].
func IsUnfit(err error) bool {
	var u *Unfit
	return errors.As(err, &u)
}
