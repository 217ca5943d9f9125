package stack

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
)

const moveMountBeneath = 0x200 // MOVE_MOUNT_BENEATH, since Linux 6.5

// Probe tries, in a mount namespace of its own, whether this host can stack overlays with layers in
// dir. An UnfitError says what is missing.
func Probe(dir string) error {
	if os.Geteuid() != 0 {
		return unfit("the helper does not run as root")
	}
	at, err := os.MkdirTemp(dir, ".probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(at)
	for _, d := range []string{"b", "r", "1/u", "1/w", "2/u", "2/w"} {
		if err := os.MkdirAll(filepath.Join(at, d), 0o700); err != nil {
			return err
		}
	}
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return unfit("the engine lets no container make mount namespaces (%v); allow SYS_ADMIN for the helper container",
				err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return unfit("the engine lets no container mount (%v); allow SYS_ADMIN for the helper container", err)
		}
		if err := unix.Chdir(at); err != nil {
			return wrap(at, err)
		}
		var over [2]int
		for i, lower := range [][]int{nil, {1}} {
			if over[i], err = makeOverlay("probe", lower, i+1, 0); IsFull(err) {
				return err
			} else if err != nil {
				return unfit("this kernel, or the filesystem of %s, cannot make overlays that grow (they need Linux 6.8): %v", dir,
					err)
			}
			defer unix.Close(over[i])
		}
		if err := unix.MoveMount(over[0], "", unix.AT_FDCWD, "r", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return unfit("an overlay cannot be mounted here: %v", err)
		}
		err := unix.MoveMount(over[1], "", over[0], "",
			unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH|moveMountBeneath)
		if err != nil {
			return unfit("this kernel cannot mount beneath a mount (it needs Linux 6.5): %v", err)
		}
		return nil
	})
}

// TryOverlay mounts and drops an overlay of a new layer in dir over the container's own root. It
// returns an UnfitError if that root cannot be a lower layer: an overlay cannot, nor can some
// filesystems.
func (t *Target) TryOverlay(dir string) error {
	if err := layer.Make(dir, 1); err != nil {
		return err
	}
	return onThread(func() error {
		var fds handles
		defer fds.close()
		layers := fds.cloneTree(unix.AT_FDCWD, dir, 0)
		if err := t.enterMountNamespace(); err != nil {
			return err
		}
		base := fds.cloneTree(t.root, "", unix.AT_EMPTY_PATH)
		if fds.err != nil {
			return fds.err
		}
		if err := isolateMounts(layers, base); err != nil {
			return err
		}
		over, err := makeOverlay("try", nil, 1, 0)
		if err != nil && !IsFull(err) {
			return unfit(
				"no overlay can be mounted over the container's own root (%v); move the engine's data to a filesystem that is "+
					"not an overlay itself", err)
		}
		fds.add(over, "", err)
		return err
	})
}

// CheckFit returns an UnfitError if no overlay may be mounted over this container's root.
func (t *Target) CheckFit(s Survey) error {
	ids, err := t.readProc("uid_map")
	if err != nil {
		return err
	}
	if f := bytes.Fields(ids); len(f) != 3 || string(f[0]) != "0" || string(f[1]) != "0" || string(f[2]) != "4294967295" {
		return unfit("the container is in a user namespace; run it with --userns=host")
	}
	if t.outside == "" {
		return unfit("the container shares the host's process namespace; run it without --pid=host")
	}
	for _, m := range s.mounts {
		switch {
		case m.shared: // an unmount in a copy would propagate
			return unfit("mounts at %s in the container propagate to other namespaces; mount them without shared propagation",
				m.at)
		case m.id == s.baseID && m.dev != s.Base:
			return unfit(
				"the container's filesystem numbers its folders with another device than its mount (btrfs does); have the " +
					"engine keep its data on another filesystem")
		}
	}
	if err := t.checkRoot(s); err != nil {
		return err
	}
	return s.fitMounts()
}

// checkRoot returns an UnfitError if the root of the container's first process is not the
// container's, which layers are put over.
func (t *Target) checkRoot(s Survey) error {
	var top unix.Statx_t
	err := onThread(func() error {
		if err := t.enterMountNamespace(); err != nil {
			return err
		}
		return wrap("the container's root", unix.Statx(unix.AT_FDCWD, "/", unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &top))
	})
	if err == nil && int(top.Mnt_id) != s.topID() { //nolint:gosec // a count
		err = unfit(otherRoot)
	}
	return err
}

