package stack

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"
)

// Held is something that a folder holds. It is told as a layer's content is.
type Held struct {
	Change
	// Inode tells which names are of one file: it is 0 where a file has no other.
	Inode uint64
}

// List lists all that a folder holds, itself first as "/", and refuses one on which something else is mounted.
func List(at string) (all []Held, err error) {
	root, err := openItem(unix.AT_FDCWD, at)
	if err != nil {
		return nil, err
	}
	defer root.close()
	return all, held(root, root.st.Dev, "/", &all)
}

func held(it item, dev uint64, at string, all *[]Held) error {
	if it.st.Dev != dev {
		return unfit("something else is mounted at %s", at)
	}
	now, err := look(it, at)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	h := Held{Change: now.Change}
	if it.kind() == unix.S_IFDIR {
		*all = append(*all, h)
		return it.each(func(name string, sub item) error { return held(sub, dev, path.Join(at, name), all) })
	}
	if it.st.Nlink > 1 {
		h.Inode = it.st.Ino
	}
	*all = append(*all, h)
	return nil
}

// Clone makes a copy of one thing, exact in all but its inode, under a new name in an open folder; of a folder without what
// is in it.
func Clone(from string, in int, name string) error {
	source, err := openItem(unix.AT_FDCWD, from)
	if err != nil {
		return err
	}
	defer source.close()
	if err := create(source, in, name); err != nil {
		return err
	}
	to, err := openItem(in, name)
	if err != nil {
		return err
	}
	defer to.close()
	return alike(source, to)
}

// Alike makes a folder of an open folder like another in all but what is in it.
func Alike(from string, in int, name string) error {
	source, err := openItem(unix.AT_FDCWD, from)
	if err != nil {
		return err
	}
	defer source.close()
	to, err := openItem(in, name)
	if err != nil {
		return err
	}
	defer to.close()
	if source.kind() != unix.S_IFDIR || to.kind() != unix.S_IFDIR {
		return errors.New("another has taken its name")
	}
	return alike(source, to)
}

func alike(from, to item) error {
	has, err := from.attributes()
	if err != nil {
		return err
	}
	return describe(from, to, has)
}
