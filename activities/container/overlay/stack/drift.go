package stack

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Drift lists what somebody has changed of what layers, the oldest first, made of their paths when they were written into the
// container's own root: what that shows there now, through the layers over. Other paths are not looked at. The time of a path
// that timeless names does not count, nor one that may be told late.
func (t *Target) Drift(dir string, layers, over []int, skip, timeless func(path string) bool) ([]Change, error) {
	root := &tree{}
	for _, n := range layers {
		if err := root.addLayer(dir, n, skip); err != nil {
			return nil, err
		}
	}
	shown, err := t.opened(dir, over)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, it := range shown {
			it.Close()
		}
	}()
	d := &drift{shown: shown, skip: skip, timeless: timeless, late: tellsTimesLate(shown[len(shown)-1])}
	err = d.below(root, false)
	slices.SortFunc(d.all, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return d.all, err
}

// drift looks for differences between what was written and what is shown.
type drift struct {
	shown          []filetree.Node // the newest first; the container's own root is the last
	skip, timeless func(string) bool
	late           bool
	all            []Change
}

// below compares all that is below a node. Whole says that nothing else was there.
func (d *drift) below(of *tree, whole bool) error {
	for _, name := range slices.Sorted(maps.Keys(of.sub)) {
		if err := d.at(of.sub[name], whole); err != nil {
			return fmt.Errorf("%s: %w", of.sub[name].Path, err)
		}
	}
	if !whole {
		return nil
	}
	folder, err := showing(d.shown[len(d.shown)-1:], of.Path)
	if err != nil || folder.Kind() != unix.S_IFDIR {
		return nil // it was compared before
	}
	defer folder.Close()
	return folder.Each(func(name string, sub filetree.Node) error {
		at := path.Join(of.Path, name)
		if of.sub[name] != nil || d.skip(at) || d.covered(at) {
			return nil
		}
		is, err := look(sub, at)
		if err == nil {
			d.all = append(d.all, is.Change)
		}
		return err
	})
}

// covered says that a layer over the root has something at a path.
func (d *drift) covered(at string) bool {
	if len(d.shown) == 1 {
		return false
	}
	it, err := showing(d.shown, at)
	if err != nil {
		return true
	}
	it.Close()
	return false
}

func (d *drift) at(wrote *tree, whole bool) error {
	is, err := showing(d.shown, wrote.Path)
	if errors.Is(err, unix.ENOENT) {
		if wrote.Kind != KindGone {
			d.all = append(d.all, Change{Path: wrote.Path, Kind: KindGone})
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer is.Close()
	now, err := describedBy(is, wrote.Path)
	if err != nil {
		return err
	}
	if now.Kind == KindOpaque {
		now.Kind = KindFolder
	}
	was := wrote.Change
	was.Digest = ""
	whole = whole || was.Kind == KindOpaque
	if was.Kind == KindOpaque {
		was.Kind = KindFolder
	}
	if d.late || d.timeless(was.Path) {
		now.MTime = was.MTime
	}
	same := now == was
	if now.Kind == KindFile {
		if now.Digest, err = digest(is); err != nil {
			return err
		}
		same = same && now.Digest == wrote.Digest
	}
	if !same {
		d.all = append(d.all, now)
	}
	if now.Kind != KindFolder || was.Kind != KindFolder {
		return nil
	}
	return d.below(wrote, whole)
}
