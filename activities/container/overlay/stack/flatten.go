package stack

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Flatten writes what layers hold, the oldest first, into the container's own filesystem, and returns when it is on the
// disk. Nothing may write to these layers. Cut short, it is done again from the beginning. What the container has there
// is reached through handles from its root on: no link in it leads out.
func (t *Target) Flatten(dir string, layers []int) error {
	root, err := openItem(t.root, ".")
	if err != nil {
		return wrap("the container's root", err)
	}
	defer root.close()
	for _, n := range layers {
		if err := flatten(Content(dir, n), root); err != nil {
			return fmt.Errorf("writing layer %d into the container: %w", n, err)
		}
	}
	folder, err := root.open()
	if err != nil {
		return wrap("the container's root", err)
	}
	defer folder.Close()
	return wrap("writing layers into the container", unix.Syncfs(int(folder.Fd())))
}

func flatten(from string, root item) error {
	layer, err := openItem(unix.AT_FDCWD, from)
	if err != nil {
		return err
	}
	defer layer.close()
	c := &copier{first: map[uint64]item{}}
	defer c.close()
	return c.folder(layer, root)
}

// remove removes a name from an open folder, and all below it.
func remove(in int, name string) error {
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
		if err := remove(fd, n); err != nil {
			return err
		}
	}
	return wrap("removing "+name, unix.Unlinkat(in, name, unix.AT_REMOVEDIR))
}
