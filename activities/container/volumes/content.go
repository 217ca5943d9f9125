package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/layer"
	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Entry is what a volume holds at a path. Times are in nanoseconds.
type Entry struct {
	Path       string
	Kind       byte // see [layer.KindFolder] and so on
	Mode       uint32
	UID, GID   uint32
	MTime      int64
	Size       int64
	Digest     string // the content's
	Attributes string // a digest of the extended ones
	Link       string // where a symbolic link leads
	Device     uint64
	// Same is the first path of the same file, where it has several.
	Same string
}

// Content is all that a volume holds, itself as "/", by path.
type Content map[string]Entry

// Bytes is the sum of all files.
func (c Content) Bytes() (sum int64) {
	for _, e := range c {
		if e.Same == "" {
			sum += e.Size
		}
	}
	return sum
}

// Files is how many paths there are beside the volume itself.
func (c Content) Files() int { return max(len(c)-1, 0) }

// Of reads a volume. A file that goes while it is read has it read again.
func Of(root string) (Content, error) {
	const tries = 5
	var err error
	for range tries {
		var all []layer.FolderEntry
		if all, err = layer.ListFolder(root); err == nil {
			return contentOf(all), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil, fmt.Errorf("reading volume %s: %w", root, err)
}

func contentOf(all []layer.FolderEntry) Content {
	slices.SortFunc(all, func(a, b layer.FolderEntry) int { return strings.Compare(a.Path, b.Path) })
	c, first := Content{}, map[uint64]string{}
	for _, h := range all {
		e := Entry{
			Path: h.Path, Kind: h.Kind, Mode: h.Mode, UID: h.UID, GID: h.GID, MTime: h.MTime, Size: h.Size, Digest: h.Digest,
			Attributes: h.Attributes, Link: h.Link, Device: h.Device,
		}
		if was, ok := first[h.Inode]; ok && h.Inode != 0 {
			e.Same = was
		} else if h.Inode != 0 {
			first[h.Inode] = h.Path
		}
		c[h.Path] = e
	}
	return c
}

func (e Entry) folder() bool { return e.Kind == layer.KindFolder || e.Kind == layer.KindOpaque }

// DamageError says that a copy is not what it was when it was made.
type DamageError struct{ Why string }

func (d *DamageError) Error() string { return d.Why }

// BusyError says that somebody writes all the time.
type BusyError struct{ Why string }

func (b *BusyError) Error() string { return b.Why }

// Copy makes a copy of a volume at to, in the place of what is there, and returns what is in it:
// what the volume held at one moment. It is on the disk when Copy returns.
func Copy(root, to string, p *Progress) (Content, error) {
	const tries = 3
	for range tries {
		if err := filetree.CopyTo(root, to, p.begin("copying")); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return nil, err
		}
		p.begin("comparing the copy with the volume")
		copied, err := Of(to)
		if err != nil {
			return nil, err
		}
		now, err := Of(root)
		if err != nil {
			return nil, err
		}
		if len(copied.differs(now)) == 0 { // what was copied first has not changed until the last was
			return copied, nil
		}
	}
	return nil, &BusyError{fmt.Sprintf("volume %s is written to all the time: there is no moment to keep", root)}
}

// differs are the paths at which now is another, sorted.
func (c Content) differs(now Content) []string {
	paths := map[string]bool{}
	for at, e := range c {
		if is, ok := now[at]; !ok || is != e {
			paths[at] = true
		}
	}
	for at := range now {
		if _, ok := c[at]; !ok {
			paths[at] = true
		}
	}
	return sorted(paths)
}
