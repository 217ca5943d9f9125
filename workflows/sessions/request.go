package sessions

import (
	"maps"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// request is an update of a session that was accepted.
type request struct {
	id     string
	digest activities.Digest
	steps  []string                       // the ids of the steps that it has added
	over   map[string]protocol.StepAnswer // those of them that ended in an earlier run
	// rollback is what it undoes; nil if it undoes nothing, or earlier runs have undone it.
	rollback  *engine.Rollback
	undone    []compensations.StepReport // by an earlier run
	savepoint string
	context   *protocol.Context
	ends      bool  // it ends the session
	checking  bool  // it is being carried out: nothing of it is under way yet
	refusal   error // why it was refused
	told      bool  // an update has answered with its end
}

// answers remembers the requests of a session, so that each one is carried out once, whatever run
// of the chain meets it.
type answers struct {
	requests map[string]*request // of this run, and those of earlier runs that are not over
	order    []string            // their ids
	kept     []protocol.Answer   // to requests of earlier runs, the oldest first
}

func (a *answers) add(q *request) {
	if a.requests == nil {
		a.requests = map[string]*request{}
	}
	a.requests[q.id] = q
	a.order = append(a.order, q.id)
}

// drop forgets a request that was refused after all: nothing of it was done.
func (a *answers) drop(q *request) {
	if q == nil || a.requests[q.id] != q {
		return
	}
	delete(a.requests, q.id)
	a.order = slices.DeleteFunc(a.order, func(id string) bool { return id == q.id })
}

// find returns the answer to a request of an earlier run that is still kept.
func (a *answers) find(id string) (protocol.Answer, bool) {
	i := slices.IndexFunc(a.kept, func(k protocol.Answer) bool { return k.Request == id })
	if i < 0 {
		return protocol.Answer{}, false
	}
	return a.kept[i], true
}

// noteTakenBack notes, in what is kept of earlier runs, which steps were rolled back since.
func (a *answers) noteTakenBack(steps []protocol.TakenStep, why string) {
	isTaken := map[string]bool{}
	for _, s := range steps {
		isTaken[s.ID] = true
	}
	note := func(s *protocol.StepAnswer) {
		if isTaken[s.ID] {
			*s = protocol.StepAnswer{ID: s.ID, Uses: s.Uses, State: protocol.RolledBack, Try: s.Try, Summary: s.Summary,
				Error: s.Error, Notes: []string{why}, Took: s.Took}
		}
	}
	for i := range a.kept {
		a.kept[i].Steps = slices.Clone(a.kept[i].Steps)
		for j := range a.kept[i].Steps {
			note(&a.kept[i].Steps[j])
		}
	}
	for _, id := range a.order {
		over := a.requests[id].over
		for _, step := range slices.Sorted(maps.Keys(over)) {
			s := over[step]
			note(&s)
			over[step] = s
		}
	}
}
