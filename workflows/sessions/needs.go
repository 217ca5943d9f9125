package sessions

import (
	"slices"

	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// maxOverlaps is how many steps with a common resource a step lists as its needs; beyond that it
// needs all before it.
const maxOverlaps = 50

// completeNeeds returns the needs of a step with those that its request could not know. first is
// the index of the first step of that request.
func (t *session) completeNeeds(step task.Step, first int) []string {
	isGone := func(id string) bool { // one that never began is gone without an undo
		s := t.Schedule.ByID[id]
		return s != nil && (s.View.State == protocol.RolledBack || s.View.State == protocol.LeftOut)
	}
	if t.looseAt != t.Rollbacks.Undone || slices.ContainsFunc(t.loose, isGone) {
		t.findLoose()
	}
	needs := step.Needs
	follows := step.Follows
	if names := engine.NamesOf(step); !follows {
		var overlaps []string
		for _, e := range t.Saga.Entries() {
			if e.Place.Queue == step.Place.Queue && engine.NamesIn(e).Meets(names) {
				overlaps = append(overlaps, e.Step)
			}
		}
		for _, s := range t.Schedule.Steps[:first] {
			if (s.Seq == 0 || s.Rollback != nil) && !s.IsOver() && s.Step.Place.Queue == step.Place.Queue &&
				engine.NamesOf(s.Step).Meets(names) {
				overlaps = append(overlaps, s.Step.ID)
			}
		}
		if follows = len(overlaps) > maxOverlaps; !follows {
			needs = append(overlaps, needs...)
		}
	}
	if follows {
		needs = append(slices.Clone(t.loose), needs...)
	}
	var distinct []string
	for _, id := range needs {
		if !slices.Contains(distinct, id) {
			distinct = append(distinct, id)
		}
	}
	t.loose = append(slices.DeleteFunc(t.loose, func(id string) bool { return slices.Contains(distinct, id) }), step.ID)
	return distinct
}

// findLoose finds the steps that no other one needs, after some were undone.
func (t *session) findLoose() {
	isNeeded := map[string]bool{}
	var ids []string
	for _, e := range t.Saga.Entries() {
		ids = append(ids, e.Step)
		for _, need := range e.Needs {
			isNeeded[need] = true
		}
	}
	for _, s := range t.Schedule.Steps {
		if s.Seq > 0 || s.IsOver() {
			continue
		}
		ids = append(ids, s.Step.ID)
		for _, need := range s.Step.Needs {
			isNeeded[need] = true
		}
	}
	t.loose = slices.DeleteFunc(ids, func(id string) bool { return isNeeded[id] })
	t.looseAt = t.Rollbacks.Undone
}
