package task

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// The words of the file for what takes no room once it is compiled.
const (
	wordUnwind = "unwind"
	wordLIFO   = "lifo"
)

var (
	failureWords = []string{wordUnwind, string(FailRollbackStep), string(FailContinue)}
	unwindWords  = []string{wordLIFO, string(UnwindParallel)}
)

// failureMode reads what happens when a step fails, as a word.
func (p *parser) failureMode(n *node, at *trail) FailureMode {
	if n != nil && n.kind == object {
		p.add(n, at, n.shown(), "must be text", "one of unwind, rollback_step, continue; unwind_to stands in the step that it is for")
		return FailUnwind
	}
	if n != nil && n.text == string(FailUnwindTo) {
		p.add(n, at, n.shown(), "names no savepoint", "write it in the step that it is for, as {unwind_to: SAVEPOINT}")
		return FailUnwind
	}
	if word := p.word(n, at, failureWords...); word != wordUnwind {
		return FailureMode(word)
	}
	return FailUnwind
}

// onFailure reads what happens when a step fails; nil: as the task has it.
func (p *parser) onFailure(n *node, at *trail) *OnFailure {
	if n == nil {
		return nil
	}
	if n.kind != object {
		return &OnFailure{Do: p.failureMode(n, at)}
	}
	f := p.fields(n, at, string(FailUnwindTo), "times")
	o := &OnFailure{Do: FailUnwindTo, Times: 1}
	if p.required(n, f, at, string(FailUnwindTo), "unwind_to: the name of a savepoint") {
		o.To = p.savepoint(f[string(FailUnwindTo)], at.key(string(FailUnwindTo)))
	}
	if f["times"] != nil {
		o.Times = p.count(f["times"], at.key("times"), MaxTimes, "write how often it goes back, as in 2")
	}
	return o
}

// unwindMode reads in which order the task is undone.
func (p *parser) unwindMode(n *node, at *trail) UnwindMode {
	if word := p.word(n, at, unwindWords...); word != wordLIFO {
		return UnwindMode(word)
	}
	return UnwindLIFO
}

// savepoint reads the name of a savepoint, which has the form of an id. No expression stands in it.
func (p *parser) savepoint(n *node, at *trail) string {
	if !p.is(n, at, text, "write a name, as in before-deploy") {
		return ""
	}
	if !idForm.MatchString(n.text) {
		p.add(n, at, n.shown(), "must begin with a small letter and have at most 63 of a-z, 0-9, _ and -", "rename it")
		return ""
	}
	return n.text
}

// savepoints checks the names of savepoints, and the ways back to them.
func (r *referee) savepoints() {
	index := map[string]int{}
	for i, s := range r.doc.steps {
		if s.savepoint == "" {
			continue
		}
		if first, taken := index[s.savepoint]; taken {
			n := s.node.get("savepoint")
			r.add(n, s.at.key("savepoint"), n.shown(),
				"this name is taken by the savepoint of "+r.doc.steps[first].at.String()+" in line "+strconv.Itoa(r.doc.steps[first].node.line), "rename one of them")
			continue
		}
		index[s.savepoint] = i
	}
	pivot := -1 // the last one above step i
	for i, s := range r.doc.steps {
		if s.onFailure != nil && s.onFailure.To != "" {
			r.wayBack(i, index, pivot)
		}
		if s.pivot {
			pivot = i
		}
	}
}

// wayBack checks that step i can go back to the savepoint that it names.
func (r *referee) wayBack(i int, savepoints map[string]int, pivot int) {
	s := r.doc.steps[i]
	n, at := s.node.get("on_failure").get(string(FailUnwindTo)), s.at.key("on_failure").key(string(FailUnwindTo))
	on, known := savepoints[s.onFailure.To]
	switch {
	case !known:
		fix := ""
		if len(*r.problems) < MaxProblems { // the search for it takes its time
			var above []string
			for j, other := range r.doc.steps[:i+1] {
				if on, named := savepoints[other.savepoint]; named && on == j {
					above = append(above, other.savepoint)
				}
			}
			fix = meant(s.onFailure.To, above, "savepoints up to this step")
		}
		r.add(n, at, n.shown(), "there is no such savepoint", fix)
	case on > i:
		r.add(n, at, n.shown(), "this savepoint comes later, in line "+strconv.Itoa(r.doc.steps[on].node.line),
			"name one on this step or on a step above it")
	case on <= pivot:
		r.add(n, at, n.shown(), fmt.Sprintf("step %s in line %d stands in between and is a pivot, which is never unwound", r.doc.steps[pivot].id, r.doc.steps[pivot].node.line),
			"name a savepoint below that step, or take its pivot away")
	}
}

// window is the rollback window, zero where it is the default. What is longer than the server keeps closed runs is refused.
func (c *compiler) window() time.Duration {
	keep, n := cmp.Or(c.doc.keep, activities.DefaultKeep), c.doc.root.get("keep")
	if kept := writeDuration(c.cat.Retention); c.cat.Retention > 0 && keep > c.cat.Retention {
		const way = "or raise the retention of the namespace"
		if n == nil {
			c.add(c.doc.root, c.at("keep"), "",
				fmt.Sprintf("is missing, and its default of %s is longer than the %s that the server keeps closed runs", writeDuration(keep), kept),
				"add keep: "+kept+", "+way)
		} else {
			c.add(n, c.at("keep"), n.shown(), "is longer than the "+kept+" that the server keeps closed runs", "write at most "+kept+", "+way)
		}
	}
	if keep == activities.DefaultKeep {
		return 0
	}
	return keep
}
