package stack

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
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
	to, err := openItem(unix.AT_FDCWD, Content(dir, into))
	if err != nil {
		return err
	}
	defer to.close()
	for _, n := range layers {
		from, err := openItem(unix.AT_FDCWD, Content(dir, n))
		if err != nil {
			return err
		}
		err = merge(from, to)
		from.close()
		if err != nil {
			return fmt.Errorf("merging layer %d: %w", n, err)
		}
	}
	folder, err := to.open()
	if err != nil {
		return err
	}
	defer folder.Close()
	return unix.Syncfs(int(folder.Fd()))
}

// merge puts what is in a folder over what is in another, which becomes like it.
func merge(from, to item) error {
	into, err := to.open()
	if err != nil {
		return err
	}
	defer into.Close()
	err = from.each(func(name string, sub item) error {
		if sub.kind() == unix.S_IFDIR {
			err = mergeFolder(sub, int(into.Fd()), name)
		} else if err = remove(int(into.Fd()), name); err == nil {
			err = sub.linkTo(int(into.Fd()), name)
		}
		return wrap(name, err)
	})
	if err != nil {
		return err
	}
	has, err := from.attributes()
	if err != nil {
		return err
	}
	return describe(from, to, has)
}

func mergeFolder(from item, in int, name string) error {
	has, err := from.attributes()
	if err != nil {
		return err
	}
	was, err := openItem(in, name)
	there := err == nil
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if there {
		defer was.close()
		if was.kind() == unix.S_IFDIR && string(has[opaque]) != "y" {
			return merge(from, was)
		}
		if err := remove(in, name); err != nil {
			return err
		}
	}
	if err := unix.Mkdirat(in, name, 0o700); err != nil {
		return err
	}
	to, err := openItem(in, name)
	if err != nil {
		return err
	}
	defer to.close()
	if err := merge(from, to); err != nil || !there {
		return err
	}
	// What lies below shows no more than it did through what was here.
	return unix.Setxattr(to.path(), opaque, []byte("y"), 0)
}
