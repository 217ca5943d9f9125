package task

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// savepoints checks the names of savepoints, and the ways back to them.
func (r *referee) savepoints() {
	index := map[identifier]int{}
	for i, s := range r.doc.file.Steps {
		if s.Savepoint == "" {
			continue
		}
		if first, taken := index[s.Savepoint]; taken {
			n := s.node.get("savepoint")
			r.add(n, s.at.key("savepoint"), n.shown(),
				"this name is taken by the savepoint of "+r.doc.file.Steps[first].at.String()+" in line "+strconv.Itoa(r.doc.file.Steps[first].node.line), "rename one of them")
			continue
		}
		index[s.Savepoint] = i
	}
	pivot := -1 // the last one above step i
	for i, s := range r.doc.file.Steps {
		if s.OnFailure != nil && s.OnFailure.To != "" {
			r.wayBack(i, index, pivot)
		}
		if s.Pivot {
			pivot = i
		}
	}
}

// wayBack checks that step i can go back to the savepoint that it names.
func (r *referee) wayBack(i int, savepoints map[identifier]int, pivot int) {
	s := r.doc.file.Steps[i]
	n, at := s.node.get("on_failure").get(string(FailUnwindTo)), s.at.key("on_failure").key(string(FailUnwindTo))
	on, known := savepoints[identifier(s.OnFailure.To)]
	switch {
	case !known:
		fix := ""
		if len(*r.problems) < MaxProblems { // the search for it takes its time
			var above []string
			for j, other := range r.doc.file.Steps[:i+1] {
				if on, named := savepoints[other.Savepoint]; named && on == j {
					above = append(above, string(other.Savepoint))
				}
			}
			fix = meant(s.OnFailure.To, above, "savepoints up to this step")
		}
		r.add(n, at, n.shown(), "there is no such savepoint", fix)
	case on > i:
		r.add(n, at, n.shown(), "this savepoint comes later, in line "+strconv.Itoa(r.doc.file.Steps[on].node.line),
			"name one on this step or on a step above it")
	case on <= pivot:
		r.add(n, at, n.shown(), fmt.Sprintf("step %s in line %d stands in between and is a pivot, which is never unwound", r.doc.file.Steps[pivot].ID, r.doc.file.Steps[pivot].node.line),
			"name a savepoint below that step, or take its pivot away")
	}
}

// window is the rollback window, zero where it is the default. What is longer than the server keeps closed runs is refused.
func (c *compiler) window() time.Duration {
	keep, n := cmp.Or(time.Duration(c.doc.file.Keep), activities.DefaultKeep), c.doc.root.get("keep")
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
