package workflows

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// SessionCarry is the state of a session besides its steps, as data.
type SessionCarry struct {
	// Document is the document that opened the session, without steps.
	Document json.RawMessage   `json:"document"`
	Open     bool              `json:"open,omitempty"`
	Places   map[string]Places `json:"places,omitempty"`
	// Named counts the steps that were given an id; Used are the ids of all steps, and Seen those of the last requests, 8 bytes of each.
	Named int    `json:"named,omitempty"`
	Used  []byte `json:"used,omitempty"`
	Seen  []byte `json:"seen,omitempty"`
	// Savepoints are the places by name; Bare is one that no entry bears yet.
	Savepoints map[string]int `json:"savepoints,omitempty"`
	Bare       string         `json:"bare,omitempty"`
	// Requests are those that are not over, Answers those to the last ones that are.
	Requests []RequestCarry `json:"requests,omitempty"`
	Answers  []Answer       `json:"answers,omitempty"`
	// Outputs are the ids of the steps whose outputs are kept, the oldest first.
	Outputs []string  `json:"outputs,omitempty"`
	Heard   time.Time `json:"heard"`
	Asked   bool      `json:"asked,omitempty"`
	// Dropped counts steps that a report leaves out.
	Dropped int `json:"dropped,omitempty"`
	// TakenBack is what can be redone, and Written are steps as they were written, by id. Released says that some are no longer kept.
	Contexts  []Context                  `json:"contexts,omitempty"`
	Notes     []Note                     `json:"notes,omitempty"`
	Forgotten []Context                  `json:"forgotten,omitempty"` // that their hosts may still have
	TakenBack []TakenBack                `json:"takenBack,omitempty"`
	Written   map[string]json.RawMessage `json:"written,omitempty"`
	Released  bool                       `json:"released,omitempty"`
}

// RequestCarry is a request that is not over. Its rollback is in the RollbackCarry that names it.
type RequestCarry struct {
	ID     string                `json:"id"`
	Digest activities.Digest     `json:"digest"`
	Steps  []string              `json:"steps,omitempty"`
	Over   map[string]StepAnswer `json:"over,omitempty"`
	Ends   bool                  `json:"ends,omitempty"`
	Undoes bool                  `json:"undoes,omitempty"`
	// Context is that of the savepoint that it goes back to.
	Context *Context `json:"context,omitempty"`
}

// maxPast is how many steps a session remembers for its report; the others are counted.
const maxPast = 300

// carrySession puts the session into c.
func (t *agentTask) carrySession(c *Carry) {
	s := t.session
	if s == nil {
		return
	}
	a := &s.answers
	carried := &SessionCarry{
		Document: s.document, Open: t.schedule.open, Places: s.places, Named: s.named, Used: s.used.bytes(), Seen: s.seen.bytes(), Dropped: s.dropped,
		Savepoints: t.savepoints.places, Bare: t.savepoints.bare, Heard: t.executor.silence.heard, Asked: t.executor.silence.asked,
		Contexts: s.contexts, Notes: s.notes, Forgotten: s.forgotten,
	}
	c.Session = carried
	for _, k := range a.kept {
		carried.Answers = append(carried.Answers, t.refresh(k).short())
	}
	for _, id := range a.order {
		q := a.requests[id]
		if t.isRequestOver(q) {
			answer := t.answer(q)
			if q.told { // else its agent has yet to ask
				answer = answer.short()
			}
			carried.Answers = append(carried.Answers, answer)
			continue
		}
		r := RequestCarry{ID: q.id, Digest: q.digest, Steps: q.steps, Ends: q.ends, Undoes: q.rollback != nil, Context: q.context, Over: map[string]StepAnswer{}}
		maps.Copy(r.Over, q.over)
		for _, step := range q.steps {
			if run := t.schedule.byID[step]; run != nil && run.isOver() {
				r.Over[step] = t.stepAnswer(q, step)
			}
		}
		carried.Requests = append(carried.Requests, r)
	}
	carried.cutOver()
	carried.Answers = keepLast(carried.Answers, maxKeptAnswers, func(a Answer) int { return sizeOf(a) })
	t.carryRedos(carried)
	carried.Outputs = t.keptOutputs()
	for _, id := range carried.Outputs {
		c.Outputs[id] = t.runner.outputs[id]
	}
	if more := len(c.Past) - maxPast; more > 0 {
		before := len(c.Past)
		c.Past = slices.DeleteFunc(slices.Clone(c.Past), func(v StepView) bool { // one that failed and stays marks the session as partial
			isDropped := more > 0 && v.State != StepFailed
			if isDropped {
				more--
			}
			return isDropped
		})
		carried.Dropped += before - len(c.Past)
	}
}

