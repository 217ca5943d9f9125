package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Look says how a folder is looked at. The zero value reads all of it.
type Look struct {
	// Leave says which paths are no part of it, with all that is in them: they are left alone. It is
	// asked of a folder before it is asked of what is in it. Defaults to none.
	Leave func(at string) bool
	// Progress, if set, is told how far it has come.
	Progress *Progress
}

// Scan reads a folder. A file that goes while it is read has the folder read again.
func Scan(ctx context.Context, root Root, l Look) (Content, error) {
	now, err := scan(ctx, root, nil, l.reading("reading"))
	return now.content(), err
}

// Scan reads a folder; of what has not changed since the last tree of it, only that.
func (s *Store) Scan(ctx context.Context, root Root, l Look) (Content, error) {
	now, err := scan(ctx, root, s.latest(root), l.reading("reading"))
	return now.content(), err
}

func (l Look) reading(doing string) reading {
	return reading{leave: l.Leave, tally: l.Progress.begin(doing)}
}

// node is an entry, and what tells whether it has changed since it was read.
type node struct {
	Entry

	Inode uint64
	// Changed is its change time in nanoseconds; 0: it is to be read again.
	Changed int64
}

// state is what a folder held when it was read.
type state struct {
	// Device is that of its filesystem.
	Device uint64
	Nodes  map[string]node

	// read is how many nodes were read, since they were not known.
	read int
}

func (s *state) content() Content {
	if s == nil {
		return nil
	}
	c := make(Content, len(s.Nodes))
	for at, n := range s.Nodes {
		c[at] = n.Entry
	}
	return c
}

// errChanging is that of a file which changes while it is read.
var errChanging = errors.New("it changes while it is read")

// reading says what becomes of what is read. The zero value keeps and counts nothing.
type reading struct {
	put   putChunk
	leave func(at string) bool
	tally *filetree.Tally
}

// scan reads a folder; of what has not changed since known, only that.
func scan(ctx context.Context, root Root, known *state, r reading) (*state, error) {
	const tries = 5
	var err error
	for range tries {
		var now *state
		if now, err = scanOnce(ctx, root.at(), known, r); err == nil {
			return now, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errChanging) {
			break
		}
	}
	return nil, fmt.Errorf("reading folder %s: %w", root.Path, err)
}

// racy is how much older a change must be than the scan that reads it: timestamps are coarse, some
// filesystems keep seconds only.
const racy = 2 * time.Second

// scanner is one look at a folder.
type scanner struct {
	reading

	ctx   context.Context //nolint:containedctx // of one call
	known *state
	now   *state
	// trusted is the change time, in nanoseconds, before which a node's content is sure to go with it;
	// 0: none is.
	trusted int64
	// digests are of files with several names, by inode.
	digests map[uint64]string
}

func scanOnce(ctx context.Context, root string, known *state, r reading) (*state, error) {
	top, err := filetree.Open(unix.AT_FDCWD, root)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	if top.Kind() != unix.S_IFDIR {
		return nil, &fs.PathError{Op: "read", Path: root, Err: unix.ENOTDIR}
	}
	s := scanner{reading: r, ctx: ctx, known: known, digests: map[uint64]string{},
		now: &state{Device: top.Stat.Dev, Nodes: map[string]node{}}}
	if known == nil || known.Device != top.Stat.Dev {
		s.known = &state{}
	}
	if s.trusted, err = trustedBefore(top); err != nil {
		return nil, err
	}
	if err := s.readFolder(top, "/"); err != nil {
		return nil, err
	}
	s.nameLinks()
	return s.now, nil
}

// trustedBefore is where a scan that begins now has trusted begin.
func trustedBefore(top filetree.Node) (int64, error) {
	var of unix.Statfs_t
	if err := unix.Fstatfs(top.FD, &of); err != nil {
		return 0, err
	}
	switch uint32(of.Type) { //nolint:gosec // magic numbers are of 32 bits
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC:
		var now unix.Timespec
		err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now)
		return now.Nano() - racy.Nanoseconds(), err
	}
	return 0, nil
}

func (s *scanner) readFolder(it filetree.Node, at string) error {
	if err := s.readNode(it, at); err != nil {
		return err
	}
	isKnown := func(name string, folder int) (bool, error) {
		var is unix.Stat_t
		if err := unix.Fstatat(folder, name, &is, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return false, &fs.PathError{Op: "stat", Path: path.Join(at, name), Err: err}
		}
		return s.keepKnown(path.Join(at, name), &is), nil
	}
	return it.EachBut(isKnown, func(name string, sub filetree.Node) error {
		in := path.Join(at, name)
		switch {
		case sub.Kind() == unix.S_IFDIR && (name == ownFolder || strings.HasPrefix(name, ownFolder+"-")), s.leaves(in):
			s.now.Nodes[in] = node{Entry: Entry{Path: in, Kind: Left}}
			return nil
		case sub.Stat.Dev != s.now.Device:
			return fmt.Errorf("something else is mounted at %s", in)
		case sub.Kind() == unix.S_IFDIR:
			return s.readFolder(sub, in)
		}
		return s.readNode(sub, in)
	})
}

