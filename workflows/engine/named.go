package engine

import (
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// named is what a step touches.
type named struct{ keys, changes, reads []string }

func NamesOf(s task.Step) named { return named{s.Keys, s.Changes, s.Reads} }

func NamesIn(e activities.Entry) named { return named{e.Keys, e.Changes, e.Reads} }

func (n named) size() int { return payload.SizeOf(n.changes) + payload.SizeOf(n.reads) }

func (n named) changed() [2][]string { return [2][]string{n.keys, n.changes} }

// Meets reports whether two steps touch the same resource, or one that is part of the other, which
// not both only read. A step without keys may touch any.
func (n named) Meets(other named) bool {
	if n.keys == nil || other.keys == nil {
		return true
	}
	for _, mine := range n.changed() {
		for _, theirs := range [][]string{other.keys, other.changes, other.reads} {
			if overlap(mine, theirs) {
				return true
			}
		}
	}
	return overlap(n.reads, other.keys) || overlap(n.reads, other.changes)
}

// overlap reports whether two lists of names have one in common, or one that is part of another.
func overlap(a, b []string) bool {
	isIn := func(part, whole string) bool {
		return part == whole || strings.HasPrefix(part, strings.TrimSuffix(whole, "/")+"/")
	}
	for _, k := range a {
		if slices.ContainsFunc(b, func(o string) bool { return isIn(k, o) || isIn(o, k) }) {
			return true
		}
	}
	return false
}
