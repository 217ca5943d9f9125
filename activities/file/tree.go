package file

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
)

// node is all that is kept of one file, folder or link. The time of a folder is not: it changes with what others put
// into it, and it is looked after apart (see parent).
type node struct {
	Path   string            `json:"path"` // below the tree's top, "." for that
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

// tree is what stands at a path: nothing, a file, or a folder with all that is in it. Its zero value is nothing.
type tree struct {
	// Digest is empty for nothing.
	Digest activities.Digest `json:"digest,omitempty"`
	Count  int               `json:"count,omitempty"`
	Bytes  int64             `json:"bytes,omitempty"`
	// Nodes is left out of a record where there are too many.
	Nodes []node `json:"nodes,omitempty"`
}

func (t tree) there() bool        { return t.Digest != "" }
func (t tree) is(other tree) bool { return t.Digest == other.Digest }

// top is the node at the tree's path.
func (t tree) top() node {
	if len(t.Nodes) == 0 {
		return node{}
	}
	return t.Nodes[0]
}

// short is what a record keeps of a tree.
func (t tree) short() tree {
	const most = 500
	if len(t.Nodes) > most {
		t.Nodes = t.Nodes[:1:1]
	}
	return t
}

// content covers what a tree is, but for its times: these are new each time that it is staged.
func (t tree) content() []byte {
	nodes := slices.Clone(t.Nodes)
	for i := range nodes {
		nodes[i].Time = 0
	}
	raw, _ := json.Marshal(nodes)
	return raw
}

// scan looks at name in a folder, without following any symlink.
func scan(ctx context.Context, dir *os.File, name string) (tree, error) {
	s := scanner{hash: sha256.New()}
	err := s.add(ctx, dir, name, ".")
	if errors.Is(err, fs.ErrNotExist) && len(s.nodes) == 0 {
		return tree{}, nil
	}
	if err != nil {
		return tree{}, fmt.Errorf("looking at %s: %w", name, err)
	}
	digest := activities.Digest("sha256:" + hex.EncodeToString(s.hash.Sum(nil)))
	return tree{Digest: digest, Count: len(s.nodes), Bytes: s.bytes, Nodes: s.nodes}, nil
}

// scanner goes through a tree.
type scanner struct {
	hash  hash.Hash
	nodes []node
	bytes int64
}

func (s *scanner) add(ctx context.Context, dir *os.File, name, at string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "stat", Path: at, Err: err}
	}
	n := node{Path: at, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid}
	var err error
	if n.Xattrs, err = xattrs(dir, name); err != nil {
		return err
	}
	var names []string
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		n.Kind, n.Size, n.Time = kindFile, st.Size, unix.TimespecToNsec(st.Mtim)
		n.Sum, err = sum(dir, name)
	case unix.S_IFDIR:
		n.Kind = kindFolder
		names, err = list(dir, name)
	case unix.S_IFLNK:
		n.Kind, n.Time = kindLink, unix.TimespecToNsec(st.Mtim)
		n.Link, err = readlink(dir, name)
	default:
		n.Kind, n.Time, n.Device = kindOther, unix.TimespecToNsec(st.Mtim), st.Rdev
		n.Mode = st.Mode
	}
	if err != nil {
		return err
	}
	raw, err := json.Marshal(n)
	if err != nil {
		return err
	}
	// The name apart, since JSON does not keep one that is not UTF-8.
	fmt.Fprintf(s.hash, "%d:%s%d:%s", len(at), at, len(raw), raw)
	s.nodes, s.bytes = append(s.nodes, n), s.bytes+n.Size
	if n.Kind != kindFolder {
		return nil
	}
	sub, err := openFolder(dir, name)
	if err != nil {
		return err
	}
	defer sub.Close()
	for _, each := range names {
		if err := s.add(ctx, sub, each, path.Join(at, each)); err != nil {
			return err
		}
	}
	return nil
}

// openNode opens name in dir itself, never what it links to.
func openNode(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func openFolder(dir *os.File, name string) (*os.File, error) {
	return openNode(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
}

func sum(dir *os.File, name string) (string, error) {
	f, err := openNode(dir, name, unix.O_RDONLY|unix.O_NONBLOCK) // it may have become a pipe
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func list(dir *os.File, name string) ([]string, error) {
	sub, err := openFolder(dir, name)
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	names, err := sub.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func readlink(dir *os.File, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return string(buf[:n]), nil
}

// through is a path to name in an open folder, for calls that take only paths: it cannot lead anywhere else.
func through(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}

func xattrs(dir *os.File, name string) (map[string]string, error) {
	at := through(dir, name)
	raw, err := sized(func(buf []byte) (int, error) { return unix.Llistxattr(at, buf) })
	if len(raw) == 0 || err != nil {
		return nil, ignoreUnsupported(err)
	}
	all := map[string]string{}
	for attr := range bytes.SplitSeq(bytes.TrimRight(raw, "\x00"), []byte{0}) {
		value, err := sized(func(buf []byte) (int, error) { return unix.Lgetxattr(at, string(attr), buf) })
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("extended attribute %s: %w", attr, err)
		}
		all[string(attr)] = hex.EncodeToString(value)
	}
	return all, nil
}

func ignoreUnsupported(err error) error {
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// sized calls a function that tells the size it needs when it is given no buffer.
func sized(get func([]byte) (int, error)) ([]byte, error) {
	for {
		n, err := get(nil)
		if n == 0 || err != nil {
			return nil, err
		}
		buf := make([]byte, n)
		if n, err = get(buf); !errors.Is(err, unix.ERANGE) {
			return buf[:max(n, 0)], err
		}
	}
}
