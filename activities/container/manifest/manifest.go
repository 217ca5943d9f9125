package manifest

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
)

// Node is what a manifest says of a path. Times are in seconds, for no backend that goes through
// tar keeps more.
type Node struct {
	Path   string `json:"path"`
	Kind   byte   `json:"kind"`
	Mode   int64  `json:"mode"`
	Owner  string `json:"owner"`
	MTime  int64  `json:"mtime,omitempty"`
	Size   int64  `json:"size,omitempty"`
	Digest string `json:"sha256,omitempty"`
	Link   string `json:"link,omitempty"`
	Device string `json:"device,omitempty"`
	Caps   string `json:"caps,omitempty"`
	// File is the first of the names of a file in a volume, where it has several: see package volumes.
	File string `json:"file,omitempty"`
	// Over and Same are of layers: see stack.Change.
	Over bool `json:"over,omitempty"`
	Same bool `json:"same,omitempty"`
}

// Manifest describes a container's filesystem, without mounts, the engine's own files and what is
// ignored.
type Manifest map[string]Node

// Paths are sorted.
func (m Manifest) Paths() []string { return slices.Sorted(maps.Keys(m)) }

// Diff lists what differs in now, a line for each path, sorted by path.
func (m Manifest) Diff(now Manifest) []string {
	paths := maps.Clone(m)
	maps.Copy(paths, now)
	var lines []string
	for _, at := range paths.Paths() {
		was, had := m[at]
		is, has := now[at]
		had, has = had && !was.Same, has && !is.Same
		switch {
		case !had && !has:
		case !had && is.Kind == kindGone:
			lines = append(lines, "- "+at)
		case !had && is.Over:
			lines = append(lines, "~ "+at+" (changed)")
		case !has && (was.Kind == kindGone || was.Over):
			lines = append(lines, "~ "+at+" (as before the step)")
		case !had:
			lines = append(lines, "+ "+at)
		case !has:
			lines = append(lines, "- "+at)
		case !was.equals(is):
			lines = append(lines, "~ "+at+" ("+strings.Join(was.differs(is), ", ")+")")
		}
	}
	return lines
}

// Difference is what is at a path, before and after; the zero Node is nothing.
type Difference struct {
	Was Node `json:"was,omitzero"`
	Is  Node `json:"is,omitzero"`
}

// Differences are what Diff tells, by path.
func (m Manifest) Differences(now Manifest) map[string]Difference {
	all := map[string]Difference{}
	for _, line := range m.Diff(now) {
		at := PathOf(line)
		all[at] = Difference{m[at], now[at]}
	}
	return all
}

// Accept is the manifest with those of the differences that now shows, where each begins from what
// the manifest has.
func (m Manifest) Accept(all map[string]Difference, now Manifest) Manifest {
	if len(all) == 0 {
		return m
	}
	accepted := maps.Clone(m)
	for at, d := range all {
		is, there := now[at]
		switch {
		case !m[at].equals(d.Was) || !is.equals(d.Is):
		case there:
			accepted[at] = is
		default:
			delete(accepted, at)
		}
	}
	return accepted
}

func (n Node) equals(other Node) bool {
	if n.MTime == unknownTime || other.MTime == unknownTime {
		n.MTime = other.MTime
	}
	return n == other
}

func (n Node) differs(is Node) []string {
	var what []string
	add := func(differs bool, format string, args ...any) {
		if differs {
			what = append(what, fmt.Sprintf(format, args...))
		}
	}
	add(n.Kind != is.Kind || n.Device != is.Device, "kind")
	add(n.Digest != is.Digest || n.Size != is.Size, "content, %d -> %s", n.Size, activities.CountOf(is.Size, "byte"))
	add(n.Link != is.Link, "link %s -> %s", n.Link, is.Link)
	add(n.File != is.File, "names of one file")
	add(n.Mode != is.Mode, "mode %04o -> %04o", n.Mode, is.Mode)
	add(n.Owner != is.Owner, "owner %s -> %s", n.Owner, is.Owner)
	add(n.Caps != is.Caps, "capabilities")
	add(n.MTime != is.MTime && n.MTime != unknownTime && is.MTime != unknownTime, "time")
	return what
}

// PathOf is the path in a line of a Diff.
func PathOf(line string) string {
	at := line[len("+ "):]
	if line[0] == '~' {
		at = at[:strings.LastIndex(at, " (")]
	}
	return at
}

// MarkPrefix begins the names of what images and some storage drivers take for marks of deleted
// files.
const MarkPrefix = layer.MarkPrefix

// FindMark finds, in a Diff, a path of a container that is new and has such a name.
func FindMark(diff []string) string {
	for _, line := range diff {
		if at := PathOf(line); strings.HasPrefix(line, "+ /") && strings.HasPrefix(path.Base(at), MarkPrefix) {
			return at
		}
	}
	return ""
}

// Few shortens a Diff for a report.
func Few(lines []string) []string {
	const most = 20
	if len(lines) <= most {
		return lines
	}
	return append(lines[:most:most], "and "+activities.CountOf(len(lines)-most, "more path"))
}

// Files is the manifest without volumes, whose paths begin with the name of the volume: see package
// volumes.
func (m Manifest) Files() Manifest {
	return m.where(func(at string) bool { return strings.HasPrefix(at, "/") })
}

// Volumes is the manifest of volumes alone.
func (m Manifest) Volumes() Manifest {
	return m.where(func(at string) bool { return !strings.HasPrefix(at, "/") })
}

func (m Manifest) where(keep func(at string) bool) Manifest {
	some := Manifest{}
	for at, n := range m {
		if keep(at) {
			some[at] = n
		}
	}
	return some
}
