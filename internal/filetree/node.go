// Package filetree reads and copies files, folders, links and devices with all their metadata:
// owner, mode, times, extended attributes (including access lists and capabilities), hard links and
// holes. It follows no symbolic link.
//
// The checks of examples/found and activities/docker/overlay/boxtest read trees with code of
// their own, on purpose: they judge what this package has restored.
package filetree

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/pkg/xattr"
	"golang.org/x/sys/unix"
)

// Node is a handle on something in a filesystem that others may be changing. Unlike a path, it
// cannot be redirected by a link put in its place, and opening a pipe does not block.
type Node struct {
	// FD is a descriptor made with O_PATH.
	FD int
	// Stat is the node's state when it was opened.
	Stat unix.Stat_t
}

// Open opens a name in a folder without following links.
func Open(folder int, name string) (Node, error) {
	fd, err := unix.Openat(folder, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Node{}, &os.PathError{Op: "open", Path: name, Err: err}
	}
	n, err := NodeOf(fd)
	if err != nil {
		return n, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return n, nil
}

// NodeOf makes a node of an O_PATH descriptor, which it then owns.
func NodeOf(fd int) (Node, error) {
	n := Node{FD: fd}
	if err := unix.Fstat(fd, &n.Stat); err != nil {
		unix.Close(fd)
		return Node{}, err
	}
	return n, nil
}

// Close closes the handle.
func (n Node) Close() { unix.Close(n.FD) }

// Kind is one of unix.S_IFREG, unix.S_IFDIR and so on.
func (n Node) Kind() uint32 { return n.Stat.Mode & unix.S_IFMT }

// Path leads to the node itself, whatever has its name now.
func (n Node) Path() string { return "/proc/self/fd/" + strconv.Itoa(n.FD) }

// OpenContent opens a file or folder for reading, without changing its access time if this process
// may.
func (n Node) OpenContent() (*os.File, error) {
	f, err := os.OpenFile(n.Path(), os.O_RDONLY|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) { // owned by somebody else
		return os.Open(n.Path())
	}
	return f, err
}

// Each calls f for everything in a folder, ordered by name. The nodes are closed after the call.
func (n Node) Each(f func(name string, sub Node) error) error {
	return n.EachBut(func(string, int) (bool, error) { return false, nil }, f)
}

// EachBut is Each without what isKnown says needs no look, given its name in the open folder: it is
// not opened.
func (n Node) EachBut(isKnown func(name string, folder int) (bool, error),
	f func(name string, sub Node) error) error {
	folder, err := n.OpenContent()
	if err != nil {
		return err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	fd := int(folder.Fd())
	for _, name := range names {
		if known, err := isKnown(name, fd); known || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		sub, err := Open(fd, name)
		if err != nil {
			return err
		}
		err = f(name, sub)
		sub.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// ReadLink returns the target of a symbolic link.
func (n Node) ReadLink() (string, error) {
	target := make([]byte, unix.PathMax)
	size, err := unix.Readlinkat(n.FD, "", target)
	return string(target[:max(size, 0)]), err
}

// Digest is the SHA-256 of a file's content, in hexadecimal.
func (n Node) Digest() (string, error) {
	f, err := n.OpenContent()
	if err != nil {
		return "", err
	}
	defer f.Close()
	return DigestOf(f)
}

// buffers are reused: a new one for each small file would cost more than reading it.
var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// DigestOf is the SHA-256 of all that r reads, in hexadecimal.
func DigestOf(r io.Reader) (string, error) {
	buffer, _ := buffers.Get().(*[64 << 10]byte)
	defer buffers.Put(buffer)
	sum := sha256.New()
	// a file's own WriteTo takes another buffer
	if _, err := io.CopyBuffer(sum, struct{ io.Reader }{r}, buffer[:]); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// LinkTo gives the node another name. It links by path: kernels before 6.10 want
// CAP_DAC_READ_SEARCH to link by descriptor.
func (n Node) LinkTo(folder int, name string) error {
	return unix.Linkat(unix.AT_FDCWD, n.Path(), folder, name, unix.AT_SYMLINK_FOLLOW)
}

// Attributes reads the extended attributes; none if the filesystem does not support them.
func (n Node) Attributes() (map[string][]byte, error) {
	names, err := xattr.List(n.Path())
	if errors.Is(err, unix.ENOTSUP) || err == nil && len(names) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := make(map[string][]byte, len(names))
	for _, name := range names {
		value, err := xattr.Get(n.Path(), name)
		if errors.Is(err, xattr.ENOATTR) { // it has just been removed
			continue
		}
		if err != nil {
			return nil, err
		}
		all[name] = value
	}
	return all, nil
}

// SetAttribute sets an extended attribute.
func (n Node) SetAttribute(name string, value []byte) error { return xattr.Set(n.Path(), name, value) }
