package stack

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// item is something in a filesystem that others may be changing: a handle on it, not a path, so that no link which is put
// in its place leads elsewhere, and no pipe holds anybody up.
type item struct {
	fd int
	st unix.Stat_t
}

// openItem opens what a folder has under a name, and follows nothing.
func openItem(folder int, name string) (it item, err error) {
	it.fd, err = unix.Openat(folder, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return it, &os.PathError{Op: "open", Path: name, Err: err}
	}
	if it, err = itemOf(it.fd); err != nil {
		return it, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return it, nil
}

// itemOf is the item that fd is a handle on.
func itemOf(fd int) (it item, err error) {
	it.fd = fd
	if err := unix.Fstat(fd, &it.st); err != nil {
		unix.Close(fd)
		return it, err
	}
	return it, nil
}

func (it item) close() { unix.Close(it.fd) }

func (it item) kind() uint32 { return it.st.Mode & unix.S_IFMT }

// gone says that it is an overlay's mark for what is there no more.
func (it item) gone() bool { return it.kind() == unix.S_IFCHR && it.st.Rdev == 0 }

// path leads to the item itself, whatever has its name now.
func (it item) path() string { return "/proc/self/fd/" + strconv.Itoa(it.fd) }

// open opens the content of a file or folder.
func (it item) open() (*os.File, error) {
	return os.OpenFile(it.path(), os.O_RDONLY|unix.O_NOATIME, 0)
}

// each calls f for everything in a folder, in no order.
func (it item) each(f func(name string, sub item) error) error {
	folder, err := it.open()
	if err != nil {
		return err
	}
	defer folder.Close()
	names, err := folder.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, n := range names {
		sub, err := openItem(int(folder.Fd()), n.Name())
		if err != nil {
			return err
		}
		err = f(n.Name(), sub)
		sub.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (it item) link() (string, error) {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(it.fd, "", target)
	return string(target[:max(n, 0)]), err
}

// linkTo gives the item one more name. By its path: kernels before 6.10 want CAP_DAC_READ_SEARCH for it by its handle.
func (it item) linkTo(in int, name string) error {
	return unix.Linkat(unix.AT_FDCWD, it.path(), in, name, unix.AT_SYMLINK_FOLLOW)
}

func isMark(attribute string) bool { return strings.HasPrefix(attribute, overlayPrefix) }

// attributes are the extended ones: access lists and capabilities are among them.
func (it item) attributes() (map[string][]byte, error) {
	size, err := unix.Listxattr(it.path(), nil)
	if errors.Is(err, unix.ENOTSUP) || err == nil && size == 0 {
		return nil, nil
	}
	names := make([]byte, size)
	if err == nil {
		size, err = unix.Listxattr(it.path(), names)
	}
	if err != nil {
		return nil, fmt.Errorf("attributes: %w", err)
	}
	all := map[string][]byte{}
	for _, name := range strings.FieldsFunc(string(names[:size]), func(r rune) bool { return r == 0 }) {
		value := make([]byte, 64<<10)
		n, err := unix.Getxattr(it.path(), name, value)
		if err != nil {
			return nil, fmt.Errorf("attribute %s: %w", name, err)
		}
		all[name] = value[:n]
	}
	return all, nil
}

// own are those attributes that are no marks of an overlay.
func own(has map[string][]byte) map[string][]byte {
	mine := map[string][]byte{}
	for name, value := range has {
		if !isMark(name) {
			mine[name] = value
		}
	}
	return mine
}

// describe makes the item to like the item from in all but content. Attributes that it has and from has not go.
func describe(from, to item, wanted map[string][]byte) error {
	if err := unix.Fchownat(to.fd, "", int(from.st.Uid), int(from.st.Gid), unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("chown: %w", err)
	}
	if from.kind() != unix.S_IFLNK {
		if err := unix.Chmod(to.path(), from.st.Mode&0o7777); err != nil {
			return fmt.Errorf("chmod: %w", err)
		}
	}
	has, err := to.attributes()
	if err != nil {
		return err
	}
	for name := range has {
		if _, ok := wanted[name]; !ok && !isMark(name) {
			if err := unix.Removexattr(to.path(), name); err != nil {
				return fmt.Errorf("attribute %s: %w", name, err)
			}
		}
	}
	for name, value := range wanted {
		if err := unix.Setxattr(to.path(), name, value, 0); err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	times := []unix.Timespec{from.st.Atim, from.st.Mtim}
	if err := unix.UtimesNanoAt(to.fd, "", times, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("times: %w", err)
	}
	return nil
}
