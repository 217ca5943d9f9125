package task

import (
	"path"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// touch names what a step touches.
type touch struct {
	place string
	// unknown: the resource cannot be named, so it may be any in the place.
	unknown bool
	keys    []key
}

// key names a resource.
type key struct {
	prefix, value string
	path          bool
}

func (k key) String() string { return k.prefix + k.value }

// keyNames returns the keys as a Step holds them; nil where they cannot be named.
func (t touch) keyNames() []string {
	if t.unknown {
		return nil
	}
	names := []string{}
	for _, k := range t.keys {
		names = append(names, k.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// nameTouched names the resources that a step with these parameters touches.
func nameTouched(spec activities.Spec, with *node) touch {
	t := touch{unknown: spec.Keys == nil}
	for _, k := range spec.Keys {
		for _, n := range valuesAt(with, strings.Split(k.Param, ".")) {
			switch n.kind {
			case null:
				continue
			case list, object:
				t.unknown = true
				continue
			}
			template, _ := parseTemplate(n.text)
			value, named := template.plain()
			if !named {
				t.unknown = true
				continue
			}
			if k.Path {
				value = path.Clean(value)
			}
			t.keys = append(t.keys, key{prefix: k.Prefix, value: value, path: k.Path})
		}
	}
	for _, param := range spec.Reads { // what nobody can name yet may be what another step writes
		for _, n := range valuesAt(with, strings.Split(param, ".")) {
			if template, _ := parseTemplate(n.text); n.kind == text {
				_, named := template.plain()
				t.unknown = t.unknown || !named
			}
		}
	}
	for _, param := range spec.Names {
		for _, n := range valuesAt(with, strings.Split(param, ".")) {
			template, _ := parseTemplate(n.text)
			t.unknown = t.unknown || slices.ContainsFunc(template, func(p part) bool { return p.kind == outputRef })
		}
	}
	return t
}

// mayChange returns the prefixes of keys of what the step may make or change besides its own keys.
func (t touch) mayChange(spec activities.Spec) []string {
	switch {
	case spec.Keys == nil:
		return []string{""}
	case !t.unknown:
		return spec.MayChange
	}
	prefixes := slices.Clone(spec.MayChange)
	for _, k := range spec.Keys { // one of these, though it is not known which
		prefixes = append(prefixes, k.Prefix)
	}
	slices.Sort(prefixes)
	return slices.Compact(prefixes)
}

// MayChange reports whether a step before the one at index i can make or change the resource with a
// key.
func (c Compiled) MayChange(i int, key string) bool {
	return slices.ContainsFunc(c.Steps[:i], func(s Step) bool {
		return slices.ContainsFunc(s.MayChange, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) ||
			slices.ContainsFunc(s.Keys, func(own string) bool { return isWithin(own, key) || isWithin(key, own) })
	})
}

// isWithin reports whether a key names the same as another, or a path below it.
func isWithin(folder, key string) bool {
	return key == folder || strings.HasPrefix(key, strings.TrimSuffix(folder, "/")+"/")
}

// valuesAt returns the values at a dotted path; "*" is each item of a list or map. A text with an
// expression in place of a list or map is returned itself, because what it will hold is not known.
func valuesAt(n *node, names []string) []*node {
	if len(names) == 0 {
		return []*node{n}
	}
	switch {
	case n.kind == text:
		return []*node{n}
	case names[0] == "*":
		var all []*node
		for _, item := range n.items {
			all = append(all, valuesAt(item, names[1:])...)
		}
		for _, f := range n.fields {
			all = append(all, valuesAt(f.value, names[1:])...)
		}
		return all
	}
	if v := n.findValue(names[0]); v != nil {
		return valuesAt(v, names[1:])
	}
	return nil
}

// claims finds, for steps in file order, the earlier ones in the same place that touch the same
// resource. It remembers only the last step on each resource, which follows all earlier ones there.
type claims struct {
	trees map[string]*claim // paths by prefix
	exact map[string]int    // all other keys
	since []int             // the steps since the last unknown one, that one first
	all   bool              // since begins with an unknown one
}

// claim is a node in a tree of paths: the steps that touched it.
type claim struct {
	last    int   // -1: none
	readers []int // since then
	below   map[string]*claim
}

func newClaims() *claims {
	return &claims{trees: map[string]*claim{}, exact: map[string]int{}}
}

// claimStep enters step i, and returns the steps that it must follow.
func (c *claims) claimStep(i int, t touch) (follows []int) {
	if t.unknown {
		follows = c.since
		*c = *newClaims()
		c.since, c.all = []int{i}, true
		return follows
	}
	if c.all {
		follows = append(follows, c.since[0])
	}
	c.since = append(c.since, i)
	for _, k := range t.keys {
		if !k.path {
			if last, taken := c.exact[k.String()]; taken {
				follows = append(follows, last)
			}
			c.exact[k.String()] = i
			continue
		}
		tree := c.trees[k.prefix]
		if tree == nil {
			tree = &claim{last: -1}
			c.trees[k.prefix] = tree
		}
		follows = append(follows, tree.enter(i, components(k.value), false)...)
	}
	return follows
}

// components splits a path into its names. A relative path has none: it may begin anywhere.
func components(p string) []string {
	if !path.IsAbs(p) || p == "/" {
		return nil
	}
	return strings.Split(p[1:], "/")
}

// enter makes i the last step at and below a path, or one that reads there. It returns the steps
// above, at and below that it must follow.
func (c *claim) enter(i int, components []string, reads bool) (met []int) {
	for _, name := range components {
		met = c.meet(met, reads)
		next := c.below[name]
		if next == nil {
			next = &claim{last: -1}
			if c.below == nil {
				c.below = map[string]*claim{}
			}
			c.below[name] = next
		}
		c = next
	}
	met = c.collect(met, reads)
	if reads {
		c.readers = append(c.readers, i)
		return met
	}
	c.last, c.readers, c.below = i, nil, nil // what was below is followed by i
	return met
}

// meet adds the last step that changed what this node names, and those that have read it since
// unless they do not matter.
func (c *claim) meet(met []int, reads bool) []int {
	if c.last >= 0 {
		met = append(met, c.last)
	}
	if !reads {
		met = append(met, c.readers...)
	}
	return met
}

// collect does the same for all that is below, too.
func (c *claim) collect(met []int, reads bool) []int {
	met = c.meet(met, reads)
	for _, name := range sortedKeys(c.below) {
		met = c.below[name].collect(met, reads)
	}
	return met
}
