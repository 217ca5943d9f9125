package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// node is what is kept of one file, folder or link. The time of a folder is not: it changes with
// what others put into it, and is handled separately (see parent).
type node struct {
	Path   string            `json:"path"` // relative to the tree's top, "." for that
	Kind   string            `json:"kind"`
	Mode   uint32            `json:"mode"`
	UID    uint32            `json:"uid"`
	GID    uint32            `json:"gid"`
	Size   int64             `json:"size,omitempty"`
	Time   int64             `json:"time,omitempty"` // nanoseconds since 1970
	Sum    string            `json:"sha256,omitempty"`
	Link   string            `json:"link,omitempty"`
	Device uint64            `json:"device,omitempty"`
	Xattrs map[string]string `json:"xattrs,omitempty"` // by name, the value's hex digits
}

// Kinds of a node.
const (
	kindFile   = "file"
	kindFolder = "folder"
	kindLink   = "symlink"
	kindOther  = "special file"
)

// tree is what is at a path: nothing, a file, or a folder with all that is in it. The zero value is
// nothing.
type tree struct {
	// Digest is empty for nothing.
	Digest activities.Digest `json:"digest,omitempty"`
	Count  int               `json:"count,omitempty"`
	Bytes  int64             `json:"bytes,omitempty"`
	// Nodes is left out of a record if there are too many.
	Nodes []node `json:"nodes,omitempty"`
}

func (t tree) exists() bool           { return t.Digest != "" }
func (t tree) equals(other tree) bool { return t.Digest == other.Digest }

// topNode is the node at the tree's path.
func (t tree) topNode() node {
	if len(t.Nodes) == 0 {
		return node{}
	}
	return t.Nodes[0]
}

// trimmed is what a record keeps of a tree.
func (t tree) trimmed() tree {
	const most = 500
	if len(t.Nodes) > most {
		t.Nodes = t.Nodes[:1:1]
	}
	return t
}

// contentKey covers a tree except for its times, which differ each time it is staged.
func (t tree) contentKey() []byte {
	nodes := slices.Clone(t.Nodes)
	for i := range nodes {
		nodes[i].Time = 0
	}
	raw, _ := json.Marshal(nodes)
	return raw
}

// scanTree scans name in a folder, without following symlinks.
func scanTree(ctx context.Context, dir *os.File, name string) (tree, error) {
	top, err := filetree.Open(int(dir.Fd()), name)
	if errors.Is(err, fs.ErrNotExist) {
		return tree{}, nil
	}
	if err != nil {
		return tree{}, fmt.Errorf("reading %s: %w", name, err)
	}
	defer top.Close()
	s := scanner{hash: sha256.New()}
	if err := s.scanNode(ctx, top, "."); err != nil {
		return tree{}, fmt.Errorf("reading %s: %w", name, err)
	}
	digest := activities.Digest("sha256:" + hex.EncodeToString(s.hash.Sum(nil)))
	return tree{Digest: digest, Count: len(s.nodes), Bytes: s.bytes, Nodes: s.nodes}, nil
}

// scanner walks a tree.
type scanner struct {
	hash  hash.Hash
	nodes []node
	bytes int64
}

func (s *scanner) scanNode(ctx context.Context, from filetree.Node, at string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n, err := describeNode(from, at)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(n)
	if err != nil {
		return err
	}
	// The name is hashed separately, since JSON does not preserve one that is not UTF-8.
	fmt.Fprintf(s.hash, "%d:%s%d:%s", len(at), at, len(raw), raw)
	s.nodes, s.bytes = append(s.nodes, n), s.bytes+n.Size
	if n.Kind != kindFolder {
		return nil
	}
	return from.Each(func(name string, sub filetree.Node) error { return s.scanNode(ctx, sub, path.Join(at, name)) })
}

func describeNode(from filetree.Node, at string) (node, error) {
	st := from.Stat
	n := node{Path: at, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid}
	attributes, err := from.Attributes()
	if err != nil {
		return n, err
	}
	for name, value := range attributes {
		if n.Xattrs == nil {
			n.Xattrs = map[string]string{}
		}
		n.Xattrs[name] = hex.EncodeToString(value)
	}
	switch from.Kind() {
	case unix.S_IFREG:
		n.Kind, n.Size, n.Time = kindFile, st.Size, unix.TimespecToNsec(st.Mtim)
		n.Sum, err = from.Digest()
	case unix.S_IFDIR:
		n.Kind = kindFolder
	case unix.S_IFLNK:
		n.Kind, n.Time = kindLink, unix.TimespecToNsec(st.Mtim)
		n.Link, err = from.ReadLink()
	default:
		n.Kind, n.Time, n.Device = kindOther, unix.TimespecToNsec(st.Mtim), st.Rdev
		n.Mode = st.Mode
	}
	return n, err
}