// maxKeptOver bounds what the requests that are not over carry of their steps that are.
const maxKeptOver = 128 << 10

// cutOver shortens what the requests carry of steps that are over.
func (c *SessionCarry) cutOver() {
	each := func(change func(*StepAnswer)) func() {
		return func() {
			for _, r := range c.Requests {
				for id, s := range r.Over {
					change(&s)
					r.Over[id] = s
				}
			}
		}
	}
	shorten(&c.Requests, maxKeptOver,
		cut{make: each(func(s *StepAnswer) { s.Outputs = CutOutputs(s.Outputs) })},
		cut{make: each(func(s *StepAnswer) { s.shorten(maxName) })},
		cut{make: each(func(s *StepAnswer) {
			if s.Outputs != nil {
				s.Outputs, s.Notes = nil, append(slices.Clip(s.Notes), "its outputs are left out here: see the step alone")
			}
		})})
}

// keptOutputs returns the ids of the last steps whose outputs are kept, the oldest first.
func (t *agentTask) keptOutputs() []string {
	var ids []string
	for _, id := range t.session.outputs {
		if t.schedule.byID[id] == nil && t.runner.outputs[id] != nil {
			ids = append(ids, id)
		}
	}
	for _, s := range t.schedule.steps {
		if t.runner.outputs[s.step.ID] != nil {
			ids = append(ids, s.step.ID)
		}
	}
	return keepLast(ids, maxKeptOutputs, func(id string) int { return sizeOf(t.runner.outputs[id]) })
}

// short is an answer without its large parts.
func (a Answer) short() Answer {
	if sizeOf(a) <= maxKeptAnswer {
		return a
	}
	a.Steps = slices.Clone(a.Steps)
	for i := range a.Steps {
		s := &a.Steps[i]
		s.Outputs, s.Gate, s.Park, s.Undone = nil, nil, nil, nil
		s.Summary, s.Error, s.Notes = clip(s.Summary, maxName), clip(s.Error, maxName), nil
	}
	a.Waiting = nil
	a.Undone = keepLast(a.Undone, maxKeptAnswer, func(s compensations.StepReport) int { return sizeOf(s) })
	return a
}

// resumeSession restores what the previous run carried over.
func (t *agentTask) resumeSession(ctx workflow.Context, c Carry) {
	if c.Session == nil {
		return
	}
	carried := *c.Session
	s := newSession(carried.Document)
	t.session = s
	if carried.Places != nil {
		s.places = carried.Places
	}
	s.named, s.used, s.dropped, s.outputs, s.answers.kept = carried.Named, idSetOf(carried.Used), carried.Dropped, carried.Outputs, carried.Answers
	s.seen, s.forgotten = requestIDsOf(carried.Seen), carried.Forgotten
	s.redos.resume(carried)
	s.contexts, s.notes = carried.Contexts, carried.Notes
	t.savepoints.places, t.savepoints.bare = carried.Savepoints, carried.Bare
	t.beginSession(ctx)
	t.schedule.open = carried.Open
	if !carried.Open {
		t.executor.silence.limit = 0
	}
	t.executor.silence.heard, t.executor.silence.asked = carried.Heard, carried.Asked
	for _, r := range carried.Requests {
		q := &request{id: r.ID, digest: r.Digest, steps: r.Steps, over: r.Over, ends: r.Ends, context: r.Context}
		if r.Undoes {
			i := slices.IndexFunc(t.rollbacks.due, func(b *rollback) bool { return b.request == r.ID })
			if i < 0 {
				panic(fmt.Sprintf("request %s undoes something, and its rollback was not handed over", r.ID))
			}
			q.rollback = t.rollbacks.due[i]
		}
		s.answers.add(q)
	}
}
