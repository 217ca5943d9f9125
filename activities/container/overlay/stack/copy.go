package stack

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The marks that an overlay leaves on folders of an upper layer.
const (
	overlayPrefix = "trusted.overlay."
	opaque        = overlayPrefix + "opaque"
	// toldLate is a mark of our own, which no overlay shows either.
	toldLate = overlayPrefix + "unwind.late"
)

// Copy makes to a copy of the layer content from, exact in all that an overlay shows of it, and on the disk when it
// returns. What stood at to is replaced. Others may be writing to from: then the copy is of no one moment.
func Copy(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	source, err := openItem(unix.AT_FDCWD, from)
	if err != nil {
		return err
	}
	defer source.close()
	target, err := openItem(unix.AT_FDCWD, to)
	if err != nil {
		return err
	}
	defer target.close()
	c := &copier{marks: true, first: map[uint64]item{}}
	defer c.close()
	if err := c.folder(source, target); err != nil {
		return fmt.Errorf("copying layer %s: %w", filepath.Dir(from), err)
	}
	folder, err := target.open()
	if err != nil {
		return err
	}
	defer folder.Close()
	return unix.Syncfs(int(folder.Fd()))
}

// copier copies what a layer holds.
type copier struct {
	// marks says that those of an overlay are copied too; else they are obeyed.
	marks bool
	// late says that the times that are copied may have been told late: see item.tellsTimesLate.
	late bool
	// first is where a file that has several names was copied to.
	first map[uint64]item
}

func (c *copier) close() {
	for _, it := range c.first {
		it.close()
	}
}

// like makes to like from in all but content.
func (c *copier) like(from, to item) error {
	has, err := from.attributes()
	if err != nil {
		return err
	}
	if !c.marks {
		has = own(has)
	}
	if c.late {
		has[toldLate] = []byte("y")
	}
	return describe(from, to, has)
}

// folder copies all that is in a folder, and then what the folder itself is like.
func (c *copier) folder(from, to item) error {
	into, err := to.open()
	if err != nil {
		return err
	}
	defer into.Close()
	err = from.each(func(name string, sub item) error {
		if err := c.one(sub, int(into.Fd()), name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.like(from, to)
}

// one copies an item to a name in an open folder.
func (c *copier) one(from item, in int, name string) error {
	if !c.marks {
		if from.gone() {
			return remove(in, name)
		}
		if err := c.clear(from, in, name); err != nil {
			return err
		}
	}
	if first, ok := c.first[from.st.Ino]; ok && from.kind() != unix.S_IFDIR {
		return first.linkTo(in, name)
	}
	if err := create(from, in, name); err != nil {
		return err
	}
	to, err := openItem(in, name)
	if err != nil {
		return err
	}
	if to.kind() != from.kind() {
		to.close()
		return errors.New("another has taken its name")
	}
	if from.st.Nlink > 1 && from.kind() != unix.S_IFDIR {
		c.first[from.st.Ino] = to
	} else {
		defer to.close()
	}
	if from.kind() == unix.S_IFDIR {
		return c.folder(from, to)
	}
	return c.like(from, to)
}

// clear removes what has to go before an item is put under its name.
func (c *copier) clear(from item, in int, name string) error {
	if from.kind() != unix.S_IFDIR {
		return remove(in, name)
	}
	was, err := openItem(in, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer was.close()
	has, err := from.attributes()
	if err != nil {
		return err
	}
	if was.kind() == unix.S_IFDIR && string(has[opaque]) != "y" {
		return nil
	}
	return remove(in, name)
}

// create makes an item of the same kind, with the same content; for a folder that may be there already.
func create(from item, in int, name string) error {
	switch from.kind() {
	case unix.S_IFDIR:
		if err := unix.Mkdirat(in, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		return nil
	case unix.S_IFREG:
		return content(from, in, name)
	case unix.S_IFLNK:
		target, err := from.link()
		if err != nil {
			return err
		}
		return unix.Symlinkat(target, in, name)
	}
	return unix.Mknodat(in, name, from.st.Mode, int(from.st.Rdev)) //nolint:gosec // a device number
}

// content copies a file's bytes and leaves its holes.
func content(from item, into int, name string) (err error) {
	in, err := from.open()
	if err != nil {
		return err
	}
	defer in.Close()
	fd, err := unix.Openat(into, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), name)
	defer func() { err = errors.Join(err, out.Close()) }()
	size := from.st.Size
	if err := out.Truncate(size); err != nil {
		return err
	}
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing but a hole
			return nil
		}
		if err != nil {
			return err
		}
		hole, err := unix.Seek(int(in.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := in.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(out, in, hole-data); err != nil {
			return err
		}
		at = hole
	}
	return nil
}
