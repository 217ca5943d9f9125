package stack

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// readAll reads a file of /proc, which reports no size, in few reads.
func readAll(f *os.File) ([]byte, error) {
	var all bytes.Buffer
	all.Grow(16 << 10)
	_, err := all.ReadFrom(f)
	return all.Bytes(), err
}

// Doorway is where the top mounts its door, in the engine's own filesystem at /dev.
const Doorway = "/dev/.unwind"

// mount is a line of mountinfo.
type mount struct {
	id, parent int
	dev        uint64
	at         string
	shared     bool
	kind       string
	source     string
}

func parseMounts(info []byte) ([]mount, error) {
	lines, err := mountinfo.GetMountsFromReader(bytes.NewReader(info), nil)
	if err != nil {
		return nil, fmt.Errorf("mountinfo: %w", err)
	}
	all := make([]mount, len(lines))
	for i, l := range lines {
		all[i] = mount{
			id: l.ID, parent: l.Parent, dev: unix.Mkdev(uint32(l.Major), uint32(l.Minor)), //nolint:gosec // the kernel's own numbers
			at: l.Mountpoint, shared: strings.Contains(l.Optional, "shared:"), kind: l.FSType, source: l.Source,
		}
	}
	return all, nil
}

// Top is an overlay of ours over a container's root.
type Top struct {
	// Name is what Show was given.
	Name string
	// Dev is the device number of its files.
	Dev uint64
	id  int
}

// Survey is what is mounted over a container's root.
type Survey struct {
	// Tops are the overlays, the lowest first. There are two if a Show was interrupted: the lower one
	// is the newer.
	Tops []Top
	// Aside is the overlay at the doorway, put there by [Target.MoveTopAside].
	Aside *Top
	// Base is the device number of the container's own root.
	Base uint64

	baseID int
	mounts []mount
}

// topID is the ID of the topmost mount.
func (s Survey) topID() int {
	if n := len(s.Tops); n > 0 {
		return s.Tops[n-1].id
	}
	return s.baseID
}

// mountsOnTop lists the mounts on the topmost root: those to be cloned with all that is mounted on
// them, and those below /dev, one by one and parents first, because the door is not cloned.
func (s Survey) mountsOnTop() (direct, inDev []mount) {
	on := map[int][]mount{}
	for _, m := range s.mounts {
		on[m.parent] = append(on[m.parent], m)
	}
	var walk func(m mount)
	walk = func(m mount) {
		if m.at == Doorway {
			return
		}
		inDev = append(inDev, m)
		for _, child := range on[m.id] {
			walk(child)
		}
	}
	for _, m := range on[s.topID()] {
		switch {
		case m.at == "/":
		case m.at == "/dev" || strings.HasPrefix(m.at, "/dev/"):
			walk(m)
		default:
			direct = append(direct, m)
		}
	}
	return direct, inDev
}

// Survey reads what is mounted over the container's root. Anything but overlays of ours is an
// UnfitError.
func (t *Target) Survey() (s Survey, err error) {
	var base unix.Statx_t
	if err := unix.Statx(t.root, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID|unix.STATX_BASIC_STATS, &base); err != nil {
		return s, wrap("the container's root", err)
	}
	if base.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return s, unfit(otherRoot)
	}
	s.baseID = int(base.Mnt_id) //nolint:gosec // the kernel counts mounts in an int
	s.Base = unix.Mkdev(base.Dev_major, base.Dev_minor)
	info, err := t.readProc("mountinfo")
	if err != nil {
		return s, err
	}
	if len(info) == 0 {
		return s, fmt.Errorf("the container has ended: %w", unix.ESRCH)
	}
	if s.mounts, err = parseMounts(info); err != nil {
		return s, err
	}
	for over := s.mountedOn(s.baseID); over != nil; over = s.mountedOn(over.id) {
		top, ours := over.asTop()
		if !ours {
			return s, unfit("something else (%s) is mounted over the container's root", over.kind)
		}
		s.Tops = append(s.Tops, top)
	}
	for _, m := range s.mounts {
		if top, ours := m.asTop(); ours && m.at == Doorway {
			s.Aside = &top
		}
	}
	return s, nil
}

// asTop returns the mount as a Top, if it is an overlay of ours.
func (m mount) asTop() (top Top, ours bool) {
	name, ours := strings.CutPrefix(m.source, sourcePrefix)
	return Top{Name: name, Dev: m.dev, id: m.id}, ours && m.kind == "overlay"
}

// mountedOn is the mount on the root of another.
func (s Survey) mountedOn(id int) *mount {
	for i, m := range s.mounts {
		if m.parent == id && m.at == "/" && m.id != id {
			return &s.mounts[i]
		}
	}
	return nil
}
