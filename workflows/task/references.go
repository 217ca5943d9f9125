package task

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// references checks all that refers to something else in the document: needs, savepoints and expressions.
func (p *parser) references(d *Document) {
	index := make(map[string]int, len(d.steps))
	for i, s := range d.steps {
		if s.id == "" {
			continue
		}
		if first, taken := index[s.id]; taken {
			n := s.node.get("id")
			p.add(n, s.at.key("id"), n.shown(), "this id is taken by "+d.steps[first].at.String()+" in line "+strconv.Itoa(d.steps[first].node.line), "rename one of them")
			continue
		}
		index[s.id] = i
	}
	r := referee{parser: p, doc: d, index: index, vars: slices.Sorted(maps.Keys(d.vars))}
	r.savepoints()
	for i, s := range d.steps {
		r.needs(i)
		for _, name := range [...]string{"name", "on", "check", "gate"} {
			r.expressions(s.node.get(name), s.at.key(name), -1)
		}
		if s.with != nil {
			r.expressions(s.with, s.at.key("with"), i)
		}
	}
}

type referee struct {
	*parser
	doc   *Document
	index map[string]int
	vars  []string
}

// needs checks the ids that a step needs.
func (r *referee) needs(i int) {
	at := r.doc.steps[i].at.key("needs")
	named := map[string]bool{}
	for j, n := range r.doc.steps[i].needs {
		if r.full() {
			return
		}
		if !r.is(n, at.item(j), text, "write the id of a step") {
			continue
		}
		if named[n.text] {
			r.add(n, at.item(j), n.shown(), "is named twice", "leave it out")
			continue
		}
		named[n.text] = true
		r.step(n, at.item(j), n.text, i)
	}
}

// step checks that step i may build on the step id.
func (r *referee) step(n *node, at *trail, id string, i int) {
	other, known := r.index[id]
	switch {
	case !known:
		fix := ""
		if len(*r.problems) < MaxProblems { // the search for it takes its time
			fix = meant(id, r.before(i), "steps before this one")
		}
		r.add(n, at, strconv.Quote(clip(id)), "there is no such step", fix)
	case other == i:
		r.add(n, at, strconv.Quote(id), "a step cannot build on itself", "leave it out")
	case other > i:
		message := "this step comes later, in line " + strconv.Itoa(r.doc.steps[other].node.line)
		fix := "a step builds on those above it; move it up"
		if cycle := r.cycle(other, i); cycle != nil {
			message, fix = "these steps need each other: "+strings.Join(append([]string{r.doc.steps[i].id}, cycle...), " -> "), "take one of these needs away"
		}
		r.add(n, at, strconv.Quote(id), message, fix)
	}
}

func (r *referee) before(i int) (ids []string) {
	for _, s := range r.doc.steps[:i] {
		if s.id != "" {
			ids = append(ids, s.id)
		}
	}
	return ids
}

// maxCycle bounds the search for a cycle: it only makes a message better.
const maxCycle = 1000

// cycle is the way from a step down to another by the needs that are written, or nil.
func (r *referee) cycle(from, to int) []string {
	if len(*r.problems) > MaxProblems {
		return nil
	}
	seen := map[int]bool{}
	var walk func(i int) []string
	walk = func(i int) []string {
		if i == to {
			return []string{r.doc.steps[i].id}
		}
		if seen[i] || len(seen) > maxCycle {
			return nil
		}
		seen[i] = true
		if r.doc.steps[i].inOrder && to < i {
			return []string{r.doc.steps[i].id, r.doc.steps[to].id}
		}
		for _, n := range r.doc.steps[i].needs {
			if next, known := r.index[n.text]; known {
				if way := walk(next); way != nil {
					return append([]string{r.doc.steps[i].id}, way...)
				}
			}
		}
		return nil
	}
	return walk(from)
}

// expressions checks those in n. In a step's with (whose index is i) all kinds may stand; elsewhere (i < 0) only vars.
func (r *referee) expressions(n *node, at *trail, i int) {
	if n == nil {
		return
	}
	for j, item := range n.items {
		r.expressions(item, at.item(j), i)
	}
	for _, f := range n.fields {
		r.expressions(f.value, at.key(f.key.text), i)
	}
	if n.kind != text || !strings.Contains(n.text, "${{") {
		return
	}
	t, bad := parseTemplate(n.text)
	if bad != nil {
		r.add(n, at, strconv.Quote(bad.found), bad.message, expressionForms)
		return
	}
	for _, part := range t {
		switch {
		case part.kind == literal:
		case part.kind == varRef:
			v := r.doc.vars[part.name]
			if v == nil {
				r.add(n, at, strconv.Quote(part.text), "there is no such var", meant(part.name, r.vars, "vars of this file"))
			} else if v.kind == null && len(t) > 1 {
				r.add(n, at, strconv.Quote(part.text), "this var is nothing, and cannot be a part of a text", "give it a value")
			}
		case i < 0:
			r.add(n, at, strconv.Quote(part.text), "outputs and secrets may only stand in with", "take it out, or use a var")
		case part.kind == outputRef:
			r.step(n, at, part.step, i)
		}
	}
}
