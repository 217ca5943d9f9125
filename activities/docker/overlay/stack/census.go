package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is a process of the container or of the host.
type process struct {
	// pid is its number on this host; 0 if it was read from the container's own /proc.
	pid int
	dir string // its folder in /proc
}

// processes lists all processes of the host except this one, whose own threads enter containers.
func processes() ([]process, error) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := make([]process, 0, len(names))
	for _, n := range names {
		if pid, err := strconv.Atoi(n.Name()); err == nil && pid != os.Getpid() {
			all = append(all, process{pid, "/proc/" + n.Name()})
		}
	}
	return all, nil
}

// members lists the processes in the container's PID namespace and its descendants, from the
// container's own /proc: the cost does not depend on what else the host runs.
func (t *Target) members() ([]process, error) {
	names, err := t.ownProcesses()
	if err != nil {
		return nil, err
	}
	at := "/proc/self/fd/" + strconv.Itoa(t.procs) + "/"
	all := make([]process, 0, len(names))
	for _, n := range names {
		if _, err := strconv.Atoi(n.Name()); err == nil {
			all = append(all, process{dir: at + n.Name()})
		}
	}
	return all, nil
}

// ownProcesses reads the container's own /proc, after checking that it belongs to the container's
// PID namespace.
func (t *Target) ownProcesses() ([]os.DirEntry, error) {
	if t.procs < 0 {
		fd, err := unix.Openat(t.root, "proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, wrap("the container's /proc", err)
		}
		t.procs = fd
	}
	var first unix.Stat_t
	if err := unix.Fstatat(t.procs, "1/ns/pid", &first, 0); err != nil || first.Ino != t.pidns {
		return nil, unfit("the container's /proc does not show its own processes")
	}
	return os.ReadDir("/proc/self/fd/" + strconv.Itoa(t.procs) + "/")
}

const nsGetParent = 0xb702 // NS_GET_PARENT

