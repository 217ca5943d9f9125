package sessions

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// TakeBack remembers what a rollback has taken back, once it is over, and forgets what the agent
// has given since.
func (t *session) TakeBack(r *engine.Rollback) {
	part := protocol.TakenBack{
		Request: r.Request, To: r.To, Step: r.Only, Branch: r.Branch, Context: t.lastContextIn(r.From),
		Steps: slices.Clone(r.Taken),
	}
	slices.SortFunc(part.Steps, func(a, b protocol.TakenStep) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, id := range r.Unfinished {
		isTaken := slices.ContainsFunc(part.Steps, func(s protocol.TakenStep) bool { return s.ID == id })
		if s := t.Schedule.ByID[id]; s != nil && !isTaken && !t.isStanding(id) {
			part.Steps = append(part.Steps, protocol.TakenStep{ID: id, Generation: s.Generation})
		}
	}
	t.dropCheckpoints(part.Steps)
	t.redos.add(part)
	t.answers.noteTakenBack(r.Taken, r.Cause.Text)
	t.dropContexts(r.From)
	t.restore(r)
}

// isStanding reports whether a step is done or may still be: it is not to be done again.
func (t *session) isStanding(id string) bool {
	s := t.Schedule.ByID[id]
	return s != nil && (!s.IsOver() || s.IsSatisfied()) ||
		slices.ContainsFunc(t.Saga.Entries(), func(e activities.Entry) bool { return e.Step == id })
}

// takenBack returns what can be redone, the oldest first: what was taken back and does not stand
// again.
func (t *session) takenBack() []protocol.TakenBack {
	var parts []protocol.TakenBack
	for _, part := range t.redos.parts {
		var steps []protocol.TakenStep
		for _, s := range part.Steps {
			if t.isStanding(s.ID) {
				continue
			}
			if run := t.Schedule.ByID[s.ID]; run != nil {
				s.Generation = run.Generation
			}
			steps = append(steps, s)
		}
		if part.Steps = steps; len(steps) > 0 {
			parts = append(parts, part)
		}
	}
	return parts
}

// Correct remembers the parameters that a person has given to a step.
func (t *session) Correct(step string, with json.RawMessage) { t.redos.correct(step, with) }

// lastContextIn is the last context that the agent has given since a place; nil if it has given
// none.
func (t *session) lastContextIn(from int) *protocol.Context {
	for _, c := range slices.Backward(t.contexts) {
		if c.Seq >= from {
			return &c
		}
	}
	return nil
}
