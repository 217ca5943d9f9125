package task

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// Document is a task file that Parse has found well formed. It is never changed.
type Document struct {
	// File is the name that problems carry.
	File string
	// Name and Agent are the task's.
	Name, Agent string
	// Timeout is the task's deadline; zero: none.
	Timeout time.Duration

	root     *node
	expanded *node // root with the steps of groups in place of these
	file     file
	earlier  map[string]string // of steps that are added to a session: those before them that they may refer to
}

// Parse reads a task file, YAML or JSON. Its error is a Problems: everything that is wrong with the
// file and can be seen without knowing the actions; Compile sees the rest.
func Parse(filename string, src []byte) (*Document, error) {
	if filename == "" {
		filename = "task"
	}
	var problems Problems
	c := collector{file: filename, problems: &problems}
	root := readSource(src, &c)
	if root == nil || c.full() {
		return nil, c.err()
	}
	return parse(root, c, nil)
}

// parse makes a document from a tree.
func parse(root *node, c collector, earlier map[string]string) (*Document, error) {
	p := parser{collector: c}
	d := &Document{File: c.file, root: root, expanded: p.expandGroups(root, earlier != nil), earlier: earlier}
	if !p.decodeObject(d.expanded, nil, &d.file) {
		return nil, c.err()
	}
	d.Name, d.Agent, d.Timeout = string(d.file.Name), string(d.file.Agent), time.Duration(d.file.Timeout)
	if n := root.findValue("steps"); n != nil && n.kind == list && len(n.items) == 0 && d.file.Session == nil {
		p.complain(n, p.newTrail("steps"), "", fmt.Sprintf("has 0 steps; a task has 1 to %d", MaxSteps),
			"add a step, or make the task a session by `session: {}`")
	}
	p.checkReferences(d)
	if size := root.size(); size > MaxDocument {
		p.complain(root, nil, "",
			fmt.Sprintf("the task has %s as JSON, more than %d", activities.CountOf(size, "byte"), MaxDocument), largeTask)
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	return d, nil
}

// JSON returns the document as it was written, to start a workflow with. Parse reads the same
// document from it.
func (d *Document) JSON() ([]byte, error) {
	if d.root == nil {
		return nil, fmt.Errorf("the document was not made by Parse")
	}
	return d.root.json(nil), nil
}

// Placed says of each step, by id, whether the file names its host.
func (d *Document) Placed() map[string]bool {
	placed := make(map[string]bool, len(d.file.Steps))
	for _, s := range d.file.Steps {
		placed[string(s.ID)] = s.node.findValue("on") != nil
	}
	return placed
}

// Override returns the document with other values for some of its vars. A text replaces a number or
// a truth value if it reads like one, so that values can come from a command line.
func (d *Document) Override(vars map[string]any) (*Document, error) {
	if len(vars) == 0 {
		return d, nil
	}
	var problems Problems
	c := collector{file: d.File, problems: &problems}
	declared := d.root.findValue("vars")
	known := slices.Sorted(maps.Keys(d.file.Vars))
	values := map[string]*node{}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		at := (&trail{name: "vars"}).key(name)
		old := declared.findValue(name)
		if old == nil {
			c.complain(declared, at, "", "the task file has no such var", suggestOrList(name, known, "its vars"))
			continue
		}
		n, err := nodeOf(vars[name], old)
		if err != nil {
			c.complain(old, at, "", "the new value cannot be written as JSON: "+err.Error(), "")
			continue
		}
		if n.kind == text && (old.kind == number || old.kind == boolean) {
			if read := readSource([]byte(n.text), &collector{problems: new(Problems)}); read != nil && read.kind == old.kind {
				n = read.moveTo(old)
			} else {
				c.complain(old, at, n.display(), "the new value must be "+old.kind.String()+" as in the file", "")
				continue
			}
		}
		values[name] = n.mapText(func(n *node) *node {
			m := *n
			m.text = Escape(n.text)
			return &m
		})
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	root := *d.root
	root.fields = slices.Clone(root.fields)
	for i, f := range root.fields {
		if f.key.text == "vars" {
			m := *f.value
			m.fields = slices.Clone(m.fields)
			for j, v := range m.fields {
				if n := values[v.key.text]; n != nil {
					m.fields[j].value = n
				}
			}
			root.fields[i].value = &m
		}
	}
	return parse(&root, c, d.earlier)
}