func (t *Target) ownsProcess(p process) bool {
	link := make([]byte, 64)
	n, err := unix.Readlink(p.dir+"/ns/pid", link)
	if err != nil || string(link[:n]) == t.outside {
		return false
	}
	fd, err := unix.Open(p.dir+"/ns/pid", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for err == nil {
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		if err == nil && st.Ino == t.pidns {
			unix.Close(fd)
			return true
		}
		up, upErr := unix.IoctlRetInt(fd, nsGetParent)
		unix.Close(fd)
		if upErr != nil {
			return false
		}
		fd = up
	}
	return false
}

// visitDevices calls on with the device of the root and working directory of each thread of the
// process, until on returns true.
func (p process) visitDevices(on func(dev uint64) bool) bool {
	if visitDevicesOf(p.dir, on) {
		return true
	}
	var st unix.Stat_t
	if unix.Stat(p.dir+"/task", &st) != nil || st.Nlink == singleThreadLinks {
		return false
	}
	tasks, err := os.ReadDir(p.dir + "/task")
	if err != nil {
		return false
	}
	for _, t := range tasks {
		if !p.sharedBy(t.Name()) && visitDevicesOf(p.dir+"/task/"+t.Name(), on) {
			return true
		}
	}
	return false
}

// singleThreadLinks is the link count of /proc/PID/task if the process has one thread.
const singleThreadLinks = 3

func visitDevicesOf(dir string, on func(dev uint64) bool) bool {
	for _, what := range []string{"/root", "/cwd"} {
		var st unix.Statx_t // DONT_SYNC: do not ask a FUSE filesystem
		if unix.Statx(unix.AT_FDCWD, dir+what, unix.AT_STATX_DONT_SYNC, 0, &st) == nil &&
			on(unix.Mkdev(st.Dev_major, st.Dev_minor)) {
			return true
		}
	}
	return false
}

const kcmpFS = 3 // KCMP_FS

// sharedBy reports whether a thread shares its root and working directory with the first thread. It
// is false if the kernel does not say, or if the first thread has exited.
func (p process) sharedBy(thread string) bool {
	id, err := strconv.Atoi(thread)
	if err != nil || p.pid == 0 {
		return false
	}
	order, _, errno := unix.RawSyscall6(unix.SYS_KCMP, uintptr(p.pid), uintptr(id), kcmpFS, 0, 0, 0)
	return errno == 0 && order == 0
}

// holdsMount reports whether the process has a file on the mount open.
func (p process) holdsMount(mount int) bool {
	fds, err := os.ReadDir(p.dir + "/fdinfo")
	if err != nil {
		return false
	}
	line := "mnt_id:\t" + strconv.Itoa(mount) + "\n"
	for _, fd := range fds {
		info, err := os.ReadFile(p.dir + "/fdinfo/" + fd.Name())
		if err == nil && strings.Contains(string(info), line) {
			return true
		}
	}
	return false
}

// presence says which of our filesystems a process uses.
type presence struct {
	process
	// inBase: its root or working directory is on the container's own root; inTop: on a top, or it has
	// a file there open.
	inBase, inTop bool
}

// locate finds out what a process uses. A base of 0 is not looked for; the top may have been
// unmounted.
func (p process) locate(base uint64, top Top) presence {
	at := presence{process: p}
	p.visitDevices(func(dev uint64) bool {
		at.inBase, at.inTop = at.inBase || dev == base, at.inTop || dev == top.Dev
		return at.inTop && (at.inBase || base == 0)
	})
	at.inTop = at.inTop || top.id != 0 && p.holdsMount(top.id)
	return at
}

// Users counts the processes, of the container or not, whose root or working directory is in a top,
// and those of the container that have a file there open. The top may have been unmounted.
func (t *Target) Users(top Top) (int, error) {
	top, err := t.dropStaleID(top)
	if err != nil {
		return 0, err
	}
	all, err := processes()
	n := 0
	for _, p := range all {
		if t.usesTop(p, top) {
			n++
		}
	}
	return n, err
}

// NameUsers lists the command lines of the container's own among the processes that [Target.Users]
// counts.
func (t *Target) NameUsers(top Top) (names []string, err error) {
	top, err = t.dropStaleID(top)
	if err != nil {
		return nil, err
	}
	all, err := processes()
	for _, p := range all {
		if !t.ownsProcess(p) || !t.usesTop(p, top) {
			continue
		}
		if argv, read := p.arguments(); read == nil && len(argv) > 0 {
			names = append(names, truncate(strings.Join(argv, " ")))
		}
	}
	return names, err
}

// usesTop reports whether a process uses a top. Open files are looked for only in processes of the
// container.
func (t *Target) usesTop(p process, top Top) bool {
	if t.ownsProcess(p) {
		return p.locate(0, top).inTop
	}
	return p.locate(0, Top{Dev: top.Dev}).inTop
}

// dropStaleID clears the mount ID of a top if the kernel has since given that ID to another mount.
func (t *Target) dropStaleID(top Top) (Top, error) {
	s, err := t.Survey()
	for _, m := range s.mounts {
		if m.id == top.id && m.dev != top.Dev {
			top.id = 0
		}
	}
	return top, err
}

// foreignGrace is how long EndUsers waits for processes that are not the container's.
const foreignGrace = 10 * time.Second

// EndUsers kills the container's processes that use a top, and returns when none is left. Processes
// of others (of an engine on its way in or out) are given a while to leave, and are not killed.
func (t *Target) EndUsers(ctx context.Context, top Top) error {
	top, err := t.dropStaleID(top)
	if err != nil {
		return err
	}
	waits := time.Now().Add(foreignGrace)
	return waitUntilNone(ctx, func() (int, error) { return t.killUsers(top, time.Now().Before(waits)) })
}

// EndHiddenUsers is EndUsers of a top that the kernel has reported as unused when it was unmounted:
// only processes in mount namespaces of their own can use it, under other mount IDs.
func (t *Target) EndHiddenUsers(ctx context.Context, top Top) error {
	all, err := t.members()
	if err == nil && !slices.ContainsFunc(all, func(p process) bool { return p.locate(0, Top{Dev: top.Dev}).inTop }) {
		return nil
	}
	return t.EndUsers(ctx, top)
}

// WaitUnused waits until no process uses a top, and returns false if one still does when ctx ends.
func (t *Target) WaitUnused(ctx context.Context, top Top) (bool, error) {
	err := waitUntilNone(ctx, func() (int, error) { return t.Users(top) })
	if _, left := errors.AsType[*remainingError](err); left {
		return false, nil
	}
	return err == nil, err
}

// remainingError says how many processes are left.
type remainingError struct {
	left int
	err  error
}

func (s *remainingError) Error() string {
	return fmt.Sprintf("%d processes in the container do not end: %v", s.left, s.err)
}
func (s *remainingError) Unwrap() error { return s.err }

// waitUntilNone polls until count returns 0. It returns a [remainingError] if ctx ends first.
func waitUntilNone(ctx context.Context, count func() (left int, err error)) error {
	clean := 0
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		left, err := count()
		if err != nil {
			return err
		}
		if left > 0 {
			clean = 0
		} else if clean++; clean == 2 { // look twice: a fork can slip past one look
			return nil
		}
		select {
		case <-ctx.Done():
			if left > 0 {
				return &remainingError{left, ctx.Err()}
			}
		case <-time.After(pause):
		}
	}
}

