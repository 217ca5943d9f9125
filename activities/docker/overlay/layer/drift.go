package layer

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

// Drift lists what somebody has changed at the paths that layers, the oldest first, wrote into the
// container's own root, as visible through the layers over it. Other paths are not read. Times are
// ignored for paths that timeless names, and where tellsTimesLate holds.
func (b Base) Drift(dir string, layers, over []int, skip, timeless func(path string) bool) ([]Change, error) {
	root := &tree{}
	for _, n := range layers {
		if err := root.addLayer(dir, n, skip); err != nil {
			return nil, err
		}
	}
	shown, err := b.openLayers(dir, over)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, it := range shown {
			it.Close()
		}
	}()
	d := &driftScan{shown: shown, skip: skip, timeless: timeless, late: tellsTimesLate(shown[len(shown)-1])}
	err = d.compareFolder(root, false)
	slices.SortFunc(d.all, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return d.all, err
}

// driftScan compares what was written with what is visible.
type driftScan struct {
	shown          []filetree.Node // the newest first; the container's own root last
	skip, timeless func(string) bool
	late           bool
	all            []Change
}

// compareFolder compares what is in a folder. If whole, nothing else was there.
func (d *driftScan) compareFolder(of *tree, whole bool) error {
	for _, name := range slices.Sorted(maps.Keys(of.sub)) {
		if err := d.compareNode(of.sub[name], whole); err != nil {
			return fmt.Errorf("%s: %w", of.sub[name].Path, err)
		}
	}
	if !whole {
		return nil
	}
	folder, err := openVisible(d.shown[len(d.shown)-1:], of.Path)
	if err != nil || folder.Kind() != unix.S_IFDIR {
		return nil // compared above
	}
	defer folder.Close()
	return folder.Each(func(name string, sub filetree.Node) error {
		at := path.Join(of.Path, name)
		if of.sub[name] != nil || d.skip(at) || d.coveredByLayer(at) {
			return nil
		}
		is, err := readNode(sub, at)
		if err == nil {
			d.all = append(d.all, is.Change)
		}
		return err
	})
}

// coveredByLayer reports whether a layer over the root has something at a path.
func (d *driftScan) coveredByLayer(at string) bool {
	if len(d.shown) == 1 {
		return false
	}
	it, err := openVisible(d.shown, at)
	if err != nil {
		return true
	}
	it.Close()
	return false
}

func (d *driftScan) compareNode(wrote *tree, whole bool) error {
	is, err := openVisible(d.shown, wrote.Path)
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
	now, err := Describe(is, wrote.Path)
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
		if now.Digest, err = digestContent(is); err != nil {
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
	return d.compareFolder(wrote, whole)
}
