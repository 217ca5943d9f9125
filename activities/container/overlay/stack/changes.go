package stack

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Change is what layers make of a path.
type Change struct {
	// Path is absolute in the container.
	Path string `json:"path"`
	// Kind is one of [KindGone] and so on.
	Kind byte `json:"kind"`
	// Mode has no kind in it; MTime is in nanoseconds since 1970.
	Mode  uint32 `json:"mode,omitempty"`
	UID   uint32 `json:"uid,omitempty"`
	GID   uint32 `json:"gid,omitempty"`
	MTime int64  `json:"mtime,omitempty"`
	Size  int64  `json:"size,omitempty"`
	// Digest is the SHA-256 of a file's content; Attributes that of all extended attributes, empty without any.
	Digest     string `json:"digest,omitempty"`
	Attributes string `json:"attributes,omitempty"`
	Link       string `json:"link,omitempty"`
	Device     uint64 `json:"device,omitempty"`
	// Over says that something lies below at the path, and Same that it is the very same: an overlay copies a file up as
	// soon as it is opened for writing, and a folder for what is in it. See [Target.Compare].
	Over bool `json:"over,omitempty"`
	Same bool `json:"same,omitempty"`
}

// MostNested is how deep folders are looked into. What is in deeper ones is not told: their digest is TooDeep.
const (
	MostNested = 1000
	TooDeep    = "too-deep"
)

// Kinds of changes.
const (
	KindGone   = 'x' // nothing is there
	KindFolder = 'd' // what lower layers have in it is there too
	KindOpaque = 'o' // a folder in which nothing of lower layers is there
	KindFile   = 'f'
	KindLink   = 'l'
	KindOther  = 'c' // a device, a socket, a pipe: the bits of its kind are in Device too
)

// Changes lists what layers, the oldest first, make of what lies below them, sorted by path. Paths that skip wants
// skipped are left out, with all below them.
func Changes(dir string, layers []int, skip func(path string) bool) ([]Change, error) {
	root := &tree{}
	for _, n := range layers {
		if err := root.addLayer(dir, n, skip); err != nil {
			return nil, err
		}
	}
	var all []Change
	root.list(&all)
	return all, nil
}

type tree struct {
	Change
	sub map[string]*tree
}

func (t *tree) list(all *[]Change) {
	if t.Path != "" {
		*all = append(*all, t.Change)
	}
	for _, name := range slices.Sorted(maps.Keys(t.sub)) {
		t.sub[name].list(all)
	}
}

// addLayer puts what layer n in dir holds over what is known.
func (t *tree) addLayer(dir string, n int, skip func(string) bool) error {
	layer, err := openLayer(dir, n)
	if err == nil {
		defer layer.Close()
		err = t.add(layer, "/", skip)
	}
	if err != nil {
		return fmt.Errorf("reading layer %d: %w", n, err)
	}
	return nil
}

// add puts what a folder of a layer holds over what is known of its path.
func (t *tree) add(folder filetree.Node, at string, skip func(string) bool) error {
	return folder.Each(func(name string, sub filetree.Node) error {
		here := path.Join(at, name)
		if skip(here) {
			return nil
		}
		was := t.sub[name]
		now, err := look(sub, here)
		if err != nil {
			return fmt.Errorf("%s: %w", here, err)
		}
		if now.Kind == KindFolder && was != nil {
			if was.Kind != KindFolder { // nothing of what is lower shows through what was there
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
		return now.add(sub, here, skip)
	})
}

func look(it filetree.Node, at string) (*tree, error) {
	c, err := describedBy(it, at)
	if err == nil && c.Kind == KindFile {
		c.Digest, err = digest(it)
	}
	return &tree{Change: c}, err
}

// describedBy is all of a change but the content of a file.
func describedBy(it filetree.Node, at string) (Change, error) {
	if isWhiteout(it) {
		return Change{Path: at, Kind: KindGone}, nil
	}
	has, err := it.Attributes()
	if err != nil {
		return Change{}, err
	}
	st := it.Stat
	c := Change{Path: at, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid, MTime: st.Mtim.Nano(), Attributes: digestOf(has)}
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

// digestOf covers attributes that are the container's own.
func digestOf(has map[string][]byte) string {
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

// Untouched says that nothing has been written to the upper layer of a view since it was shown.
func (t *Target) Untouched(v View) (bool, error) {
	upper, err := openLayer(v.Dir, v.Upper)
	if err != nil {
		return false, wrap("the upper layer", err)
	}
	defer upper.Close()
	empty := true
	err = upper.Each(func(string, filetree.Node) error {
		empty = false
		return io.EOF // one is enough
	})
	if !empty || err != nil {
		return false, nil
	}
	shown, err := t.rootOf(v)
	if err != nil {
		return false, err
	}
	defer shown.Close()
	was, err := look(shown, "/")
	if err != nil {
		return false, err
	}
	is, err := look(upper, "/")
	if err != nil {
		return false, err
	}
	was.Kind = is.Kind
	return was.Change == is.Change, nil
}

// rootOf is the folder that the upper layer of a view is made like.
func (t *Target) rootOf(v View) (filetree.Node, error) {
	if n := len(v.Lower); n > 0 {
		return openLayer(v.Dir, v.Lower[n-1])
	}
	return filetree.Open(t.root, ".")
}
