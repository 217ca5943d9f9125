// Package canonical gives files one name each, however a path leads to them: through symbolic
// links, /proc/self/root, a bind mount, or another hard link.
package canonical

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Names names files as this process saw its mounts when they were read.
type Names struct{ mounts []*mountinfo.Info }

// ReadMounts reads the mounts of this process.
func ReadMounts() (Names, error) {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return Names{}, fmt.Errorf("reading the mounts: %w", err)
	}
	return Names{mounts}, nil
}

// Of returns the canonical paths of what is, or would be, at an absolute path: of the last name
// itself, which may be a symbolic link, and of what it leads to. A file with several hard links has
// a name for its inode besides. Two paths lead to one thing if they have a name in common, and one
// is within a folder if its path begins with the folder's.
func (n Names) Of(at string) ([]string, error) {
	at = filepath.Clean(at)
	folder, err := follow(filepath.Dir(at), 0)
	if err != nil {
		return nil, err
	}
	target, err := follow(at, 0)
	if err != nil {
		return nil, err
	}
	names := []string{n.throughFirstMount(filepath.Join(folder, filepath.Base(at))), n.throughFirstMount(target)}
	var is unix.Stat_t
	if unix.Lstat(target, &is) == nil && is.Mode&unix.S_IFMT == unix.S_IFREG && is.Nlink > 1 {
		names = append(names, fmt.Sprintf("inode:%d:%d", is.Dev, is.Ino))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// maxLinks is how many dangling links are followed, as in the kernel.
const maxLinks = 40

// follow resolves all symbolic links in a path, the end of which may not exist.
func follow(at string, links int) (string, error) {
	target, err := filepath.EvalSymlinks(at)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return target, err
	}
	if links > maxLinks {
		return "", fmt.Errorf("%s: too many symbolic links", at)
	}
	folder, err := follow(filepath.Dir(at), links+1)
	if err != nil {
		return "", err
	}
	link, _ := os.Readlink(filepath.Join(folder, filepath.Base(at)))
	switch {
	case link == "": // nothing is there
		return filepath.Join(folder, filepath.Base(at)), nil
	case filepath.IsAbs(link):
		return follow(link, links+1)
	}
	return follow(filepath.Join(folder, link), links+1)
}

// throughFirstMount returns a path without links as it is called below the first mount that shows
// the file: a bind mount shows it again.
func (n Names) throughFirstMount(at string) string {
	var over *mountinfo.Info // the mount that the path leads through
	for _, m := range n.mounts {
		if isWithin(at, m.Mountpoint) && (over == nil || len(m.Mountpoint) >= len(over.Mountpoint)) {
			over = m
		}
	}
	if over == nil {
		return at
	}
	inside := rebase(at, over.Mountpoint, over.Root)
	for _, m := range n.mounts {
		if m.Major == over.Major && m.Minor == over.Minor && isWithin(inside, m.Root) {
			return rebase(inside, m.Root, m.Mountpoint)
		}
	}
	return at
}

// rebase returns a path within one folder as one within another.
func rebase(at, from, to string) string {
	return filepath.Join(to, strings.TrimPrefix(at, from))
}

func isWithin(at, folder string) bool {
	return at == folder || strings.HasPrefix(at, strings.TrimSuffix(folder, "/")+"/")
}
