package stack

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Merge makes layer into hold what layers, the oldest first, hold together. Nothing may write to any of them any more:
// files are not copied, the new layer has them under second names (their count of links tells).
func Merge(dir string, layers []int, into int) error {
	if err := os.RemoveAll(Content(dir, into)); err != nil {
		return err
	}
	if err := MakeLayer(dir, into); err != nil {
		return err
	}
	to, err := openLayer(dir, into)
	if err != nil {
		return err
	}
	defer to.Close()
	for _, n := range layers {
		from, err := openLayer(dir, n)
		if err != nil {
			return err
		}
		err = merge(from, to)
		from.Close()
		if err != nil {
			return fmt.Errorf("merging layer %d: %w", n, err)
		}
	}
	return to.SyncFilesystem()
}

// merge puts what is in a folder over what is in another, which becomes like it.
func merge(from, to filetree.Node) error {
	into, err := to.OpenContent()
	if err != nil {
		return err
	}
	defer into.Close()
	err = from.Each(func(name string, sub filetree.Node) error {
		if sub.Kind() == unix.S_IFDIR {
			err = mergeFolder(sub, int(into.Fd()), name)
		} else if err = remove(int(into.Fd()), name); err == nil {
			err = sub.LinkTo(int(into.Fd()), name)
		}
		return wrap(name, err)
	})
	if err != nil {
		return err
	}
	return describe(from, to)
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
			return merge(from, was)
		}
		if err := remove(in, name); err != nil {
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
	if err := merge(from, to); err != nil || !there {
		return err
	}
	// What lies below shows no more than it did through what was here.
	return to.SetAttribute(opaque, []byte("y"))
}