// killUsers kills the container's processes that use the top, and counts them; with others, it also
// counts those of others.
func (t *Target) killUsers(top Top, others bool) (left int, err error) {
	all, err := processes()
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		ours := t.ownsProcess(p)
		if !ours && !others || !t.usesTop(p, top) {
			continue
		}
		left++
		if !ours {
			continue
		}
		if err := p.killInTop(t, top); err != nil {
			return left, err
		}
	}
	return left, nil
}

// killInTop kills the process unless its PID has been reused.
func (p process) killInTop(t *Target, top Top) error {
	return p.killIf(func() bool { return p.pid != t.pid && t.ownsProcess(p) && p.locate(0, top).inTop })
}

// killIf kills the process if holds returns true once a pidfd has pinned its PID.
func (p process) killIf(holds func() bool) error {
	fd, err := unix.Open(p.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	pinned, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(pinned)
	if !holds() {
		return nil
	}
	if err := unix.PidfdSendSignal(pinned, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return wrap("ending process "+strconv.Itoa(p.pid), err)
	}
	return nil
}

// EndMarked kills the container's processes that have a variable ("NAME=value") in their
// environment, and returns when none is left. Ended reports whether there were any.
func (t *Target) EndMarked(ctx context.Context, variable string) (ended bool, err error) {
	err = waitUntilNone(ctx, func() (left int, err error) {
		// Most often there are none, and the container's own /proc has few to look at.
		if all, err := t.members(); err == nil &&
			!slices.ContainsFunc(all, func(p process) bool { return p.hasVariable(variable) }) {
			return 0, nil
		}
		all, err := processes()
		if err != nil {
			return 0, err
		}
		for _, p := range all {
			marked := func() bool { return p.pid != t.pid && t.ownsProcess(p) && p.hasVariable(variable) }
			if !marked() {
				continue
			}
			left, ended = left+1, true
			if err := p.killIf(marked); err != nil {
				return left, err
			}
		}
		return left, nil
	})
	return ended, err
}

// hasVariable reports whether the process was started with a variable.
func (p process) hasVariable(variable string) bool {
	environment, err := os.ReadFile(p.dir + "/environ")
	return err == nil && slices.Contains(strings.Split(string(environment), "\x00"), variable)
}
