package layer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Change is what layers change at a path.
type Change struct {
	// Path is absolute in the container.
	Path string `json:"path"`
	// Kind is one of the Kind constants.
	Kind byte `json:"kind"`
	// Mode has permission bits only; MTime is in nanoseconds since 1970.
	Mode  uint32 `json:"mode,omitempty"`
	UID   uint32 `json:"uid,omitempty"`
	GID   uint32 `json:"gid,omitempty"`
	MTime int64  `json:"mtime,omitempty"`
	Size  int64  `json:"size,omitempty"`
	// Digest is the SHA-256 of a file's content; Attributes that of its extended attributes, empty if
	// it has none.
	Digest     string `json:"digest,omitempty"`
	Attributes string `json:"attributes,omitempty"`
	Link       string `json:"link,omitempty"`
	Device     uint64 `json:"device,omitempty"`
	// Over: lower layers have something at the path. Same: it is identical, since an overlay copies a
	// file up as soon as it is opened for writing, and a folder when something in it changes. See
	// [Base.Compare].
	Over bool `json:"over,omitempty"`
	Same bool `json:"same,omitempty"`
}

// MostNested is how deep folders are read. What is nested deeper is left out, and the folder's
// digest is TooDeep.
const (
	MostNested = 1000
	TooDeep    = "too-deep"
)

// TooLong is the digest of what has a longer name than the container's own filesystem takes, where
// that takes shorter ones than the layer's, as fuse-overlayfs does. See [Base.Compare].
const TooLong = "too-long"

// Kinds of changes.
const (
	KindGone   = 'x' // nothing is there
	KindFolder = 'd' // merged with that of lower layers
	KindOpaque = 'o' // hides that of lower layers
	KindFile   = 'f'
	KindLink   = 'l'
	KindOther  = 'c' // device, socket or pipe: Device holds the type bits too
)

// Changes lists what layers, the oldest first, change in what is below them, sorted by path. Paths
// for which skip returns true are left out with their content.
func Changes(dir string, layers []int, skip func(path string) bool) ([]Change, error) {
	root := &tree{}
	for _, n := range layers {
		if err := root.addLayer(dir, n, skip); err != nil {
			return nil, err
		}
	}
	var all []Change
	root.appendTo(&all)
	return all, nil
}

type tree struct {
	Change
	sub map[string]*tree
}

func (t *tree) appendTo(all *[]Change) {
	if t.Path != "" {
		*all = append(*all, t.Change)
	}
	for _, name := range slices.Sorted(maps.Keys(t.sub)) {
		t.sub[name].appendTo(all)
	}
}

// addLayer applies layer n in dir.
func (t *tree) addLayer(dir string, n int, skip func(string) bool) error {
	layer, err := open(dir, n)
	if err == nil {
		defer layer.Close()
		err = t.addFolder(layer, "/", skip)
	}
	if err != nil {
		return fmt.Errorf("reading layer %d: %w", n, err)
	}
	return nil
}

// addFolder applies a folder of a layer.
func (t *tree) addFolder(folder filetree.Node, at string, skip func(string) bool) error {
	return folder.Each(func(name string, sub filetree.Node) error {
		here := path.Join(at, name)
		if skip(here) {
			return nil
		}
		was := t.sub[name]
		now, err := readNode(sub, here)
		if err != nil {
			return fmt.Errorf("%s: %w", here, err)
		}
		if now.Kind == KindFolder && was != nil {
			if was.Kind != KindFolder { // hides what is in lower layers
				now.Kind = KindOpaque
			}
			now.sub = was.sub
		}
		if t.sub == nil {
			t.sub = map[string]*tree{}
		}
		t.sub[name] = now
		if now.Kind != KindFolder && now.Kind != KindOpaque {
			return nil
		}
		if strings.Count(here, "/") >= MostNested {
			now.Digest, now.sub = TooDeep, nil
			return nil
		}
		return now.addFolder(sub, here, skip)
	})
}

func readNode(it filetree.Node, at string) (*tree, error) {
	c, err := Describe(it, at)
	if err == nil && c.Kind == KindFile {
		c.Digest, err = digestContent(it)
	}
	return &tree{Change: c}, err
}

// Describe returns what is at a path as a Change, without the digest of its content.
func Describe(it filetree.Node, at string) (Change, error) {
	if isWhiteout(it) {
		return Change{Path: at, Kind: KindGone}, nil
	}
	has, err := it.Attributes()
	if err != nil {
		return Change{}, err
	}
	st := it.Stat
	c := Change{Path: at, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid, MTime: st.Mtim.Nano(),
		Attributes: digestAttributes(has)}
	switch it.Kind() {
	case unix.S_IFDIR:
		c.Kind = KindFolder
		if string(has[opaque]) == "y" {
			c.Kind = KindOpaque
		}
	case unix.S_IFREG:
		c.Kind, c.Size = KindFile, st.Size
	case unix.S_IFLNK:
		c.Kind = KindLink
		c.Link, err = it.ReadLink()
	default:
		c.Kind, c.Device = KindOther, uint64(it.Kind())<<32|st.Rdev
	}
	return c, err
}

// digestAttributes covers the container's attributes, not those of the overlay.
func digestAttributes(has map[string][]byte) string {
	mine := withoutMarks(has)
	if len(mine) == 0 {
		return ""
	}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(mine)) {
		fmt.Fprintf(sum, "%q=%q\n", name, mine[name])
	}
	return hex.EncodeToString(sum.Sum(nil))
}
