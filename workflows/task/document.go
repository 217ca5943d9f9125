package task

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Document is a task file that Parse has found well formed. It is never changed.
type Document struct {
	// File is the name that problems carry.
	File string
	// Name and Agent are the task's.
	Name, Agent string
	// Timeout is the task's deadline; zero: none.
	Timeout time.Duration

	root      *node
	vars      map[string]*node // values with expressions' escapes taken out
	steps     []step
	onFailure FailureMode // of steps that do not say
	unwind    UnwindMode
	keep      time.Duration // zero: the default
	pinned    bool
}

// Parse reads a task file, YAML or JSON. Its error is a Problems: all that is wrong with the file as far as it can be seen
// without knowing the actions; Compile sees the rest.
func Parse(filename string, src []byte) (*Document, error) {
	if filename == "" {
		filename = "task"
	}
	var problems Problems
	c := collector{file: filename, problems: &problems}
	root := read(src, &c)
	if root == nil || c.full() {
		return nil, c.err()
	}
	return parse(root, c)
}

// parse makes a document of a tree.
func parse(root *node, c collector) (*Document, error) {
	p := parser{collector: c}
	d := &Document{File: c.file, root: root, vars: map[string]*node{}}
	f := p.fields(root, nil, "$schema", "name", "agent", "vars", "timeout", "on_failure", "unwind", "keep", "pinned", "steps")
	if f == nil {
		return nil, c.err()
	}
	p.text(f["$schema"], p.at("$schema"), MaxKey)
	if p.required(root, f, nil, "name", "name: what the task does") {
		d.Name = p.title(f["name"], p.at("name"))
	}
	d.Agent = p.title(f["agent"], p.at("agent"))
	d.Timeout = p.duration(f["timeout"], p.at("timeout"))
	d.onFailure = p.failureMode(f["on_failure"], p.at("on_failure"))
	d.unwind = p.unwindMode(f["unwind"], p.at("unwind"))
	d.keep = p.duration(f["keep"], p.at("keep"))
	d.pinned = p.boolean(f["pinned"], p.at("pinned"))
	p.vars(f["vars"], d.vars)
	if p.required(root, f, nil, "steps", "steps: a list of steps") {
		d.steps = p.steps(f["steps"])
	}
	p.references(d)
	if size := root.size(); size > MaxDocument {
		p.add(root, nil, "", fmt.Sprintf("the task has %d bytes as JSON, more than %d", size, MaxDocument), largeTask)
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	return d, nil
}

// JSON is the document in the shape that it was written in: what a workflow is started with. Parse reads the same
// document from it.
func (d *Document) JSON() ([]byte, error) {
	if d.root == nil {
		return nil, fmt.Errorf("the document was not made by Parse")
	}
	return d.root.json(nil), nil
}

// Override is the document with other values for some of its vars. A text takes the place of a number or of true and
// false where it reads like one, so that values can come from a command line.
func (d *Document) Override(vars map[string]any) (*Document, error) {
	if len(vars) == 0 {
		return d, nil
	}
	var problems Problems
	c := collector{file: d.File, problems: &problems}
	declared := d.root.get("vars")
	known := slices.Sorted(maps.Keys(d.vars))
	values := map[string]*node{}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		at := (&trail{name: "vars"}).key(name)
		old := declared.get(name)
		if old == nil {
			c.add(declared, at, "", "the task file has no such var", meant(name, known, "its vars"))
			continue
		}
		n, err := nodeOf(vars[name], old)
		if err != nil {
			c.add(old, at, "", "the new value cannot be written as JSON: "+err.Error(), "")
			continue
		}
		if n.kind == text && (old.kind == number || old.kind == boolean) {
			if read := read([]byte(n.text), &collector{problems: new(Problems)}); read != nil && read.kind == old.kind {
				n = read.moved(old)
			} else {
				c.add(old, at, n.shown(), "the new value must be "+old.kind.String()+" as in the file", "")
				continue
			}
		}
		values[name] = n.mapText(func(n *node) *node {
			m := *n
			m.text = escape(n.text)
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
	return parse(&root, c)
}

var varName = regexp.MustCompile(`^` + varPattern + `$`)

// vars reads vars into values.
func (p *parser) vars(n *node, values map[string]*node) {
	if !p.is(n, p.at("vars"), object, "write a key and a value a line") {
		return
	}
	if size := n.size(); size > MaxVars {
		p.add(n, p.at("vars"), "", fmt.Sprintf("the vars have %d bytes, more than %d", size, MaxVars), "keep large content in a file and name it with source:")
	}
	for _, f := range n.fields {
		at := p.at("vars").key(f.key.text)
		if !varName.MatchString(f.key.text) {
			p.add(f.key, at, "", "the name of a var has letters, digits, _ and -, begins with no digit, and is at most 100 long", "rename it")
		}
		values[f.key.text] = f.value.mapText(func(n *node) *node {
			t, bad := parseTemplate(n.text)
			if bad != nil {
				p.add(n, at, strconv.Quote(bad.found), bad.message, expressionForms)
				return n
			}
			plain, ok := t.plain()
			if !ok {
				p.add(n, at, n.shown(), "a var cannot hold an expression", "write the expression where the var is used; for the text itself write $${{")
			}
			m := *n
			m.text = plain
			return &m
		})
	}
}

// title reads a name for people that no expression may stand in.
func (p *parser) title(n *node, at *trail) string {
	s := p.line(n, at, MaxName)
	if strings.Contains(s, "${{") {
		p.add(n, at, n.shown(), "no expression may stand here", "write the text out")
	}
	return s
}
