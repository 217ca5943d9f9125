package filetree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pkg/xattr"
	"golang.org/x/sys/unix"
)

// Copier copies nodes, and keeps hard links among them. The zero value copies exactly, and fails at
// what this process may not do. Close it after use.
type Copier struct {
	// Prepare, if set, is called before a node is copied to a name. done means that nothing else is to
	// be copied.
	Prepare func(from Node, folder int, name string) (done bool, err error)
	// Attributes, if set, selects the extended attributes of a copy.
	Attributes func(map[string][]byte) map[string][]byte
	// Spare, if set, selects extended attributes that a target keeps though the source lacks them.
	Spare func(name string) bool
	// Lenient skips owners and guarded attributes that this process may not set. The caller compares.
	Lenient bool
	// Sync syncs the content of each file. The caller syncs the names.
	Sync bool
	// Tally, if set, counts what has been copied.
	Tally *Tally

	copies map[inode]Node
	at     []string
}

// At is the path of what is being copied, below the folder whose content is.
func (c *Copier) At() string { return "/" + strings.Join(c.at, "/") }

type inode struct{ device, number uint64 }

// Close closes the files that the copier keeps open.
func (c *Copier) Close() {
	for _, n := range c.copies {
		n.Close()
	}
	c.copies = nil
}

// Copy copies a node, with all that is in it, to a name in an open folder. An existing folder is
// reused.
func (c *Copier) Copy(from Node, folder int, name string) error {
	if c.Prepare != nil {
		if done, err := c.Prepare(from, folder, name); done || err != nil {
			return err
		}
	}
	same := inode{from.Stat.Dev, from.Stat.Ino}
	if was, ok := c.copies[same]; ok && from.Kind() != unix.S_IFDIR {
		return was.LinkTo(folder, name)
	}
	content, err := createNode(from, folder, name, c.Tally)
	if err != nil {
		return err
	}
	if content != nil {
		defer content.Close()
	}
	to, err := Open(folder, name)
	if err != nil {
		return err
	}
	if to.Kind() != from.Kind() {
		to.Close()
		return errTaken
	}
	if from.Stat.Nlink > 1 && from.Kind() != unix.S_IFDIR {
		if c.copies == nil {
			c.copies = map[inode]Node{}
		}
		c.copies[same] = to
	} else {
		defer to.Close()
	}
	if from.Kind() == unix.S_IFDIR {
		return c.CopyFolder(from, to)
	}
	if err := c.CopyMetadata(from, to); err != nil {
		return err
	}
	if c.Sync && content != nil {
		return content.Sync()
	}
	return nil
}

