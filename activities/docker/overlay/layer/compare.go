package layer

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Compare sets Over and Same of each change, by what is below it in layers (the oldest first) and
// in the container's own root, and Digest where that is TooLong. Times are ignored for paths that
// timeless names, and where tellsTimesLate holds.
func (b Base) Compare(dir string, layers []int, changes []Change, timeless func(path string) bool) error {
	below, err := b.openLayers(dir, layers)
	if err != nil {
		return err
	}
	defer func() {
		for _, it := range below {
			it.Close()
		}
	}()
	longest, err := longestName(int(b))
	if err != nil {
		return err
	}
	for i := range changes {
		if changes[i].Kind != KindGone && len(path.Base(changes[i].Path)) > longest {
			changes[i].Digest = TooLong
		}
		if err := changes[i].compareBelow(below, timeless(changes[i].Path)); err != nil {
			return fmt.Errorf("comparing %s: %w", changes[i].Path, err)
		}
	}
	return nil
}

// longestName is how long a name may be on the filesystem of an open folder.
func longestName(folder int) (int, error) {
	var fs unix.Statfs_t
	err := unix.Fstatfs(folder, &fs)
	return int(fs.Namelen), wrap("looking at a filesystem", err)
}

// openLayers opens the layers, the newest first, and the container's own root last.
func (b Base) openLayers(dir string, layers []int) (all []filetree.Node, err error) {
	defer func() {
		if err != nil {
			for _, it := range all {
				it.Close()
			}
		}
	}()
	for i := range layers {
		n := layers[len(layers)-1-i]
		it, err := open(dir, n)
		if err != nil {
			return all, fmt.Errorf("reading layer %d: %w", n, err)
		}
		all = append(all, it)
	}
	base, err := b.open()
	if err != nil {
		return all, err
	}
	return append(all, base), nil
}

func (c *Change) compareBelow(below []filetree.Node, timeless bool) error {
	was, err := openVisible(below, c.Path)
	if errors.Is(err, unix.ENOENT) {
		c.Same = c.Kind == KindGone
		return nil
	}
	if err != nil {
		return err
	}
	defer was.Close()
	c.Over = true
	had, err := Describe(was, c.Path)
	if err != nil {
		return err
	}
	if had.Kind == KindOpaque { // of a layer: otherwise a plain folder
		had.Kind = KindFolder
	}
	is := *c
	is.Over, is.Digest = false, ""
	if had.MTime != is.MTime && (timeless || tellsTimesLate(was)) {
		had.MTime = is.MTime
	}
	if c.Same = had == is; c.Same && c.Kind == KindFile {
		content, err := digestContent(was)
		if err != nil {
			return err
		}
		c.Same = content == c.Digest
	}
	return nil
}

// tellsTimesLate reports whether a node is on a FUSE filesystem, or was copied from one: the kernel
// caches its times, and may report stale ones.
func tellsTimesLate(it filetree.Node) bool {
	if n, err := unix.Getxattr(it.Path(), toldLate, nil); err == nil && n > 0 {
		return true
	}
	var fs unix.Statfs_t
	return unix.Fstatfs(it.FD, &fs) == nil && fs.Type == unix.FUSE_SUPER_MAGIC
}

// openVisible opens what layers, the newest first, show at a path; ENOENT if nothing.
func openVisible(layers []filetree.Node, at string) (filetree.Node, error) {
	for _, layer := range layers {
		it, through, err := openInLayer(layer, strings.Split(strings.TrimPrefix(at, "/"), "/"))
		if err == nil || !through {
			return it, err
		}
	}
	return filetree.Node{}, unix.ENOENT
}

// openInLayer opens what a layer has at a path. Where it has nothing there, through says that what
// lies below it shows.
func openInLayer(it filetree.Node, names []string) (found filetree.Node, through bool, err error) {
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
	found, through, err = openInLayer(sub, names[1:])
	return found, through && string(has[opaque]) != "y", err
}
