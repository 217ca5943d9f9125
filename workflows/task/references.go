package task

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// checkReferences checks needs, savepoints and expressions.
func (p *parser) checkReferences(d *Document) {
	index := make(map[string]int, len(d.file.Steps))
	for i, s := range d.file.Steps {
		if s.ID == "" {
			continue
		}
		if first, taken := index[string(s.ID)]; taken {
			n := s.node.findValue("id")
			p.complain(n, s.at.key("id"), n.display(),
				"this id is taken by "+d.file.Steps[first].at.String()+" in line "+strconv.Itoa(d.file.Steps[first].node.line),
				"rename one of them")
			continue
		}
		if _, taken := d.earlier[string(s.ID)]; taken {
			n := s.node.findValue("id")
			p.complain(n, s.at.key("id"), n.display(), "an earlier step has this id", "choose another, or leave the id out")
			continue
		}
		index[string(s.ID)] = i
	}
	r := referenceChecker{parser: p, doc: d, index: index, vars: slices.Sorted(maps.Keys(d.file.Vars))}
	r.checkSavepoints()
	for i, s := range d.file.Steps {
		r.checkNeeds(i)
		for _, f := range propertiesOf(reflect.TypeFor[step]()) {
			if f.expressions != "" {
				r.checkExpressions(s.node.findValue(f.name), s.at.key(f.name), i, f.expressions)
			}
		}
	}
}

// referenceChecker checks what refers to something else in the document.
type referenceChecker struct {
	*parser
	doc   *Document
	index map[string]int
	vars  []string
}

// checkNeeds checks the ids that a step needs.
func (r *referenceChecker) checkNeeds(i int) {
	at := r.doc.file.Steps[i].at.key("needs")
	named := map[string]bool{}
	for j, n := range r.doc.file.Steps[i].Needs.ids {
		if r.full() {
			return
		}
		if !r.requireKind(n, at.item(j), text, "write the id of a step") {
			continue
		}
		if named[n.text] {
			r.complain(n, at.item(j), n.display(), "is named twice", "leave it out")
			continue
		}
		named[n.text] = true
		r.checkNeed(n, at.item(j), n.text, i)
	}
}

// checkNeed checks that step i may build on the step id.
func (r *referenceChecker) checkNeed(n *node, at *trail, id string, i int) {
	other, known := r.index[id]
	_, isEarlier := r.doc.earlier[id]
	switch {
	case isEarlier:
	case !known:
		fix := ""
		if len(*r.problems) < MaxProblems { // the search for it takes its time
			fix = suggestOrList(id, r.stepsBefore(i), "steps before this one")
		}
		r.complain(n, at, strconv.Quote(clip(id)), "there is no such step", fix)
	case other == i:
		r.complain(n, at, strconv.Quote(id), "a step cannot build on itself", "leave it out")
	case other > i:
		message := "this step comes later, in line " + strconv.Itoa(r.doc.file.Steps[other].node.line)
		fix := "a step builds on those above it; move it up"
		if cycle := r.findCycle(other, i); cycle != nil {
			message, fix = "these steps need each other: "+
				strings.Join(append([]string{string(r.doc.file.Steps[i].ID)}, cycle...), " -> "), "take one of these needs away"
			for _, id := range cycle[:len(cycle)-1] {
				if !r.doc.file.Steps[r.index[id]].Needs.written {
					message += "; " + id + " has no needs:, so it needs every step above it"
					fix = "take one of these needs away, or give " + id + " needs: of its own"
				}
			}
		}
		r.complain(n, at, strconv.Quote(id), message, fix)
	}
}

func (r *referenceChecker) stepsBefore(i int) (ids []string) {
	for _, s := range r.doc.file.Steps[:i] {
		if s.ID != "" {
			ids = append(ids, string(s.ID))
		}
	}
	return ids
}

// maxCycle bounds the search for a cycle, which only improves a message.
const maxCycle = 1000

// findCycle returns the path of written needs from one step to another, or nil.
func (r *referenceChecker) findCycle(from, to int) []string {
	if len(*r.problems) > MaxProblems {
		return nil
	}
	seen := map[int]bool{}
	var walk func(i int) []string
	walk = func(i int) []string {
		if i == to {
			return []string{string(r.doc.file.Steps[i].ID)}
		}
		if seen[i] || len(seen) > maxCycle {
			return nil
		}
		seen[i] = true
		if !r.doc.file.Steps[i].Needs.written && to < i {
			return []string{string(r.doc.file.Steps[i].ID), string(r.doc.file.Steps[to].ID)}
		}
		for _, n := range r.doc.file.Steps[i].Needs.ids {
			if next, known := r.index[n.text]; known {
				if way := walk(next); way != nil {
					return append([]string{string(r.doc.file.Steps[i].ID)}, way...)
				}
			}
		}
		return nil
	}
	return walk(from)
}

// checkExpressions checks the expressions in n, a field of step i. allowed is the tag of the field.
func (r *referenceChecker) checkExpressions(n *node, at *trail, i int, allowed string) {
	if n == nil {
		return
	}
	for j, item := range n.items {
		r.checkExpressions(item, at.item(j), i, allowed)
	}
	for _, f := range n.fields {
		r.checkExpressions(f.value, at.key(f.key.text), i, allowed)
	}
	if n.kind != text || !strings.Contains(n.text, "${{") {
		return
	}
	t, bad := parseTemplate(n.text)
	if bad != nil {
		r.complain(n, at, strconv.Quote(bad.found), bad.message, expressionForms)
		return
	}
	for _, part := range t {
		switch {
		case part.kind == literal:
		case part.kind == varRef:
			v := r.doc.file.Vars[part.name]
			if v == nil {
				r.complain(n, at, strconv.Quote(part.text), "there is no such var",
					suggestOrList(part.name, r.vars, "vars of this file"))
			} else if v.kind == null && len(t) > 1 {
				r.complain(n, at, strconv.Quote(part.text), "this var is nothing, and cannot be a part of a text",
					"give it a value")
			}
		case part.kind == targetRef:
			r.complain(n, at, strconv.Quote(part.text), "there is no target here",
				"a target stands in name, with, check, gate and on of the steps of a group, which has for_each")
		case allowed != allExpressions:
			r.complain(n, at, strconv.Quote(part.text), "outputs and secrets may only stand in with",
				"take it out, or use a var")
		case part.kind == outputRef:
			r.checkNeed(n, at, part.step, i)
		}
	}
}
