package workflows

import (
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

// An agent that tries several ways from one savepoint puts each aside as a branch: a rollback that keeps what it takes back under a
// name, with what the agent thought of it. It compares them, and redoes the one that it chooses.

// Branch is the name of what a rollback has taken back, and what its agent thought of it.
type Branch struct {
	Name string `json:"name"`
	// Score is the agent's own, to compare branches by.
	Score *float64 `json:"score,omitempty"`
	Note  string   `json:"note,omitempty"`
}

func (b *Branch) isNamed(name string) bool { return b != nil && b.Name == name }

// checkNewBranch refuses a branch that a rollback cannot make.
func (t *agentTask) checkNewBranch(r SessionRollback) error {
	b := r.Branch
	if b == nil {
		return nil
	}
	isDue := func(due *rollback) bool { return due.branch.isNamed(b.Name) }
	isKept := func(p TakenBack) bool { return p.Branch.isNamed(b.Name) && !p.Chosen }
	switch {
	case r.To == "":
		return refuseRequestf(BadRequest, "branch: give to as well: a branch begins at a savepoint")
	case !savepointForm.MatchString(b.Name):
		return refuseRequestf(BadRequest, "branch.name: %q must have the form a-z, 0-9, _ and -, a letter first, at most 63", clip(b.Name, maxName))
	case len(b.Note) > maxWhy:
		return refuseRequestf(BadRequest, "branch.note: it has %s, and can have %d; what is longer can be a context", activities.CountOf(len(b.Note), "byte"), maxWhy)
	case slices.ContainsFunc(t.rollbacks.due, isDue) || slices.ContainsFunc(t.takenBack(), isKept):
		return refuseRequestf(BadRequest, "branch.name: there is a branch %q already; choose another name", b.Name)
	}
	return nil
}

// checkBase refuses to redo a branch on top of anything other than what it began on.
func (t *agentTask) checkBase(part TakenBack) error {
	if part.Branch == nil || part.Chosen {
		return nil
	}
	from, isKnown := t.savepoints.places[part.To]
	if !isKnown {
		return refuseRequestf(BadRequest, "branch %s begins at savepoint %s, which was rolled back itself: redo that first", part.Branch.Name, part.To)
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
		return refuseRequestf(SessionBusy, "branch %s begins at savepoint %s, and %s came after that: roll back to it first, with a branch if you may want that again",
			part.Branch.Name, part.To, listed(standing))
	}
	return nil
}

// choose notes that a branch stands, or part of it.
func (d *redos) choose(part TakenBack) {
	for i := range d.parts {
		if d.parts[i].Request == part.Request {
			d.parts[i].Chosen = true
		}
	}
}

// lastContextIn is the last context that the agent has given since a place; nil if it has given none.
func (t *agentTask) lastContextIn(from int) *Context {
	for _, c := range slices.Backward(t.session.contexts) {
		if c.Seq >= from {
			return &c
		}
	}
	return nil
}
