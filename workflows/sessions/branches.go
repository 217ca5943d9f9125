package sessions

import (
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// checkNewBranch refuses a branch that a rollback cannot make.
func (t *session) checkNewBranch(r protocol.SessionRollback) error {
	b := r.Branch
	if b == nil {
		return nil
	}
	isDue := func(due *engine.Rollback) bool { return due.Branch.IsNamed(b.Name) }
	isKept := func(p protocol.TakenBack) bool { return p.Branch.IsNamed(b.Name) && !p.Chosen }
	switch {
	case r.To == "":
		return protocol.RefuseRequestf(protocol.BadRequest, "branch: give to as well: a branch begins at a savepoint")
	case !savepointForm.MatchString(b.Name):
		return protocol.RefuseRequestf(protocol.BadRequest,
			"branch.name: %q must have the form a-z, 0-9, _ and -, a letter first, at most 63",
			payload.Clip(b.Name, payload.MaxName))
	case len(b.Note) > payload.MaxWhy:
		return protocol.RefuseRequestf(protocol.BadRequest,
			"branch.note: it has %s, and can have %d; what is longer can be a context", activities.CountOf(len(b.Note), "byte"),
			payload.MaxWhy)
	case slices.ContainsFunc(t.Rollbacks.Due, isDue) || slices.ContainsFunc(t.takenBack(), isKept):
		return protocol.RefuseRequestf(protocol.BadRequest, "branch.name: there is a branch %q already; choose another name",
			b.Name)
	}
	return nil
}

// checkBase refuses to redo a branch on top of anything other than what it began on.
func (t *session) checkBase(part protocol.TakenBack) error {
	if part.Branch == nil || part.Chosen {
		return nil
	}
	from, isKnown := t.Savepoints.Places[part.To]
	if !isKnown {
		return protocol.RefuseRequestf(protocol.BadRequest,
			"branch %s begins at savepoint %s, which was rolled back itself: redo that first", part.Branch.Name, part.To)
	}
	var standing []string
	for _, e := range t.Saga.Entries() {
		if e.Seq >= from {
			standing = append(standing, e.Step)
		}
	}
	for _, s := range t.Schedule.Steps {
		if !s.IsOver() && !slices.Contains(standing, s.Step.ID) {
			standing = append(standing, s.Step.ID)
		}
	}
	if len(standing) > 0 {
		return protocol.RefuseRequestf(protocol.SessionBusy,
			"branch %s begins at savepoint %s, and %s came after that: roll back to it first, with a branch if you may want "+
				"that again",
			part.Branch.Name, part.To, listed(standing))
	}
	return nil
}
