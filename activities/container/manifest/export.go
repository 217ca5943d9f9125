package manifest

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// Engine is what a manifest is taken from.
type Engine interface {
	ContainerInspect(ctx context.Context, container string) (container.InspectResponse, error)
	ContainerExport(ctx context.Context, container string) (io.ReadCloser, error)
	// ListFiles takes the manifest of a running container without an export. Where ok is false, only
	// an export has it.
	ListFiles(ctx context.Context, container string, ignore []string) (m Manifest, ok bool, err error)
}

// maxPaths bounds a manifest: about 150 bytes of memory for each path.
const maxPaths = 2_000_000

// Take describes the whole filesystem of a container. Where the engine can list the files, only
// those are read that have changed since the last time. An export costs reading every byte: what is
// large and does not matter belongs into ignore, or into a volume.
func Take(ctx context.Context, e Engine, id string, ignore []string) (Manifest, error) {
	m, ok, err := List(ctx, e, id, ignore)
	if ok || err != nil {
		return m, err
	}
	stream, err := e.ContainerExport(ctx, id)
	if err != nil {
		return nil, engine.Explain("reading the filesystem of the container", err)
	}
	defer stream.Close()
	if m, err = Read(stream, ignore); err != nil {
		return nil, fmt.Errorf("reading the filesystem of the container: %w", err)
	}
	return m.withoutUnreliableTimes(ctx, e, id)
}

// List is what Take returns, where there is no need of an export.
func List(ctx context.Context, e Engine, id string, ignore []string) (m Manifest, ok bool, err error) {
	if m, ok, err = e.ListFiles(ctx, id, ignore); ok && err == nil {
		m, err = m.withoutUnreliableTimes(ctx, e, id)
	}
	return m, ok, err
}

// unknownTime is one that no comparison counts.
const unknownTime = -1

// TimesAreUnreliable says that a container may show another time of a file or a folder than is on
// the disk. With fuse-overlayfs a kernel notes the time of a write itself and shows that until it
// forgets it; on the disk it is some milliseconds later, and of a folder whose content is copied
// up, two folders above what is written, it is that of the copy.
func TimesAreUnreliable(c container.InspectResponse) bool { return c.Driver == "fuse-overlayfs" }

func (m Manifest) withoutUnreliableTimes(ctx context.Context, e Engine, id string) (Manifest, error) {
	of, err := e.ContainerInspect(ctx, id)
	if err != nil || !TimesAreUnreliable(of) {
		return m, engine.Explain("looking at the container", err)
	}
	for at, n := range m {
		if n.Kind == tar.TypeDir || n.Kind == tar.TypeReg {
			n.MTime = unknownTime
			m[at] = n
		}
	}
	return m, nil
}

// Read reads the manifest of an exported filesystem. A hard link counts as the file itself: of two
// names of one file an engine exports the second now as a link and now as a file, by what the
// storage driver remembers.
func Read(stream io.Reader, ignore []string) (Manifest, error) {
	m, links, ignored := Manifest{}, map[string]string{}, Manifest{}
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		at := path.Clean("/" + h.Name)
		unseen := Below(at, ignore)
		if enginesOwn(at) || unseen && h.Typeflag != tar.TypeReg {
			continue
		}
		if len(m)+len(ignored) == maxPaths {
			return nil, activities.Errorf(activities.Refused,
				"the container has more than %d paths; name large folders in ignore", maxPaths)
		}
		n := Node{
			Path: at, Kind: h.Typeflag, Mode: h.Mode & 0o7777, Owner: fmt.Sprintf("%d:%d", h.Uid, h.Gid),
			MTime: h.ModTime.Unix(),
			Link:  h.Linkname, Caps: hex.EncodeToString([]byte(h.PAXRecords["SCHILY.xattr.security.capability"])),
		}
		if h.Typeflag == tar.TypeLink {
			links[at] = path.Clean("/" + h.Linkname)
			n.Link = links[at]
		}
		if timeless(at, ignore) {
			n.MTime = 0
		}
		switch h.Typeflag {
		case tar.TypeReg:
			sum := sha256.New()
			if n.Size, err = io.Copy(sum, r); err != nil { //nolint:gosec // nothing is kept of what is read
				return nil, err
			}
			n.Digest = hex.EncodeToString(sum.Sum(nil))
		case tar.TypeChar, tar.TypeBlock:
			n.Device = fmt.Sprintf("%d:%d", h.Devmajor, h.Devminor)
		}
		if unseen {
			ignored[at] = n
		} else {
			m[at] = n
		}
	}
	for at, target := range links {
		n, known := m[target]
		if !known {
			n, known = ignored[target]
		}
		if known {
			n.Path = at
			m[at] = n
		}
	}
	return m, nil
}

// enginesOwn are the files that the engine itself puts into every container, new in each.
func enginesOwn(at string) bool {
	switch at {
	case "/.dockerenv", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/mtab":
		return true
	}
	return Below(at, []string{"/dev", "/proc", "/sys"})
}

// timeless are the folders whose times change with the engine's own files or with ignored ones.
func timeless(at string, ignore []string) bool {
	return at == "/" || at == "/etc" || slices.ContainsFunc(ignore, func(ig string) bool { return path.Dir(ig) == at })
}

// Below says whether a path is one of roots, or in one.
func Below(at string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return at == root || strings.HasPrefix(at, root+"/")
	})
}
