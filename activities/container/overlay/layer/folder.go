package layer

import (
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// FolderEntry is something in a folder, described like a layer's content.
type FolderEntry struct {
	Change
	// Inode identifies the names of one file; 0 if it has one name.
	Inode uint64
}

// ListFolder lists what a folder holds, itself first as "/". It fails if something else is mounted
// there.
func ListFolder(at string) (all []FolderEntry, err error) {
	root, err := filetree.Open(unix.AT_FDCWD, at)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return all, listFolder(root, root.Stat.Dev, "/", &all)
}

func listFolder(it filetree.Node, dev uint64, at string, all *[]FolderEntry) error {
	if it.Stat.Dev != dev {
		return fmt.Errorf("something else is mounted at %s", at)
	}
	now, err := readNode(it, at)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	h := FolderEntry{Change: now.Change}
	if it.Kind() == unix.S_IFDIR {
		*all = append(*all, h)
		return it.Each(func(name string, sub filetree.Node) error { return listFolder(sub, dev, path.Join(at, name), all) })
	}
	if it.Stat.Nlink > 1 {
		h.Inode = it.Stat.Ino
	}
	*all = append(*all, h)
	return nil
}
