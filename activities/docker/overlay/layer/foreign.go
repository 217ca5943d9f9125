package layer

import (
	"errors"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Root is what is known of the container's own filesystem below layers.
type Root struct {
	Base
	// Since is when the layers were put over it or last written into it, in nanoseconds since 1970.
	// What has a later ctime, which no process can set, was changed by somebody else.
	Since int64
	// Wrote are the layers, the oldest first, that were written into it. What they have and it lacks
	// was removed by somebody.
	Wrote []int
}

// Foreign lists the paths that layers, the oldest first, change and that somebody else has changed
// in the root below them, sorted and without what is below another. Paths for which skip returns
// true are left out. If deep, folders that layers remove or replace are searched too.
func (r Root) Foreign(dir string, layers []int, deep bool, skip func(path string) bool) ([]string, error) {
	if r.Since == 0 || len(layers) == 0 {
		return nil, nil
	}
	base, err := r.open()
	if err != nil {
		return nil, err
	}
	defer base.Close()
	s := &foreignScan{since: r.Since, deep: deep, skip: skip}
	defer s.close()
	for _, n := range slices.Backward(r.Wrote) {
		it, err := open(dir, n)
		if err != nil {
			return nil, err
		}
		s.wrote = append(s.wrote, it)
	}
	for _, n := range layers {
		layer, err := open(dir, n)
		if err != nil {
			return nil, err
		}
		err = s.searchFolder(layer, base, "/")
		layer.Close()
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(s.found)
	return slices.Compact(s.found), nil
}

type foreignScan struct {
	since int64
	wrote []filetree.Node
	deep  bool
	skip  func(string) bool
	found []string
}

func (s *foreignScan) close() {
	for _, it := range s.wrote {
		it.Close()
	}
}

// searchFolder compares a merged folder of a layer with that of the root.
func (s *foreignScan) searchFolder(layer, base filetree.Node, at string) error {
	return layer.Each(func(name string, by filetree.Node) error {
		here := path.Join(at, name)
		if s.skip(here) {
			return nil
		}
		foreign, err := s.searchEntry(by, base, name, here)
		if foreign {
			s.found = append(s.found, here)
		}
		return wrap(name, err)
	})
}

// searchEntry reports whether somebody else has changed what the root has under the name of an
// entry of a layer.
func (s *foreignScan) searchEntry(by, base filetree.Node, name, at string) (foreign bool, err error) {
	is, err := filetree.Open(base.FD, name)
	if errors.Is(err, unix.ENOENT) {
		return s.hasWritten(by, at)
	}
	if err != nil {
		return false, err
	}
	defer is.Close()
	if is.Kind() != unix.S_IFDIR {
		return s.isLater(is), nil
	}
	if by.Kind() == unix.S_IFDIR {
		has, err := by.Attributes()
		if err != nil {
			return false, err
		}
		if string(has[opaque]) != "y" {
			return false, s.searchFolder(by, is, at)
		}
	}
	return s.hasLater(is)
}

func (s *foreignScan) isLater(it filetree.Node) bool { return it.Stat.Ctim.Nano() > s.since }

// hasLater reports whether somebody has changed a folder, or something in it.
func (s *foreignScan) hasLater(folder filetree.Node) (later bool, err error) {
	if later = s.isLater(folder); later || !s.deep {
		return later, nil
	}
	err = folder.Each(func(name string, sub filetree.Node) error {
		if later {
			return nil
		}
		if later = s.isLater(sub); later || sub.Kind() != unix.S_IFDIR {
			return nil
		}
		below, err := s.hasLater(sub)
		later = below
		return wrap(name, err)
	})
	return later, err
}

// hasWritten reports whether something was written to a path of the root, which has nothing there
// now and would get it again.
func (s *foreignScan) hasWritten(by filetree.Node, at string) (bool, error) {
	if isWhiteout(by) {
		return false, nil
	}
	it, err := openVisible(s.wrote, at)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err == nil {
		it.Close()
	}
	return err == nil, err
}

// DescribePath returns what the root has at a path as a Change.
func (b Base) DescribePath(at string) (Change, error) {
	base, err := b.open()
	if err != nil {
		return Change{}, err
	}
	defer base.Close()
	it, err := openVisible([]filetree.Node{base}, at)
	if errors.Is(err, unix.ENOENT) {
		return Change{Path: at, Kind: KindGone}, nil
	}
	if err != nil {
		return Change{}, err
	}
	defer it.Close()
	now, err := readNode(it, at)
	if err != nil {
		return Change{}, err
	}
	return now.Change, nil
}
