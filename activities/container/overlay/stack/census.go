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

// process is one of the container's, or one of the host's.
type process struct {
	// pid is its number on this host; 0 where the container's own /proc has told of it.
	pid int
	dir string // its folder in /proc
}

// processes lists all that the host has, but this one: its own threads enter containers.
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

// members lists the processes of the container's process namespace, and of those in it, as its own /proc does: so it does
// not matter how many others there are.
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

// ownProcesses reads the container's own /proc. What is mounted there must be of the container's process namespace.
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

func (t *Target) has(p process) bool {
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

// stands calls on with the devices that the threads of the process have their root or working directory on, until it is
// satisfied.
func (p process) stands(on func(dev uint64) bool) bool {
	if standsIn(p.dir, on) {
		return true
	}
	var st unix.Stat_t
	if unix.Stat(p.dir+"/task", &st) != nil || st.Nlink == alone {
		return false
	}
	tasks, err := os.ReadDir(p.dir + "/task")
	if err != nil {
		return false
	}
	for _, t := range tasks {
		if !p.sharedBy(t.Name()) && standsIn(p.dir+"/task/"+t.Name(), on) {
			return true
		}
	}
	return false
}

// alone is the count of links to the folder of the threads of a process that has one, be it its first or not.
const alone = 3

func standsIn(dir string, on func(dev uint64) bool) bool {
	for _, what := range []string{"/root", "/cwd"} {
		var st unix.Statx_t // a filesystem in user space is not asked
		if unix.Statx(unix.AT_FDCWD, dir+what, unix.AT_STATX_DONT_SYNC, 0, &st) == nil && on(unix.Mkdev(st.Dev_major, st.Dev_minor)) {
			return true
		}
	}
	return false
}

const kcmpFS = 3 // KCMP_FS

// sharedBy says that a thread has the root and the working directory of the process's first one. Where the kernel does not
// tell, it has not; a first thread that has ended has none.
func (p process) sharedBy(thread string) bool {
	id, err := strconv.Atoi(thread)
	if err != nil || p.pid == 0 {
		return false
	}
	order, _, errno := unix.RawSyscall6(unix.SYS_KCMP, uintptr(p.pid), uintptr(id), kcmpFS, 0, 0, 0)
	return errno == 0 && order == 0
}

// holds says that the process has something of a mount open.
func (p process) holds(mount int) bool {
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

// presence is where a process stands.
type presence struct {
	process
	// inBase says that it stands on the container's own root, inTop that it stands in a top or holds something of it open.
	inBase, inTop bool
}

// at looks where a process stands. The base is 0 where that does not matter; the top may have been taken off.
func (p process) at(base uint64, top Top) presence {
	at := presence{process: p}
	p.stands(func(dev uint64) bool {
		at.inBase, at.inTop = at.inBase || dev == base, at.inTop || dev == top.Dev
		return at.inTop && (at.inBase || base == 0)
	})
	at.inTop = at.inTop || top.id != 0 && p.holds(top.id)
	return at
}

// Users counts the processes that stand in a top, of the container or not, and those of the container that hold something
// of it open. It may have been taken off.
func (t *Target) Users(top Top) (int, error) {
	top, err := t.known(top)
	if err != nil {
		return 0, err
	}
	all, err := processes()
	n := 0
	for _, p := range all {
		if t.uses(p, top) {
			n++
		}
	}
	return n, err
}

// uses says that a process is in a top. What another than the container's has open there is not looked for.
func (t *Target) uses(p process, top Top) bool {
	if t.has(p) {
		return p.at(0, top).inTop
	}
	return p.at(0, Top{Dev: top.Dev}).inTop
}

// known is the top without its mount's number, where that has gone to another.
func (t *Target) known(top Top) (Top, error) {
	s, err := t.Survey()
	for _, m := range s.mounts {
		if m.id == top.id && m.dev != top.Dev {
			top.id = 0
		}
	}
	return top, err
}

// passing is how long End waits for processes that are not the container's.
const passing = 10 * time.Second

// End kills the container's processes that stand in a top or hold something of it open, and returns when none is left.
// Others that stand there (an engine's, on their way in or out) are waited for a while, not killed. Vacant says that the
// kernel knows of none; then only what has mounts of its own can be there, which have other numbers.
func (t *Target) End(ctx context.Context, top Top, vacant bool) error {
	if vacant {
		all, err := t.members()
		if err == nil && !slices.ContainsFunc(all, func(p process) bool { return p.at(0, Top{Dev: top.Dev}).inTop }) {
			return nil
		}
	}
	top, err := t.known(top)
	if err != nil {
		return err
	}
	waits := time.Now().Add(passing)
	return emptied(ctx, func() (int, error) { return t.end(top, time.Now().Before(waits)) })
}

// Deserted waits until nobody stands in a top any more, or holds something of it open. Where somebody still does when ctx ends
// it is false.
func (t *Target) Deserted(ctx context.Context, top Top) (bool, error) {
	err := emptied(ctx, func() (int, error) { return t.Users(top) })
	if _, left := errors.AsType[*stay](err); left {
		return false, nil
	}
	return err == nil, err
}

// stay says how many have not gone.
type stay struct {
	left int
	err  error
}

func (s *stay) Error() string {
	return fmt.Sprintf("%d processes in the container do not end: %v", s.left, s.err)
}
func (s *stay) Unwrap() error { return s.err }

// emptied asks until nobody is left. Where ctx ends and somebody is, it is a [stay].
func emptied(ctx context.Context, count func() (left int, err error)) error {
	clean := 0
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		left, err := count()
		if err != nil {
			return err
		}
		if left > 0 {
			clean = 0
		} else if clean++; clean == 2 { // a fork may have got by one look
			return nil
		}
		select {
		case <-ctx.Done():
			if left > 0 {
				return &stay{left, ctx.Err()}
			}
		case <-time.After(pause):
		}
	}
}

// end kills whom it finds, and counts them; with others also those who are not the container's.
func (t *Target) end(top Top, others bool) (left int, err error) {
	all, err := processes()
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		ours := t.has(p)
		if !ours && !others || !t.uses(p, top) {
			continue
		}
		left++
		if !ours {
			continue
		}
		if err := p.kill(t, top); err != nil {
			return left, err
		}
	}
	return left, nil
}

// kill kills the process unless its number has gone to another meanwhile.
func (p process) kill(t *Target, top Top) error {
	return p.killIf(func() bool { return p.pid != t.pid && t.has(p) && p.at(0, top).inTop })
}

// killIf kills the process if that holds of it when its number cannot go to another any more.
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

// EndMarked kills the container's processes that have a variable ("NAME=value") in their environment, and returns when none is
// left. Ended says that there were some.
func (t *Target) EndMarked(ctx context.Context, variable string) (ended bool, err error) {
	err = emptied(ctx, func() (left int, err error) {
		all, err := processes()
		if err != nil {
			return 0, err
		}
		for _, p := range all {
			marked := func() bool { return p.pid != t.pid && t.has(p) && p.hasVariable(variable) }
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

// hasVariable says that the process was started with a variable.
func (p process) hasVariable(variable string) bool {
	environment, err := os.ReadFile(p.dir + "/environ")
	return err == nil && slices.Contains(strings.Split(string(environment), "\x00"), variable)
}
