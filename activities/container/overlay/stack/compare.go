package stack

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Compare says of each change what lies below it, in layers (the oldest first) and in the container's own root: see
// Change.Over and Change.Same. The time of a path that timeless names does not count, nor one that may be told late.
func (t *Target) Compare(dir string, layers []int, changes []Change, timeless func(path string) bool) error {
	below, err := t.opened(dir, layers)
	if err != nil {
		return err
	}
	defer func() {
		for _, it := range below {
			it.Close()
		}
	}()
	for i := range changes {
		if err := changes[i].compare(below, timeless(changes[i].Path)); err != nil {
			return fmt.Errorf("comparing %s: %w", changes[i].Path, err)
		}
	}
	return nil
}

// opened opens the layers, the newest first, and the container's own root as the last.
func (t *Target) opened(dir string, layers []int) (all []filetree.Node, err error) {
	defer func() {
		if err != nil {
			for _, it := range all {
				it.Close()
			}
		}
	}()
	for i := range layers {
		n := layers[len(layers)-1-i]
		it, err := openLayer(dir, n)
		if err != nil {
			return all, fmt.Errorf("reading layer %d: %w", n, err)
		}
		all = append(all, it)
	}
	base, err := filetree.Open(t.root, ".")
	if err != nil {
		return all, wrap("the container's root", err)
	}
	return append(all, base), nil
}

func (c *Change) compare(below []filetree.Node, timeless bool) error {
	was, err := showing(below, c.Path)
	if errors.Is(err, unix.ENOENT) {
		c.Same = c.Kind == KindGone
		return nil
	}
	if err != nil {
		return err
	}
	defer was.Close()
	c.Over = true
	had, err := describedBy(was, c.Path)
	if err != nil {
		return err
	}
	if had.Kind == KindOpaque { // of a layer: it is a folder like any other
		had.Kind = KindFolder
	}
	is := *c
	is.Over, is.Digest = false, ""
	if had.MTime != is.MTime && (timeless || tellsTimesLate(was)) {
		had.MTime = is.MTime
	}
	if c.Same = had == is; c.Same && c.Kind == KindFile {
		content, err := digest(was)
		if err != nil {
			return err
		}
		c.Same = content == c.Digest
	}
	return nil
}

// tellsTimesLate reports whether a node is on a filesystem in user space: of its times a kernel goes on telling what it remembers
// of them, also where they have changed. So has been what was copied from there.
func tellsTimesLate(it filetree.Node) bool {
	if n, err := unix.Getxattr(it.Path(), toldLate, nil); err == nil && n > 0 {
		return true
	}
	var fs unix.Statfs_t
	return unix.Fstatfs(it.FD, &fs) == nil && fs.Type == unix.FUSE_SUPER_MAGIC
}

// showing opens what layers, the newest first, show together at a path: ENOENT for nothing.
func showing(layers []filetree.Node, at string) (filetree.Node, error) {
	for _, layer := range layers {
		it, through, err := walk(layer, strings.Split(strings.TrimPrefix(at, "/"), "/"))
		if err == nil || !through {
			return it, err
		}
	}
	return filetree.Node{}, unix.ENOENT
}

// walk opens what a layer has at a path. Where it has nothing there, through says that what lies below it shows.
func walk(it filetree.Node, names []string) (found filetree.Node, through bool, err error) {
	if len(names) == 0 {
		return it, false, nil
	}
	sub, err := filetree.Open(it.FD, names[0])
	switch {
	case errors.Is(err, unix.ENOENT):
		return filetree.Node{}, true, unix.ENOENT
	case errors.Is(err, unix.ENOTDIR):
		return filetree.Node{}, false, unix.ENOENT
	case err != nil:
		return filetree.Node{}, false, err
	case len(names) == 1 && !isWhiteout(sub):
		return sub, false, nil
	}
	defer sub.Close()
	if isWhiteout(sub) || sub.Kind() != unix.S_IFDIR {
		return filetree.Node{}, false, unix.ENOENT
	}
	has, err := sub.Attributes()
	if err != nil {
		return filetree.Node{}, false, err
	}
	found, through, err = walk(sub, names[1:])
	return found, through && string(has[opaque]) != "y", err
}
