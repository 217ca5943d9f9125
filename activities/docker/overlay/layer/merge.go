package layer

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Merge makes layer into the sum of layers, the oldest first. They must not change any more. With
// share, files are not copied but hard-linked, so that they show more names than they have in the
// container.
func Merge(dir string, layers []int, into int, share bool) error {
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
		err = merge(from, to, share)
		from.Close()
		if err != nil {
			return fmt.Errorf("merging layer %d: %w", n, err)
		}
	}
	return to.SyncFilesystem()
}

func merge(from, to filetree.Node, share bool) error {
	if share {
		return mergeContent(from, to, filetree.Node.LinkTo)
	}
	var c filetree.Copier
	defer c.Close()
	return mergeContent(from, to, c.Copy)
}

// mergeContent applies the content and metadata of a folder to another. Place gives what is no
// folder another name.
func mergeContent(from, to filetree.Node, place func(sub filetree.Node, folder int, name string) error) error {
	into, err := to.OpenContent()
	if err != nil {
		return err
	}
	defer into.Close()
	err = from.Each(func(name string, sub filetree.Node) error {
		if sub.Kind() == unix.S_IFDIR {
			err = mergeFolder(sub, int(into.Fd()), name, place)
		} else if err = removeTree(int(into.Fd()), name); err == nil {
			err = place(sub, int(into.Fd()), name)
		}
		return wrap(name, err)
	})
	if err != nil {
		return err
	}
	return copyMetadata(from, to)
}

func mergeFolder(from filetree.Node, in int, name string, place func(filetree.Node, int, string) error) error {
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
			return mergeContent(from, was, place)
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
	if err := mergeContent(from, to, place); err != nil || !there {
		return err
	}
	// The new folder must go on hiding what the removed one hid.
	return to.SetAttribute(opaque, []byte("y"))
}
