package found

import (
	"slices"
	"strings"
)

// loss is a difference that a rollback of a container by the plain engine API cannot avoid, and the
// words that its report must contain for the difference to be accepted.
type loss struct {
	thing, fact string // an empty thing is any path
	named       string
	// only reports whether the loss explains a new value.
	only func(is string) bool
}

var known = []loss{
	{thing: itself, fact: "id", named: "it has another id"},
	{thing: itself, fact: "image", named: "its image is named by id"},
	{fact: "part of a second", named: "times below a second",
		only: func(is string) bool { return strings.Trim(is, "0") == "" }},
}

// lose removes from a change what the report has named as lost, and records it.
func (f *Finding) lose(c Change, losses []string) Change {
	if c.Sign != "~" {
		return c
	}
	c.Facts = slices.DeleteFunc(slices.Clone(c.Facts), func(fact string) bool {
		for _, l := range known {
			if l.fact != fact || l.thing != "" && l.thing != c.Thing || l.only != nil && !l.only(c.Is[fact]) {
				continue
			}
			if slices.ContainsFunc(losses, func(said string) bool { return strings.Contains(said, l.named) }) {
				if !slices.Contains(f.Lost, l.named) {
					f.Lost = append(f.Lost, l.named)
				}
				return true
			}
		}
		return false
	})
	return c
}
