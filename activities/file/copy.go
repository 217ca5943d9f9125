package file

import (
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// copyTree copies a tree of the store to another path of it, with owners, modes, times and extended attributes. What may
// not be copied (another's label) is not an error here: whoever copies compares.
func (r *root) copyTree(t tree, from, to string) error {
	for _, n := range t.Nodes {
		if err := r.copyNode(n, filepath.Join(from, n.Path), filepath.Join(to, n.Path)); err != nil {
			return err
		}
	}
	// A folder last, when all is in it: its time, and what it would hand on to new files.
	for _, n := range slices.Backward(t.Nodes) {
		if n.Kind != kindFolder {
			continue
		}
		was, err := r.store.Stat(filepath.Join(from, n.Path))
		if err != nil {
			return err
		}
		n.Time = was.ModTime().UnixNano()
		if err := r.dress(n, filepath.Join(to, n.Path)); err != nil {
			return err
		}
	}
	return nil
}

func (r *root) copyNode(n node, from, to string) error {
	switch n.Kind {
	case kindFolder:
		return r.store.Mkdir(to, 0o700)
	case kindFile:
		return r.copyFile(n, from, to)
	case kindLink:
		if err := r.store.Symlink(n.Link, to); err != nil {
			return err
		}
	default:
		if err := unix.Mknodat(r.at(), to, n.Mode, int(n.Device)); err != nil { //nolint:gosec // the kernel's own number
			return &os.PathError{Op: "mknod", Path: to, Err: err}
		}
	}
	return r.dress(n, to)
}

func (r *root) copyFile(n node, from, to string) error {
	in, err := r.store.OpenFile(from, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := r.store.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	if err := r.dress(n, to); err != nil {
		return err
	}
	return out.Sync()
}

// dress gives a copy, which nobody else can reach yet, all that it has beside its content. The owner first: a change of it
// takes setuid and capabilities away.
func (r *root) dress(n node, at string) error {
	if err := unix.Fchownat(r.at(), at, int(n.UID), int(n.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil && !denied(err) {
		return &os.PathError{Op: "chown", Path: at, Err: err}
	}
	dir, err := r.store.Open(filepath.Dir(at))
	if err != nil {
		return err
	}
	defer dir.Close()
	for name, value := range n.Xattrs {
		raw, err := hex.DecodeString(value)
		if err != nil {
			return err
		}
		err = unix.Lsetxattr(through(dir, filepath.Base(at)), name, raw, 0)
		guarded := strings.HasPrefix(name, "security.") || strings.HasPrefix(name, "trusted.")
		if err != nil && (!guarded || !denied(err)) {
			return fmt.Errorf("%s: extended attribute %s: %w", at, name, err)
		}
	}
	if n.Kind != kindLink {
		if err := unix.Fchmodat(r.at(), at, n.Mode&0o7777, 0); err != nil {
			return &os.PathError{Op: "chmod", Path: at, Err: err}
		}
	}
	stamp := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(n.Time)}
	if err := unix.UtimesNanoAt(r.at(), at, stamp, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "utimes", Path: at, Err: err}
	}
	return nil
}

func denied(err error) bool {
	return err == unix.EPERM || err == unix.EACCES || err == unix.ENOTSUP //nolint:errorlint // the system's own, unwrapped
}
