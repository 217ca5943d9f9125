package layer

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Merge makes layer into the sum of layers, the oldest first. They must not change any more: files are not copied but
// hard-linked, so their link counts grow.
func Merge(dir string, layers []int, into int) error {
	if err := os.RemoveAll(Content(dir, into)); err != nil {
		return err
	}
	if err := Make(dir, into); err != nil {
		return err
	}
	to, err := open(dir, into)
	if err != nil {
		return err
	}
	defer to.Close()
	for _, n := range layers {
		from, err := open(dir, n)
		if err != nil {
			return err
		}
		err = mergeContent(from, to)
		from.Close()
		if err != nil {
			return fmt.Errorf("merging layer %d: %w", n, err)
		}
	}
	return to.SyncFilesystem()
}

// mergeContent applies the content and metadata of a folder to another.
func mergeContent(from, to filetree.Node) error {
	into, err := to.OpenContent()
	if err != nil {
		return err
	}
	defer into.Close()
	err = from.Each(func(name string, sub filetree.Node) error {
		if sub.Kind() == unix.S_IFDIR {
			err = mergeFolder(sub, int(into.Fd()), name)
		} else if err = removeTree(int(into.Fd()), name); err == nil {
			err = sub.LinkTo(int(into.Fd()), name)
		}
		return wrap(name, err)
	})
	if err != nil {
		return err
	}
	return copyMetadata(from, to)
}

func mergeFolder(from filetree.Node, in int, name string) error {
	has, err := from.Attributes()
	if err != nil {
		return err
	}
	was, err := filetree.Open(in, name)
	there := err == nil
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if there {
		defer was.Close()
		if was.Kind() == unix.S_IFDIR && string(has[opaque]) != "y" {
			return mergeContent(from, was)
		}
		if err := removeTree(in, name); err != nil {
			return err
		}
	}
	if err := unix.Mkdirat(in, name, 0o700); err != nil {
		return err
	}
	to, err := filetree.Open(in, name)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := mergeContent(from, to); err != nil || !there {
		return err
	}
	// The new folder must go on hiding what the removed one hid.
	return to.SetAttribute(opaque, []byte("y"))
}
