// Package confine starts programs that can neither read nor change what a worker keeps to itself:
// the folders and files that are hidden from them, and the memory and the environment of every
// process that is not confined with them. Their children are confined like them. It needs Linux's
// Landlock, and no privilege.
//
// Landlock allows, and forbids nothing below what it has allowed. So everything is allowed except
// what is hidden, name by name in each folder that leads there: in these folders a confined program
// makes nothing new. Other ways around are closed to root as well: block devices, kernel memory,
// kernel modules. Sockets are not: whoever may use a container engine's gets around.
//
// A library exists (go-landlock), but confines the whole process; here only the thread that starts
// the program is.
package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Limits say what a program can do to files.
type Limits struct {
	// Hidden are paths that it can neither read nor change, with all below them.
	Hidden []string `json:"hidden,omitempty"`
	// Open are paths that it can read and change, even below a hidden one.
	Open []string `json:"open,omitempty"`
	// Readable are paths that it can read, even below a hidden one.
	Readable []string `json:"readable,omitempty"`
	// ReadOnly: it can change nothing but Open.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// Available is nil where programs can be confined, or says why they cannot.
func Available() error {
	_, err := version()
	return err
}

// version is Landlock's version of this kernel.
func version() (int, error) {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("this kernel has no Landlock, or it is switched off: %w", errno)
	}
	return int(v), nil
}

// Start starts a command within the limits; where programs cannot be confined, without them. The
// thread that starts it ends, and with it whatever that thread had started before with a parent
// death signal: a process that does so starts nothing by this.
func (l Limits) Start(c *exec.Cmd) error {
	if Available() != nil {
		return c.Start()
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is confined, and ends with this function
		if err := l.confineThread(); err != nil {
			failed <- err
			return
		}
		failed <- c.Start() // who starts a process makes it like its own thread
	}()
	return <-failed
}

// Exec makes this process another program, within the limits.
func (l Limits) Exec(program string, args, env []string) error {
	if Available() == nil {
		runtime.LockOSThread() // it is this thread that the program takes over
		if err := l.confineThread(); err != nil {
			return err
		}
	}
	return syscall.Exec(program, args, env) //nolint:gosec // the caller's own program
}

const (
	readFile = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE
	read     = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
	// useFile is what the rules for a file can allow.
	useFile = readFile | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// nodes are devices: whoever makes one reads a disk.
	nodes = unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR
)

// handled is what Landlock of a version decides on.
func handled(version int) uint64 {
	all := uint64(unix.LANDLOCK_ACCESS_FS_REFER - 1)
	for since, right := range map[int]uint64{
		2: unix.LANDLOCK_ACCESS_FS_REFER, 3: unix.LANDLOCK_ACCESS_FS_TRUNCATE, 5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV,
	} {
		if version >= since {
			all |= right
		}
	}
	return all
}

// confineThread confines the calling thread, and what it starts, for ever.
func (l Limits) confineThread() error {
	v, err := version()
	if err != nil {
		return err
	}
	// With these root reads the memory of every process, or the kernel's, whatever Landlock says: that
	// of a process that it may not trace is open to CAP_PERFMON, which CAP_SYS_ADMIN includes.
	for _, capability := range []uintptr{
		unix.CAP_SYS_ADMIN, unix.CAP_PERFMON, unix.CAP_BPF, unix.CAP_SYS_PTRACE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_MODULE,
	} {
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0) // a process that may not drop it has none
	}
	attr := struct{ fs uint64 }{handled(v)}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("Landlock: %w", errno) //nolint:staticcheck // a name
	}
	defer unix.Close(int(set))
	r := ruleset{fd: int(set), all: attr.fs, change: attr.fs &^ nodes}
	if l.ReadOnly {
		r.change = read
	}
	if err := r.allow(l); err != nil {
		return err
	}
	restrict := func() error {
		if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
			return errno
		}
		return nil
	}
	err = restrict()
	if errors.Is(err, unix.EPERM) { // without privileges, only who gives up setuid programs may
		if err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err == nil {
			err = restrict()
		}
	}
	if err != nil {
		return fmt.Errorf("Landlock: %w", err) //nolint:staticcheck // a name
	}
	return nil
}

// ruleset is a set of Landlock's rules in the making.
type ruleset struct {
	fd int
	// all is what is forbidden unless a rule allows it; change is what is allowed of what is not
	// hidden.
	all, change uint64
	hidden      []string
}

func (r *ruleset) allow(l Limits) error {
	for _, path := range l.Hidden {
		r.hidden = append(r.hidden, filepath.Clean(path))
		if target, err := filepath.EvalSymlinks(path); err == nil {
			r.hidden = append(r.hidden, target)
		}
	}
	// Names are no secret, and many programs list a folder above.
	if err := r.add("/", unix.LANDLOCK_ACCESS_FS_READ_DIR); err != nil {
		return err
	}
	if err := r.allowBut("/"); err != nil {
		return err
	}
	for _, path := range l.Open {
		if err := r.add(path, r.all&^nodes); err != nil {
			return err
		}
	}
	for _, path := range l.Readable {
		if err := r.add(path, read); err != nil {
			return err
		}
	}
	return nil
}

// allowBut allows a folder with all below it but what is hidden.
func (r *ruleset) allowBut(path string) error {
	switch {
	case slices.ContainsFunc(r.hidden, func(h string) bool { return isBelow(h, path) }):
		return nil
	case path == "/proc" || path == "/sys":
		return r.add(path, read) // through some of their files root runs programs outside of all limits
	case path == "/dev/shm" || path == "/dev/pts" || path == "/dev/mqueue":
		return r.add(path, r.all&^nodes)
	case path != "/" && !isBelow("/dev", path) &&
		!slices.ContainsFunc(r.hidden, func(h string) bool { return isBelow(path, h) }):
		return r.add(path, r.change)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return ignoreUnreadable(err)
	}
	for _, e := range entries {
		at := filepath.Join(path, e.Name())
		var err error
		switch {
		case e.Type()&fs.ModeSymlink != 0: // what it leads to has rules of its own
		case e.IsDir():
			err = r.allowBut(at)
		case slices.Contains(r.hidden, at):
		case !isBelow("/dev", at):
			err = r.add(at, r.change)
		case e.Type()&fs.ModeCharDevice != 0 && !slices.Contains([]string{"mem", "kmem", "port", "kmsg"}, e.Name()):
			err = r.add(at, r.all)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ignoreUnreadable lets pass a path that this process cannot reach: nor can what it starts. A path
// may also have gone meanwhile.
func ignoreUnreadable(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// add allows rights on a path and all below it, as far as they are decided on, and mean something
// for it.
func (r *ruleset) add(path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return ignoreUnreadable(err)
	}
	defer unix.Close(fd)
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= useFile
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights & r.all, Parent_fd: int32(fd)} //nolint:gosec // a descriptor
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 && errno != unix.EBADFD { // a descriptor of what is no filesystem's, such as a pipe
		return fmt.Errorf("Landlock: %s: %w", path, errno) //nolint:staticcheck // a name
	}
	return nil
}

func isBelow(root, path string) bool {
	return path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
}