const otherRoot = "the container's first process has another root than the container (chroot); let it stay in the " +
	"container's"

// fitMounts checks for the engine's own filesystems that the top needs.
func (s Survey) fitMounts() error {
	kinds := map[string]string{}
	for _, m := range s.mounts {
		kinds[m.at] = m.kind
	}
	switch {
	case kinds["/proc"] != "proc":
		return unfit("the container has no /proc of its own; leave it to the engine")
	case kinds["/dev"] != "tmpfs":
		return unfit("the container's /dev is not the engine's; leave it to the engine")
	}
	return nil
}

// isIdleProgram reports whether a program only waits and touches no file, so that its root does not
// matter. A server may have any name, but hardly the arguments too.
func isIdleProgram(argv []string) bool {
	switch filepath.Base(argv[0]) {
	case "sleep":
		return len(argv) > 1 && !slices.ContainsFunc(argv[1:], func(a string) bool { return !isDuration.MatchString(a) })
	case "pause":
		return len(argv) == 1
	case "tail":
		return len(argv) == 3 && argv[1] == "-f" && argv[2] == "/dev/null"
	case "tini", "docker-init", "dumb-init", "catatonit":
		return true
	}
	return false
}

var isDuration = regexp.MustCompile(`^([0-9]+(\.[0-9]*)?[smhd]?|infinity|inf)$`)

// CheckIdle returns an UnfitError if a process of the container has the container's own root and
// may use its files: it would not see what is written to the layers, and its own writes would go
// below them. It counts the processes that use the top.
func (t *Target) CheckIdle(s Survey) (users int, err error) {
	var top Top
	if n := len(s.Tops); n > 0 {
		top = s.Tops[n-1]
	}
	all, err := t.members()
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		at := p.locate(s.Base, top)
		if at.inTop {
			users++
		}
		if !at.inBase {
			continue
		}
		if err := p.checkIdle(s.baseID); err != nil {
			return 0, err
		}
	}
	return users, nil
}

// checkIdle returns an UnfitError if the process may use files of the mount that is its root.
func (p process) checkIdle(mount int) error {
	argv, err := p.arguments()
	if len(argv) == 0 || err != nil {
		return err
	}
	if !isIdleProgram(argv) {
		return unfit(
			"process %q has the container's own root and may use its files; let the container only wait (sleep infinity), "+
				"and start the process inside it", truncate(strings.Join(argv, " ")))
	}
	if p.hasSocket() {
		return unfit(
			"process %q, which is named like one that only waits, has a socket open; let the container only wait (sleep "+
				"infinity), and start the process inside it", truncate(argv[0]))
	}
	if at := p.fileOpenForWriting(mount); at != "" {
		return unfit("process %q has %s open for writing; have it write to a volume", truncate(argv[0]), at)
	}
	return nil
}

// hasSocket reports whether the process has a socket open: it serves something.
func (p process) hasSocket() bool {
	fds, err := os.ReadDir(p.dir + "/fd")
	return err == nil && slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
		to, err := os.Readlink(p.dir + "/fd/" + fd.Name())
		return err == nil && strings.HasPrefix(to, "socket:")
	})
}

// arguments are the process's command line; none if it has exited.
func (p process) arguments() ([]string, error) {
	line, err := os.ReadFile(p.dir + "/cmdline")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && len(line) == 0 {
		return nil, nil
	}
	return strings.Split(strings.TrimRight(string(line), "\x00"), "\x00"), err
}

func truncate(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + " ..."
	}
	return s
}

// fileOpenForWriting returns a file of the mount that the process has open for writing.
func (p process) fileOpenForWriting(mount int) string {
	fds, err := os.ReadDir(p.dir + "/fdinfo")
	if err != nil {
		return "" // it has exited
	}
	for _, fd := range fds {
		info, err := os.ReadFile(p.dir + "/fdinfo/" + fd.Name())
		if err != nil {
			continue
		}
		var at int64
		var flags uint32
		var on int
		if _, err := fmt.Sscanf(string(info), "pos:\t%d\nflags:\t%o\nmnt_id:\t%d\n", &at, &flags, &on); err != nil ||
			on != mount || flags&unix.O_ACCMODE == unix.O_RDONLY {
			continue
		}
		if name, err := os.Readlink(p.dir + "/fd/" + fd.Name()); err == nil {
			return name
		}
	}
	return ""
}