func (s *scanner) leaves(at string) bool { return s.leave != nil && s.leave(at) }

// ownFolder is the name of what Unwind keeps beside what it changes, or the beginning of the name.
const ownFolder = ".unwind"

// find is what is known of a node, if that has not changed.
func (s *scanner) find(at string, is *unix.Stat_t) (n node, isKnown bool) {
	n, isKnown = s.known.Nodes[at]
	n.Same = ""
	return n, isKnown && n.Inode == is.Ino && n.Changed == is.Ctim.Nano() && n.Changed != 0 && n.Kind == kindOf(is)
}

// keepKnown keeps what is known of a node that is no folder, if that has not changed.
func (s *scanner) keepKnown(at string, is *unix.Stat_t) bool {
	n, isKnown := s.find(at, is)
	isKnown = isKnown && n.Kind != Folder && is.Dev == s.now.Device && !s.leaves(at)
	if isKnown {
		s.now.Nodes[at] = n
	}
	return isKnown
}

// readNode reads a node, a folder without what is in it.
func (s *scanner) readNode(it filetree.Node, at string) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	n, isKnown := s.find(at, &it.Stat)
	if !isKnown {
		n = node{Entry: Entry{Path: at}, Inode: it.Stat.Ino, Changed: it.Stat.Ctim.Nano()}
		if err := s.describe(it, &n.Entry); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		if n.Changed >= s.trusted {
			n.Changed = 0
		}
		s.now.read++
		if at != "/" {
			s.tally.AddBytes(n.Size)
			s.tally.AddNode()
		}
	}
	s.now.Nodes[at] = n
	return nil
}

func kindOf(is *unix.Stat_t) byte {
	switch is.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return Folder
	case unix.S_IFREG:
		return File
	case unix.S_IFLNK:
		return Link
	case unix.S_IFIFO:
		return Pipe
	case unix.S_IFSOCK:
		return Socket
	case unix.S_IFBLK:
		return Block
	}
	return Char
}

func (s *scanner) describe(it filetree.Node, e *Entry) error {
	if err := checkAttributes(it, e.Path == "/"); err != nil {
		return err
	}
	st := it.Stat
	e.Kind, e.Mode, e.UID, e.GID, e.MTime = kindOf(&st), st.Mode&0o7777, st.Uid, st.Gid, st.Mtim.Nano()
	extended, err := it.Attributes()
	if err != nil {
		return err
	}
	e.Attributes = encodeAttributes(extended)
	switch e.Kind {
	case File:
		e.Size = st.Size
		e.Digest, err = s.digest(it)
	case Link:
		e.Target, err = it.ReadLink()
	case Block, Char:
		e.Device = st.Rdev
	}
	return err
}

// checkAttributes refuses what the filesystem says of a node that nothing here could bring back, and
// where something else of the same filesystem is mounted. A list of what is known to mean nothing,
// so that what a later kernel says is not overlooked.
func checkAttributes(it filetree.Node, isTop bool) error {
	var of unix.Statx_t
	if err := unix.Statx(it.FD, "", unix.AT_EMPTY_PATH, 0, &of); err != nil {
		return err
	}
	const writesAtomically = 0x400000 // STATX_ATTR_WRITE_ATOMIC: what it can do
	has := of.Attributes &^ writesAtomically
	if has&unix.STATX_ATTR_MOUNT_ROOT != 0 && !isTop {
		return errors.New("something else is mounted there")
	}
	if has &^= unix.STATX_ATTR_MOUNT_ROOT; has != 0 {
		return fmt.Errorf("it has attributes of the filesystem that cannot be put back (%#x; see lsattr and chattr)", has)
	}
	return nil
}

// digest reads a file, once for all its names.
func (s *scanner) digest(it filetree.Node) (digest string, err error) {
	if was, ok := s.digests[it.Stat.Ino]; ok {
		return was, nil
	}
	f, err := it.OpenContent()
	if err != nil {
		return "", err
	}
	defer f.Close()
	if s.trusted != 0 {
		const writeBack = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		if err := unix.SyncFileRange(int(f.Fd()), 0, 0, writeBack); err != nil {
			return "", err
		}
	}
	if digest, err = digestContent(f, it.Stat.Size, s.put); err == nil && it.Stat.Nlink > 1 {
		s.digests[it.Stat.Ino] = digest
	}
	return digest, err
}

// nameLinks gives the names of one file that of the first.
func (s *scanner) nameLinks() {
	first := map[uint64]string{}
	for _, at := range sorted(s.now.Nodes) {
		n := s.now.Nodes[at]
		if n.Kind == Folder || n.Kind == Left {
			continue
		}
		if was, ok := first[n.Inode]; ok {
			n.Same = was
			s.now.Nodes[at] = n
		} else {
			first[n.Inode] = at
		}
	}
}
