package workflows

import (
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// checkNewBranch refuses a branch that a rollback cannot make.
func (t *agentTask) checkNewBranch(r protocol.SessionRollback) error {
	b := r.Branch
	if b == nil {
		return nil
	}
	isDue := func(due *rollback) bool { return due.branch.IsNamed(b.Name) }
	isKept := func(p protocol.TakenBack) bool { return p.Branch.IsNamed(b.Name) && !p.Chosen }
	switch {
	case r.To == "":
		return protocol.RefuseRequestf(protocol.BadRequest, "branch: give to as well: a branch begins at a savepoint")
	case !savepointForm.MatchString(b.Name):
		return protocol.RefuseRequestf(protocol.BadRequest, "branch.name: %q must have the form a-z, 0-9, _ and -, a letter first, at most 63", payload.Clip(b.Name, payload.MaxName))
	case len(b.Note) > payload.MaxWhy:
		return protocol.RefuseRequestf(protocol.BadRequest, "branch.note: it has %s, and can have %d; what is longer can be a context", activities.CountOf(len(b.Note), "byte"), payload.MaxWhy)
	case slices.ContainsFunc(t.rollbacks.due, isDue) || slices.ContainsFunc(t.takenBack(), isKept):
		return protocol.RefuseRequestf(protocol.BadRequest, "branch.name: there is a branch %q already; choose another name", b.Name)
	}
	return nil
}

// checkBase refuses to redo a branch on top of anything other than what it began on.
func (t *agentTask) checkBase(part protocol.TakenBack) error {
	if part.Branch == nil || part.Chosen {
		return nil
	}
	from, isKnown := t.savepoints.places[part.To]
	if !isKnown {
		return protocol.RefuseRequestf(protocol.BadRequest, "branch %s begins at savepoint %s, which was rolled back itself: redo that first", part.Branch.Name, part.To)
	}
	var standing []string
	for _, e := range t.saga.Entries() {
		if e.Seq >= from {
			standing = append(standing, e.Step)
		}
	}
	for _, s := range t.schedule.steps {
		if !s.isOver() && !slices.Contains(standing, s.step.ID) {
			standing = append(standing, s.step.ID)
		}
	}
	if len(standing) > 0 {
		return protocol.RefuseRequestf(protocol.SessionBusy, "branch %s begins at savepoint %s, and %s came after that: roll back to it first, with a branch if you may want that again",
			part.Branch.Name, part.To, listed(standing))
	}
	return nil
}

// choose notes that a branch stands, or part of it.
func (d *redos) choose(part protocol.TakenBack) {
	for i := range d.parts {
		if d.parts[i].Request == part.Request {
			d.parts[i].Chosen = true
		}
	}
}

// lastContextIn is the last context that the agent has given since a place; nil if it has given none.
func (t *agentTask) lastContextIn(from int) *protocol.Context {
	for _, c := range slices.Backward(t.session.contexts) {
		if c.Seq >= from {
			return &c
		}
	}
	return nil
}
