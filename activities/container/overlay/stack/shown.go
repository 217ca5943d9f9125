package stack

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Shown is something that the topmost root shows.
type Shown struct {
	Change
	// Capability is the file capability, in hexadecimal.
	Capability string `json:"capability,omitempty"`
}

// List lists all that the topmost root shows, without what is mounted on it: a mount's place is there as it lies below
// the mount. What skip wants skipped is left out, with all below it.
func (t *Target) List(skip func(path string) bool) (all []Shown, err error) {
	var root int
	err = onThread(func() (err error) {
		if err = t.enter(); err == nil {
			root, err = unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		}
		return wrap("copying the container's root", err)
	})
	if err != nil {
		return nil, err
	}
	defer func() { go unix.Close(root) }() // see handles.close
	top, err := filetree.Open(root, ".")
	if err != nil {
		return nil, err
	}
	defer top.Close()
	err = shown(top, "/", skip, &all)
	return all, err
}

func shown(it filetree.Node, at string, skip func(string) bool, all *[]Shown) error {
	if skip(at) {
		return nil
	}
	now, err := look(it, at)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	s := Shown{Change: now.Change}
	if s.Attributes != "" {
		has, err := it.Attributes()
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		s.Capability = hex.EncodeToString(has["security.capability"])
	}
	*all = append(*all, s)
	if it.Kind() != unix.S_IFDIR {
		return nil
	}
	return it.Each(func(name string, sub filetree.Node) error { return shown(sub, path.Join(at, name), skip, all) })
}

// engines are what an engine mounts into each container as its own, beside what is in no disk: /proc and /sys.
var engines = []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev"}

// Beside lists what the container has in the engine's own mounts, without what is mounted there and without times: no layer
// has any of it.
func (t *Target) Beside() (all []Change, err error) {
	for _, at := range engines {
		var mounted int
		err := onThread(func() (err error) {
			if err = t.enter(); err == nil {
				mounted, err = unix.OpenTree(unix.AT_FDCWD, at, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
			}
			return err
		})
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) { // nothing is there, or nothing is mounted there
			continue
		}
		if err != nil {
			return nil, wrap(at, err)
		}
		var there []Shown
		it, err := filetree.NodeOf(mounted)
		if err == nil {
			err = shown(it, at, func(path string) bool { return path == Doorway }, &there)
			it.Close()
		}
		if err != nil {
			return nil, err
		}
		for _, s := range there {
			s.MTime = 0
			if s.Kind == KindFolder {
				s.Size = 0
			}
			all = append(all, s.Change)
		}
	}
	return all, nil
}

// File is a file in a container, with all links followed. Mode is 0 where nothing is there.
type File struct {
	Name    string `json:"name,omitempty"`
	Mode    uint32 `json:"mode,omitempty"`
	Size    int64  `json:"size,omitempty"`
	Content []byte `json:"content,omitempty"`
}

// Read reads a regular file at the topmost root, or on a mount there, of at most limit bytes: a larger one, and what is
// no regular file, has no content. No link leads out of the container.
func (t *Target) Read(at string, limit int64) (f File, err error) {
	var it filetree.Node
	err = onThread(func() (err error) {
		if err = t.enter(); err != nil {
			return err
		}
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
		root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(root)
		it.FD, err = unix.Openat2(root, at, &how)
		return err
	})
	for _, nothing := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP} {
		if errors.Is(err, nothing) {
			return File{}, nil
		}
	}
	if err != nil {
		return f, wrap(at, err)
	}
	defer it.Close()
	if err := unix.Fstat(it.FD, &it.Stat); err != nil {
		return f, wrap(at, err)
	}
	name := make([]byte, unix.PathMax)
	n, err := unix.Readlink(it.Path(), name)
	if err != nil {
		return f, wrap(at, err)
	}
	f = File{Name: string(name[:n]), Mode: it.Stat.Mode, Size: it.Stat.Size}
	if it.Kind() != unix.S_IFREG || f.Size > limit {
		return f, nil
	}
	in, err := it.OpenContent()
	if err != nil {
		return f, wrap(at, err)
	}
	defer in.Close()
	f.Content, err = io.ReadAll(io.LimitReader(in, limit))
	return f, wrap(at, err)
}
