package layer

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Devices is where an engine gives a container its devices, on a separate mount.
const Devices = "/dev"

// IsNode reports whether a change is a device, a pipe, a link or a folder below /dev: something
// that [RecreateNodes] can make.
func (c Change) IsNode() bool {
	if !strings.HasPrefix(c.Path, Devices+"/") {
		return false
	}
	switch c.Kind {
	case KindFolder, KindLink:
		return true
	case KindOther:
		return c.nodeType() != unix.S_IFSOCK // bound by a process
	}
	return false
}

func (c Change) nodeType() uint32 { return uint32(c.Device >> 32) } // see Describe

// RecreateNodes makes nodes below the open folder dev, where they are not as listed. Mounts stay,
// and so does a folder that is not empty.
func RecreateNodes(dev int, nodes []Change) error {
	slices.SortFunc(nodes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) }) // folders come first
	for _, n := range nodes {
		if err := n.recreateIn(dev); err != nil {
			return fmt.Errorf("making %s again: %w", n.Path, err)
		}
	}
	return nil
}

// recreateIn makes a node below the folder dev.
func (c Change) recreateIn(dev int) error {
	if !c.IsNode() {
		return unix.EINVAL
	}
	dir, name := path.Split(strings.TrimPrefix(path.Clean(c.Path), Devices+"/"))
	folder, err := unix.Openat2(dev, "./"+dir, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(folder)
	same, err := c.isAt(folder, name)
	if err != nil {
		return err
	}
	if !same {
		if err := c.makeAt(folder, name); err != nil {
			return err
		}
	}
	if err := unix.Fchownat(folder, name, int(c.UID), int(c.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil ||
		c.Kind == KindLink {
		return err
	}
	it, err := filetree.Open(folder, name)
	if err != nil {
		return err
	}
	defer it.Close()
	return unix.Chmod(it.Path(), c.Mode)
}

// isAt reports whether a name is such a node, whatever its owner and mode. It clears away what else
// has the name.
func (c Change) isAt(folder int, name string) (bool, error) {
	it, err := filetree.Open(folder, name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer it.Close()
	now, err := Describe(it, c.Path)
	if err != nil || now.Kind == c.Kind && now.Device == c.Device && now.Link == c.Link {
		return true, err
	}
	flags := 0
	if now.Kind == KindFolder {
		flags = unix.AT_REMOVEDIR
	}
	return false, unix.Unlinkat(folder, name, flags)
}

func (c Change) makeAt(folder int, name string) error {
	switch c.Kind {
	case KindFolder:
		return unix.Mkdirat(folder, name, 0o700)
	case KindLink:
		return unix.Symlinkat(c.Link, folder, name)
	}
	return unix.Mknodat(folder, name, c.nodeType()|0o600, int(c.Device&(1<<32-1)))
}
