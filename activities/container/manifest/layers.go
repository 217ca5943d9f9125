package manifest

import (
	"archive/tar"
	"fmt"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/stack"
)

// kindGone says that nothing is at the path any more.
const kindGone = 'x'

// FromChanges is the manifest of how a container differs from a checkpoint: what is as it was there
// is not in it. Times are in nanoseconds, and Caps covers all extended attributes.
func FromChanges(changes []layer.Change, ignore []string) Manifest {
	m := Manifest{}
	for _, c := range changes {
		n := Node{
			Path: c.Path, Kind: c.Kind, Mode: int64(c.Mode), Owner: fmt.Sprintf("%d:%d", c.UID, c.GID), MTime: c.MTime,
			Size:   c.Size,
			Digest: c.Digest, Link: c.Link, Caps: c.Attributes, Over: c.Over, Same: c.Same,
		}
		if c.Kind == layer.KindOther {
			n.Device = fmt.Sprintf("%x", c.Device)
		}
		if holdsIgnored(c.Path, ignore) {
			n.MTime = 0
		}
		m[c.Path] = n
	}
	return m
}

// MostNested is how deep folders are read.
const MostNested = layer.MostNested

// TooDeep is the beginning of the path of a folder that is nested deeper than [MostNested], and so
// not read; empty for none.
func (m Manifest) TooDeep() string { return m.findDigest(layer.TooDeep) }

// TooLong is the beginning of a path whose name is longer than the container's own filesystem
// takes; empty for none.
func (m Manifest) TooLong() string { return m.findDigest(layer.TooLong) }

func (m Manifest) findDigest(digest string) string {
	for at, n := range m {
		if n.Digest == digest {
			return at[:min(len(at), 100)]
		}
	}
	return ""
}

// holdsIgnored says that the time of a folder changes with what is ignored.
func holdsIgnored(at string, ignore []string) bool {
	return slices.ContainsFunc(ignore, func(ig string) bool { return path.Dir(ig) == at })
}

// Adopt takes over what was known, when the container ran, of what lies below the layers.
func (m Manifest) Adopt(known Manifest) {
	for at, n := range m {
		k, ok := known[at]
		k.Over, k.Same = n.Over, n.Same
		if ok && k == n {
			m[at] = known[at]
		}
	}
}

// FromFiles is the manifest of all that a container shows, as Read has it of the export: without
// sockets.
func FromFiles(files []stack.RootEntry, ignore []string) Manifest {
	m := Manifest{}
	for _, f := range files {
		n := Node{
			Path: f.Path, Mode: int64(f.Mode), Owner: fmt.Sprintf("%d:%d", f.UID, f.GID), MTime: time.Unix(0, f.MTime).Unix(),
			Size: f.Size, Digest: f.Digest, Link: f.Link, Caps: f.Capability,
		}
		switch f.Kind {
		case layer.KindFolder:
			n.Kind = tar.TypeDir
		case layer.KindFile:
			n.Kind = tar.TypeReg
		case layer.KindLink:
			n.Kind = tar.TypeSymlink
		default:
			dev := f.Device & (1<<32 - 1)
			switch f.Device >> 32 {
			case unix.S_IFIFO:
				n.Kind = tar.TypeFifo
			case unix.S_IFCHR:
				n.Kind, n.Device = tar.TypeChar, fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
			case unix.S_IFBLK:
				n.Kind, n.Device = tar.TypeBlock, fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
			default:
				continue
			}
		}
		if f.Path == "/" || enginesOwn(f.Path) {
			continue
		}
		if timeless(f.Path, ignore) {
			n.MTime = 0
		}
		m[f.Path] = n
	}
	return m
}
