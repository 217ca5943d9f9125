package stack

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
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
			it.close()
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
func (t *Target) opened(dir string, layers []int) (all []item, err error) {
	defer func() {
		if err != nil {
			for _, it := range all {
				it.close()
			}
		}
	}()
	for i := range layers {
		n := layers[len(layers)-1-i]
		it, err := openItem(unix.AT_FDCWD, Content(dir, n))
		if err != nil {
			return all, fmt.Errorf("reading layer %d: %w", n, err)
		}
		all = append(all, it)
	}
	base, err := openItem(t.root, ".")
	if err != nil {
		return all, wrap("the container's root", err)
	}
	return append(all, base), nil
}

func (c *Change) compare(below []item, timeless bool) error {
	was, err := showing(below, c.Path)
	if errors.Is(err, unix.ENOENT) {
		c.Same = c.Kind == KindGone
		return nil
	}
	if err != nil {
		return err
	}
	defer was.close()
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
	if had.MTime != is.MTime && (timeless || was.tellsTimesLate()) {
		had.MTime = is.MTime
	}
	if c.Same = had == is; c.Same && c.Kind == KindFile {
		content, err := was.digest()
		if err != nil {
			return err
		}
		c.Same = content == c.Digest
	}
	return nil
}

// tellsTimesLate says that an item is on a filesystem in user space: of its times a kernel goes on telling what it remembers
// of them, also where they have changed. So has been what was copied from there.
func (it item) tellsTimesLate() bool {
	if n, err := unix.Getxattr(it.path(), toldLate, nil); err == nil && n > 0 {
		return true
	}
	var fs unix.Statfs_t
	return unix.Fstatfs(it.fd, &fs) == nil && fs.Type == unix.FUSE_SUPER_MAGIC
}

// showing opens what layers, the newest first, show together at a path: ENOENT for nothing.
func showing(layers []item, at string) (item, error) {
	for _, layer := range layers {
		it, through, err := layer.walk(strings.Split(strings.TrimPrefix(at, "/"), "/"))
		if err == nil || !through {
			return it, err
		}
	}
	return item{}, unix.ENOENT
}

// walk opens what a layer has at a path. Where it has nothing there, through says that what lies below it shows.
func (it item) walk(names []string) (found item, through bool, err error) {
	if len(names) == 0 {
		return it, false, nil
	}
	sub, err := openItem(it.fd, names[0])
	switch {
	case errors.Is(err, unix.ENOENT):
		return item{}, true, unix.ENOENT
	case errors.Is(err, unix.ENOTDIR):
		return item{}, false, unix.ENOENT
	case err != nil:
		return item{}, false, err
	case len(names) == 1 && !sub.gone():
		return sub, false, nil
	}
	defer sub.close()
	if sub.gone() || sub.kind() != unix.S_IFDIR {
		return item{}, false, unix.ENOENT
	}
	has, err := sub.attributes()
	if err != nil {
		return item{}, false, err
	}
	found, through, err = sub.walk(names[1:])
	return found, through && string(has[opaque]) != "y", err
}
