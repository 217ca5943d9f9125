package stack

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// RootEntry is something visible in the topmost root.
type RootEntry struct {
	layer.Change
	// Capability is the file capability, in hexadecimal.
	Capability string `json:"capability,omitempty"`
}

// ListRoot lists what the topmost root shows, without the content of mounts on it: a mount point
// appears as it is below the mount. Paths for which skip returns true are left out with their
// content. Digests that known has are not computed again.
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
	r := newDigestReader(known, skip)
	if unseen {
		r.known = &Digests{}
	}
	if all, err = r.list(top, "/"); err == nil && !unseen && !t.hasSharedMappings() {
		known.add(r.read)
	}
	return all, err
}

// list lists what is at a path and below, sorted by path.
func (r *digestReader) list(it filetree.Node, at string) ([]RootEntry, error) {
	err := r.walk(it, at)
	if walked := r.walkers.Wait(); err == nil {
		err = walked
	}
	if hashed := r.hashers.Wait(); err == nil {
		err = hashed
	}
	slices.SortFunc(r.found, func(a, b *RootEntry) int { return strings.Compare(a.Path, b.Path) })
	entries := make([]RootEntry, len(r.found))
	for i, s := range r.found {
		entries[i] = *s
	}
	return entries, err
}

func (r *digestReader) walk(it filetree.Node, at string) error {
	if r.skip(at) {
		return nil
	}
	if err := r.describe(it, at); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if it.Kind() != unix.S_IFDIR {
		return nil
	}
	return it.Each(func(name string, sub filetree.Node) error {
		below := path.Join(at, name)
		if sub.Kind() == unix.S_IFDIR && r.walkBeside(sub, below) {
			return nil
		}
		return r.walk(sub, below)
	})
}

// walkBeside walks a folder in a goroutine of its own, if a processor is free for that.
func (r *digestReader) walkBeside(folder filetree.Node, at string) bool {
	fd, err := unix.FcntlInt(uintptr(folder.FD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return false
	}
	folder.FD = fd
	began := r.walkers.TryGo(func() error {
		defer folder.Close()
		return r.walk(folder, at)
	})
	if !began {
		folder.Close()
	}
	return began
}

// describe adds what is at a path.
func (r *digestReader) describe(it filetree.Node, at string) error {
	now, err := layer.Describe(it, at)
	s := &RootEntry{Change: now}
	if err == nil && now.Kind == layer.KindFile {
		err = r.digest(it, at, &s.Digest)
	}
	if err == nil && s.Attributes != "" {
		var has map[string][]byte
		has, err = it.Attributes()
		s.Capability = hex.EncodeToString(has["security.capability"])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = append(r.found, s)
	return err
}

// engineMounts are the files that engines mount into each container, besides /proc and /sys.
var engineMounts = []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev"}

// EngineFiles lists what the container has in the engine's own mounts, which are in no layer,
// without nested mounts and without times.
func (t *Target) EngineFiles() (all []layer.Change, err error) {
	mounts, err := t.openEngineMounts()
	defer mounts.close()
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		there, err := newDigestReader(&Digests{}, func(path string) bool { return path == Doorway }).list(m.Node, m.at)
		if err != nil {
			return nil, err
		}
		for _, s := range there {
			s.MTime = 0
			if s.Kind == layer.KindFolder {
				s.Size = 0
			}
			all = append(all, s.Change)
		}
	}
	return all, nil
}

// openMounts are mounts of a container without what is mounted on them.
type openMounts []openMount

type openMount struct {
	filetree.Node
	at string
}

func (all openMounts) close() {
	for _, m := range all {
		m.Close()
	}
}

// openEngineMounts opens those of the engine's own mounts that there are. What it returns with an
// error has to be closed too.
func (t *Target) openEngineMounts() (all openMounts, err error) {
	err = onThread(func() error {
		if err := t.enterMountNamespace(); err != nil {
			return err
		}
		for _, at := range engineMounts {
			mounted, err := unix.OpenTree(unix.AT_FDCWD, at,
				unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) { // does not exist, or is not a mount
				continue
			}
			if err != nil {
				return wrap(at, err)
			}
			it, err := filetree.NodeOf(mounted)
			if err != nil {
				return err
			}
			all = append(all, openMount{it, at})
		}
		return nil
	})
	return all, err
}

// File is a file in a container, links followed. Mode is 0 if it does not exist.
type File struct {
	Name    string `json:"name,omitempty"`
	Mode    uint32 `json:"mode,omitempty"`
	Size    int64  `json:"size,omitempty"`
	Content []byte `json:"content,omitempty"`
}

// ReadFile reads a regular file in the topmost root, or on a mount there, of at most limit bytes. A
// larger or irregular file has no content. No link leads out of the container.
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
