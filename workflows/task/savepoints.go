package task

import (
	"fmt"
	"strconv"
)

// checkSavepoints checks the names of savepoints, and the ways back to them.
func (r *referenceChecker) checkSavepoints() {
	index := map[identifier]int{}
	for i, s := range r.doc.file.Steps {
		if s.Savepoint == "" {
			continue
		}
		if first, taken := index[s.Savepoint]; taken {
			n := s.node.findValue("savepoint")
			r.complain(n, s.at.key("savepoint"), n.display(),
				"this name is taken by the savepoint of "+r.doc.file.Steps[first].at.String()+" in line "+
					strconv.Itoa(r.doc.file.Steps[first].node.line), "rename one of them")

			continue
		}
		index[s.Savepoint] = i
	}
	pivot := -1 // the last one above step i
	for i, s := range r.doc.file.Steps {
		if s.OnFailure != nil && s.OnFailure.To != "" {
			r.checkWayBack(i, index, pivot)
		}
		if s.Pivot {
			pivot = i
		}
	}
}

// checkWayBack checks that step i can go back to the savepoint that it names.
func (r *referenceChecker) checkWayBack(i int, savepoints map[identifier]int, pivot int) {
	s := r.doc.file.Steps[i]
	n, at := s.node.findValue("on_failure").findValue(string(FailUnwindTo)),
		s.at.key("on_failure").key(string(FailUnwindTo))
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
			fix = suggestOrList(s.OnFailure.To, above, "savepoints up to this step")
		}
		r.complain(n, at, n.display(), "there is no such savepoint", fix)
	case on > i:
		r.complain(n, at, n.display(), "this savepoint comes later, in line "+strconv.Itoa(r.doc.file.Steps[on].node.line),
			"name one on this step or on a step above it")

	case on <= pivot:
		r.complain(n, at, n.display(),
			fmt.Sprintf("step %s in line %d stands in between and is a pivot, which is never unwound",
				r.doc.file.Steps[pivot].ID, r.doc.file.Steps[pivot].node.line),
			"name a savepoint below that step, or take its pivot away")
	}
}
