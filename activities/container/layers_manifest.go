package container

import (
	"archive/tar"
	"fmt"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/stack"
)

// kindGone is that of a node which says that nothing is at its path any more.
const kindGone = 'x'

// layered is the manifest of how a container differs from a checkpoint: what is as it was there is not in it. Times are
// in nanoseconds, and Caps covers all extended attributes.
func layered(changes []stack.Change, ignore []string) manifest {
	m := manifest{}
	for _, c := range changes {
		n := node{
			Path: c.Path, Kind: c.Kind, Mode: int64(c.Mode), Owner: fmt.Sprintf("%d:%d", c.UID, c.GID), MTime: c.MTime, Size: c.Size,
			Digest: c.Digest, Link: c.Link, Caps: c.Attributes, Over: c.Over, Same: c.Same,
		}
		if c.Kind == stack.KindOther {
			n.Device = fmt.Sprintf("%x", c.Device)
		}
		if holdsIgnored(c.Path, ignore) {
			n.MTime = 0
		}
		m[c.Path] = n
	}
	return m
}

// deep begins the path of a folder that is nested too deep to be looked into, if there is one.
func (m manifest) deep() string {
	for at, n := range m {
		if n.Digest == stack.TooDeep {
			return at[:min(len(at), 100)]
		}
	}
	return ""
}

// holdsIgnored says that the time of a folder changes with what is ignored.
func holdsIgnored(at string, ignore []string) bool {
	return slices.ContainsFunc(ignore, func(ig string) bool { return path.Dir(ig) == at })
}

// adopt takes over what was known, when the container ran, of what lies below the layers.
func (m manifest) adopt(known manifest) {
	for at, n := range m {
		k, ok := known[at]
		k.Over, k.Same = n.Over, n.Same
		if ok && k == n {
			m[at] = known[at]
		}
	}
}

// exported is the manifest of all that a container shows, as one that is read from the engine's export of it: sockets are
// not in that.
func exported(files []stack.RootEntry, ignore []string) manifest {
	m := manifest{}
	for _, f := range files {
		n := node{
			Path: f.Path, Mode: int64(f.Mode), Owner: fmt.Sprintf("%d:%d", f.UID, f.GID), MTime: time.Unix(0, f.MTime).Unix(),
			Size: f.Size, Digest: f.Digest, Link: f.Link, Caps: f.Capability,
		}
		switch f.Kind {
		case stack.KindFolder:
			n.Kind = tar.TypeDir
		case stack.KindFile:
			n.Kind = tar.TypeReg
		case stack.KindLink:
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