// CopyFolder copies the content of a folder into another, and then its metadata.
func (c *Copier) CopyFolder(from, to Node) error {
	into, err := to.OpenContent()
	if err != nil {
		return err
	}
	defer into.Close()
	err = from.Each(func(name string, sub Node) error {
		c.at = append(c.at, name)
		defer func() { c.at = c.at[:len(c.at)-1] }()
		if err := c.Copy(sub, int(into.Fd()), name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		c.Tally.AddNode()
		return nil
	})
	if err != nil {
		return err
	}
	return c.CopyMetadata(from, to)
}

// Metadata is what a node has beside its content.
type Metadata struct {
	UID, GID uint32
	Mode     uint32 // permissions; a link has none
	// Attributes are all extended ones.
	Attributes         map[string][]byte
	Accessed, Modified unix.Timespec
}

// Metadata reads a node's.
func (n Node) Metadata() (Metadata, error) {
	attributes, err := n.Attributes()
	return Metadata{n.Stat.Uid, n.Stat.Gid, n.Stat.Mode & 0o7777, attributes, n.Stat.Atim, n.Stat.Mtim}, err
}

// SetMetadata gives a node exactly this metadata.
func (n Node) SetMetadata(m Metadata) error { return new(Copier).setMetadata(n, m) }

// CopyMetadata gives a node the metadata of another.
func (c *Copier) CopyMetadata(from, to Node) error {
	m, err := from.Metadata()
	if err != nil {
		return err
	}
	if c.Attributes != nil {
		m.Attributes = c.Attributes(m.Attributes)
	}
	return c.setMetadata(to, m)
}

// setMetadata sets the owner first, since changing it clears setuid and capabilities, and the mode
// after the attributes, since it may forbid setting them.
func (c *Copier) setMetadata(to Node, m Metadata) error {
	err := unix.Fchownat(to.FD, "", int(m.UID), int(m.GID), unix.AT_EMPTY_PATH)
	if err != nil && (!c.Lenient || !isDenied(err)) {
		return fmt.Errorf("chown: %w", err)
	}
	if err := c.setAttributes(to, m.Attributes); err != nil {
		return err
	}
	if to.Kind() != unix.S_IFLNK {
		if err := unix.Chmod(to.Path(), m.Mode); err != nil {
			return fmt.Errorf("chmod: %w", err)
		}
	}
	if err := unix.UtimesNanoAt(to.FD, "", []unix.Timespec{m.Accessed, m.Modified}, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("times: %w", err)
	}
	return nil
}

// setAttributes gives a node exactly these extended attributes.
func (c *Copier) setAttributes(to Node, wanted map[string][]byte) error {
	has, err := to.Attributes()
	if err != nil {
		return err
	}
	for name := range has {
		if _, ok := wanted[name]; ok || c.Spare != nil && c.Spare(name) {
			continue
		}
		if err := xattr.Remove(to.Path(), name); err != nil && (!c.Lenient || !isDenied(err)) {
			return err
		}
	}
	for name, value := range wanted {
		guarded := strings.HasPrefix(name, "security.") || strings.HasPrefix(name, "trusted.")
		if err := to.SetAttribute(name, value); err != nil && (!c.Lenient || !guarded || !isDenied(err)) {
			return err
		}
	}
	return nil
}

func isDenied(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTSUP)
}

var errTaken = errors.New("its name now refers to something else")

// CopyTo makes to an exact, synced copy of the folder from, replacing what was there. If others
// write to from meanwhile, the copy is not of one moment. The tally may be nil.
func CopyTo(from, to string, tally *Tally) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	source, err := Open(unix.AT_FDCWD, from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := Open(unix.AT_FDCWD, to)
	if err != nil {
		return err
	}
	defer target.Close()
	c := Copier{Tally: tally}
	defer c.Close()
	if err := c.CopyFolder(source, target); err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	return target.SyncFilesystem()
}

// SyncFilesystem syncs the filesystem of a folder.
func (n Node) SyncFilesystem() error {
	folder, err := n.OpenContent()
	if err != nil {
		return err
	}
	defer folder.Close()
	return unix.Syncfs(int(folder.Fd()))
}

// createNode makes a node of the same kind and content; a folder may exist already. A file is
// returned open.
func createNode(from Node, folder int, name string, tally *Tally) (*os.File, error) {
	switch from.Kind() {
	case unix.S_IFDIR:
		if err := unix.Mkdirat(folder, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, &os.PathError{Op: "mkdir", Path: name, Err: err}
		}
		return nil, nil
	case unix.S_IFREG:
		return createFile(from, folder, name, tally)
	case unix.S_IFLNK:
		target, err := from.ReadLink()
		if err != nil {
			return nil, err
		}
		return nil, unix.Symlinkat(target, folder, name)
	}
	return nil, unix.Mknodat(folder, name, from.Stat.Mode, int(from.Stat.Rdev)) //nolint:gosec // a device number
}

func createFile(from Node, folder int, name string, tally *Tally) (*os.File, error) {
	in, err := from.OpenContent()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	fd, err := unix.Openat(folder, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "create", Path: name, Err: err}
	}
	out := os.NewFile(uintptr(fd), name)
	if err := copyContent(in, out, from.Stat.Size, tally); err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

// copyContent copies a file's bytes and keeps its holes.
func copyContent(in, out *os.File, size int64, tally *Tally) error {
	if err := out.Truncate(size); err != nil {
		return err
	}
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // only a hole
			return nil
		}
		if err != nil {
			return err
		}
		hole, err := unix.Seek(int(in.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := in.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(data, io.SeekStart); err != nil {
			return err
		}
		for at = data; at < hole; {
			n, err := io.CopyN(out, in, min(hole-at, tallyEvery))
			if err != nil {
				return err
			}
			tally.AddBytes(n)
			at += n
		}
	}
	return nil
}
