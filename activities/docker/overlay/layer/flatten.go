package layer

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Flatten writes the content of layers, the oldest first, into the container's own filesystem and
// syncs it. The layers must not change. If interrupted, start again. Paths are resolved through
// open folders from the container's root, so no link leads out of it. Paths for which skip returns
// true stay as they are there, with what is below them. Names with MarkPrefix, and those that are
// too long there, are left out: steps have ignored them.
func (b Base) Flatten(dir string, layers []int, skip func(path string) bool) error {
	root, err := b.open()
	if err != nil {
		return err
	}
	defer root.Close()
	for _, n := range layers {
		if err := copyLayer(Content(dir, n), root, skip); err != nil {
			return fmt.Errorf("writing layer %d into the container: %w", n, err)
		}
	}
	return wrap("writing layers into the container", root.SyncFilesystem())
}

func copyLayer(from string, root filetree.Node, skip func(path string) bool) error {
	layer, err := filetree.Open(unix.AT_FDCWD, from)
	if err != nil {
		return err
	}
	defer layer.Close()
	longest, err := longestName(root.FD)
	if err != nil {
		return err
	}
	c := &filetree.Copier{Attributes: withoutMarks, Spare: isMark}
	c.Prepare = func(from filetree.Node, in int, name string) (done bool, err error) {
		// a storage driver may refuse such a name
		if skip(c.At()) || strings.HasPrefix(name, MarkPrefix) || len(name) > longest {
			return true, nil
		}
		return obeyMarks(from, in, name)
	}
	defer c.Close()
	return c.CopyFolder(layer, root)
}

// obeyMarks applies whiteouts and opaque marks, and removes what an entry of a layer replaces.
func obeyMarks(from filetree.Node, in int, name string) (done bool, err error) {
	if isWhiteout(from) {
		return true, removeTree(in, name)
	}
	if from.Kind() != unix.S_IFDIR {
		return false, removeTree(in, name)
	}
	was, err := filetree.Open(in, name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer was.Close()
	has, err := from.Attributes()
	if err != nil {
		return false, err
	}
	if was.Kind() == unix.S_IFDIR && string(has[opaque]) != "y" {
		return false, nil
	}
	return false, removeTree(in, name)
}

// removeTree removes a name in an open folder, and all below it.
func removeTree(in int, name string) error {
	err := unix.Unlinkat(in, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) {
		return fmt.Errorf("removing %s: %w", name, err)
	}
	fd, err := unix.Openat(in, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("removing %s: %w", name, err)
	}
	folder := os.NewFile(uintptr(fd), name)
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := removeTree(fd, n); err != nil {
			return err
		}
	}
	return wrap("removing "+name, unix.Unlinkat(in, name, unix.AT_REMOVEDIR))
}
