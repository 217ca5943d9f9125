package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is one of the container's, or one that has its root there.
type process struct {
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

// members lists the processes of the container: those of its process namespace and of the ones in it.
func (t *Target) members() ([]process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var mine []process
	for _, p := range all {
		if t.has(p) {
			mine = append(mine, p)
		}
	}
	return mine, nil
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

// rootedIn says that a thread of the process has its root or its working directory on a device.
func (p process) rootedIn(dev uint64) bool {
	if standsOn(p.dir, dev) {
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
		if !p.sharedBy(t.Name()) && standsOn(p.dir+"/task/"+t.Name(), dev) {
			return true
		}
	}
	return false
}

// alone is the count of links to the folder of the threads of a process that has one, be it its first or not.
const alone = 3

func standsOn(dir string, dev uint64) bool {
	for _, what := range []string{"/root", "/cwd"} {
		var st unix.Statx_t // a filesystem in user space is not asked
		if unix.Statx(unix.AT_FDCWD, dir+what, unix.AT_STATX_DONT_SYNC, 0, &st) == nil && unix.Mkdev(st.Dev_major, st.Dev_minor) == dev {
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
	if err != nil {
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

// Users counts the processes, of the container or not, that stand in a top or hold something of it open. It may have been
// taken off.
func (t *Target) Users(top Top) (int, error) {
	all, err := processes()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, p := range all {
		if p.rootedIn(top.Dev) || t.has(p) && p.holds(top.id) {
			n++
		}
	}
	return n, nil
}

// passing is how long End waits for processes that are not the container's.
const passing = 10 * time.Second

// End kills the container's processes that stand in a top or hold something of it open, and returns when none is left.
// Others that stand there (an engine's, on their way in or out) are waited for a while, not killed.
func (t *Target) End(ctx context.Context, top Top) error {
	s, err := t.Survey()
	if err != nil {
		return err
	}
	for _, m := range s.mounts {
		if m.id == top.id && m.dev != top.Dev { // the number of the mount has gone to another
			top.id = -1
		}
	}
	clean, waits := 0, time.Now().Add(passing)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		left, err := t.end(top, time.Now().Before(waits))
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
			return fmt.Errorf("%d processes in the container do not end: %w", left, ctx.Err())
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
		if !ours && !others || !p.rootedIn(top.Dev) && (!ours || !p.holds(top.id)) {
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
	if p.pid == t.pid || !t.has(p) || !p.rootedIn(top.Dev) && !p.holds(top.id) {
		return nil
	}
	if err := unix.PidfdSendSignal(pinned, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return wrap("ending process "+strconv.Itoa(p.pid), err)
	}
	return nil
}
