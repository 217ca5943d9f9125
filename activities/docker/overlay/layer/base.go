package layer

import (
	"fmt"
	"io"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Base is an open folder that layers lie over: the container's own root.
type Base int

func (b Base) open() (filetree.Node, error) {
	it, err := filetree.Open(int(b), ".")
	return it, wrap("the container's root", err)
}

// CopyRootMetadata gives the root of the new layer upper in dir the metadata of what it covers: of
// the newest of lower, or of the base.
func (b Base) CopyRootMetadata(dir string, lower []int, upper int) error {
	from, err := b.openBelow(dir, lower)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := open(dir, upper)
	if err != nil {
		return err
	}
	defer to.Close()
	return (&filetree.Copier{Attributes: withoutMarks, Spare: isMark}).CopyMetadata(from, to)
}

// Untouched reports whether the layer upper in dir, which lies over lower, is still empty.
func (b Base) Untouched(dir string, lower []int, upper int) (bool, error) {
	layer, err := open(dir, upper)
	if err != nil {
		return false, wrap("the upper layer", err)
	}
	defer layer.Close()
	empty := true
	err = layer.Each(func(string, filetree.Node) error {
		empty = false
		return io.EOF // one entry is enough
	})
	if !empty || err != nil {
		return false, nil
	}
	below, err := b.openBelow(dir, lower)
	if err != nil {
		return false, err
	}
	defer below.Close()
	was, err := readNode(below, "/")
	if err != nil {
		return false, err
	}
	is, err := readNode(layer, "/")
	if err != nil {
		return false, err
	}
	was.Kind = is.Kind
	return was.Change == is.Change, nil
}

// openBelow opens the root of what an upper layer covers.
func (b Base) openBelow(dir string, lower []int) (filetree.Node, error) {
	if n := len(lower); n > 0 {
		return open(dir, lower[n-1])
	}
	return filetree.Open(int(b), ".")
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
