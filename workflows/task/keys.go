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
	return t
}

// valuesAt returns the values at a dotted path; "*" is each item of a list or map. A text with an expression in place of a list or
// map is returned itself, because what it will hold is not known.
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
	if v := n.get(names[0]); v != nil {
		return valuesAt(v, names[1:])
	}
	return nil
}

// claims finds, for steps in file order, the earlier ones in the same place that touch the same resource. It remembers
// only the last step on each resource, which follows all earlier ones there.
type claims struct {
	trees map[string]*claim // paths by prefix
	exact map[string]int    // all other keys
	since []int             // the steps since the last unknown one, that one first
	all   bool              // since begins with an unknown one
}

// claim is a node in a tree of paths: the last step that touched it, or -1.
type claim struct {
	last  int
	below map[string]*claim
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
		follows = append(follows, tree.enter(i, components(k.value))...)
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

// enter makes i the last step at and below a path. It returns the last steps above, at and below it.
func (c *claim) enter(i int, components []string) (met []int) {
	for _, name := range components {
		if c.last >= 0 {
			met = append(met, c.last)
		}
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
	met = c.lastBelow(met)
	c.last, c.below = i, nil // what was below is followed by i
	return met
}

func (c *claim) lastBelow(met []int) []int {
	if c.last >= 0 {
		met = append(met, c.last)
	}
	for _, name := range sortedKeys(c.below) {
		met = c.below[name].lastBelow(met)
	}
	return met
}
