package stack

import (
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Held is something that a folder holds. It is told as a layer's content is.
type Held struct {
	Change
	// Inode tells which names are of one file: it is 0 where a file has no other.
	Inode uint64
}

// List lists all that a folder holds, itself first as "/", and refuses one on which something else is mounted.
func List(at string) (all []Held, err error) {
	root, err := filetree.Open(unix.AT_FDCWD, at)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return all, held(root, root.Stat.Dev, "/", &all)
}

func held(it filetree.Node, dev uint64, at string, all *[]Held) error {
	if it.Stat.Dev != dev {
		return unfit("something else is mounted at %s", at)
	}
	now, err := look(it, at)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	h := Held{Change: now.Change}
	if it.Kind() == unix.S_IFDIR {
		*all = append(*all, h)
		return it.Each(func(name string, sub filetree.Node) error { return held(sub, dev, path.Join(at, name), all) })
	}
	if it.Stat.Nlink > 1 {
		h.Inode = it.Stat.Ino
	}
	*all = append(*all, h)
	return nil
}
