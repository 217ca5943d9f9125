package stack

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const moveMountBeneath = 0x200 // MOVE_MOUNT_BENEATH, since Linux 6.5

// Probe tries in a mount namespace of its own whether overlays with layers in dir can be put over one another on this
// host. An error that is Unfit says what is missing.
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
			return unfit("the engine lets no container make mount namespaces (%v); allow SYS_ADMIN for the helper container", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return unfit("the engine lets no container mount (%v); allow SYS_ADMIN for the helper container", err)
		}
		if err := unix.Chdir(at); err != nil {
			return wrap(at, err)
		}
		var over [2]int
		for i, lower := range [][]int{nil, {1}} {
			if over[i], err = overlay("probe", lower, i+1, 0); IsFull(err) {
				return err
			} else if err != nil {
				return unfit("this kernel, or the filesystem of %s, cannot make overlays that grow (they need Linux 6.8): %v", dir, err)
			}
			defer unix.Close(over[i])
		}
		if err := unix.MoveMount(over[0], "", unix.AT_FDCWD, "r", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return unfit("an overlay cannot be mounted here: %v", err)
		}
		err := unix.MoveMount(over[1], "", over[0], "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH|moveMountBeneath)
		if err != nil {
			return unfit("this kernel cannot mount beneath a mount (it needs Linux 6.5): %v", err)
		}
		return nil
	})
}

// Try makes an overlay of a new layer in dir over the container's own root, and lets go of it. It says as an Unfit that this
// root bears none: an overlay over an overlay does not, nor do some filesystems.
func (t *Target) Try(dir string) error {
	if err := MakeLayer(dir, 1); err != nil {
		return err
	}
	return onThread(func() error {
		var fds handles
		defer fds.close()
		layers := fds.tree(unix.AT_FDCWD, dir, 0)
		if err := t.enter(); err != nil {
			return err
		}
		base := fds.tree(t.root, "", unix.AT_EMPTY_PATH)
		if fds.err != nil {
			return fds.err
		}
		if err := apart(layers, base); err != nil {
			return err
		}
		over, err := overlay("try", nil, 1, 0)
		if err != nil && !IsFull(err) {
			return unfit("the container's own root bears no overlay (%v); have the engine keep its data on a filesystem that is no overlay itself", err)
		}
		fds.add(over, "", err)
		return err
	})
}

// Fit says as an Unfit what keeps overlays of ours from standing on this container.
func (t *Target) Fit(s Survey) error {
	ids, err := t.read("uid_map")
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
		case m.shared: // what is taken off a copy of it is taken off there
			return unfit("mounts at %s in the container propagate to other namespaces; mount them without shared propagation", m.at)
		case m.id == s.baseID && m.dev != s.Base:
			return unfit("the container's filesystem numbers its folders with another device than its mount (btrfs does); have the engine keep its data on another filesystem")
		}
	}
	return s.fitMounts()
}

// fitMounts looks for the engine's own filesystems that the top needs.
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

// idle are the programs that wait and touch no file while they do: what they have as their root matters to nobody.
func idle(argv []string) bool {
	switch filepath.Base(argv[0]) {
	case "sleep", "pause":
		return true
	case "tail":
		return len(argv) == 3 && argv[1] == "-f" && argv[2] == "/dev/null"
	case "tini", "docker-init", "dumb-init", "catatonit":
		return true
	}
	return false
}

// Quiet says as an Unfit which process of the container has its own root and may be using its files: it would not see what
// is written over that root, and what it writes itself would lie below. It counts those that stand in the top or hold
// something of it open.
func (t *Target) Quiet(s Survey) (users int, err error) {
	var top Top
	if n := len(s.Tops); n > 0 {
		top = s.Tops[n-1]
	}
	all, err := t.members()
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		at := p.at(s.Base, top)
		if at.inTop {
			users++
		}
		if !at.inBase {
			continue
		}
		if err := p.waits(s.baseID); err != nil {
			return 0, err
		}
	}
	return users, nil
}

// waits says as an Unfit that the process may use the files of the mount that it has as its root.
func (p process) waits(mount int) error {
	line, err := os.ReadFile(p.dir + "/cmdline")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && len(line) == 0 { // it has ended
		return nil
	}
	if err != nil {
		return err
	}
	argv := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	if !idle(argv) {
		return unfit("process %q stands on the container's own root and may use its files; have the container only wait (sleep infinity) and start that in it", short(strings.Join(argv, " ")))
	}
	if at := p.writes(mount); at != "" {
		return unfit("process %q has %s open for writing; have it write to a volume", short(argv[0]), at)
	}
	return nil
}

func short(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + " ..."
	}
	return s
}

// writes is a file of a mount that the process has open for writing.
func (p process) writes(mount int) string {
	fds, err := os.ReadDir(p.dir + "/fdinfo")
	if err != nil {
		return "" // it has ended
	}
	for _, fd := range fds {
		info, err := os.ReadFile(p.dir + "/fdinfo/" + fd.Name())
		if err != nil {
			continue
		}
		var at int64
		var flags uint32
		var on int
		if _, err := fmt.Sscanf(string(info), "pos:\t%d\nflags:\t%o\nmnt_id:\t%d\n", &at, &flags, &on); err != nil || on != mount || flags&unix.O_ACCMODE == unix.O_RDONLY {
			continue
		}
		if name, err := os.Readlink(p.dir + "/fd/" + fd.Name()); err == nil {
			return name
		}
	}
	return ""
}
