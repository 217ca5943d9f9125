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

// RootEntry is something visible in the topmost root.
type RootEntry struct {
	Change
	// Capability is the file capability, in hexadecimal.
	Capability string `json:"capability,omitempty"`
}

// ListRoot lists what the topmost root shows, without the content of mounts on it: a mount point appears as it is below the
// mount. Paths for which skip returns true are left out with their content. Digests that known has are not computed again.
func (t *Target) ListRoot(known *Digests, skip func(path string) bool) (all []RootEntry, err error) {
	var root int
	err = onThread(func() (err error) {
		if err = t.enterMountNamespace(); err == nil {
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
	unseen := t.hasSharedMappings()
	r := &digestReader{known, map[fileState]string{}}
	if unseen {
		r.known = &Digests{}
	}
	if err = r.listFolder(top, "/", skip, &all); err == nil && !unseen && !t.hasSharedMappings() {
		known.add(r.read)
	}
	return all, err
}

func (r *digestReader) listFolder(it filetree.Node, at string, skip func(string) bool, all *[]RootEntry) error {
	if skip(at) {
		return nil
	}
	now, err := describeNode(it, at)
	if err == nil && now.Kind == KindFile {
		now.Digest, err = r.digest(it)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	s := RootEntry{Change: now}
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
	return it.Each(func(name string, sub filetree.Node) error { return r.listFolder(sub, path.Join(at, name), skip, all) })
}

// engineMounts are the files that engines mount into each container, besides /proc and /sys.
var engineMounts = []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev"}

// EngineFiles lists what the container has in the engine's own mounts, which are in no layer, without nested mounts and
// without times.
func (t *Target) EngineFiles() (all []Change, err error) {
	for _, at := range engineMounts {
		var mounted int
		err := onThread(func() (err error) {
			if err = t.enterMountNamespace(); err == nil {
				mounted, err = unix.OpenTree(unix.AT_FDCWD, at, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
			}
			return err
		})
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) { // does not exist, or is not a mount
			continue
		}
		if err != nil {
			return nil, wrap(at, err)
		}
		var there []RootEntry
		it, err := filetree.NodeOf(mounted)
		if err == nil {
			r := &digestReader{&Digests{}, map[fileState]string{}}
			err = r.listFolder(it, at, func(path string) bool { return path == Doorway }, &there)
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

// File is a file in a container, links followed. Mode is 0 if it does not exist.
type File struct {
	Name    string `json:"name,omitempty"`
	Mode    uint32 `json:"mode,omitempty"`
	Size    int64  `json:"size,omitempty"`
	Content []byte `json:"content,omitempty"`
}

// ReadFile reads a regular file in the topmost root, or on a mount there, of at most limit bytes. A larger or irregular
// file has no content. No link leads out of the container.
func (t *Target) ReadFile(at string, limit int64) (f File, err error) {
	var it filetree.Node
	err = onThread(func() (err error) {
		if err = t.enterMountNamespace(); err != nil {
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
