package workflows

import (
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// maxPast is how many steps a session remembers for its report; the others are counted.
const maxPast = 300

// carrySession puts the session into c.
func (t *agentTask) carrySession(c *protocol.Carry) {
	s := t.session
	if s == nil {
		return
	}
	a := &s.answers
	carried := &protocol.SessionCarry{
		Document: s.document, Open: t.schedule.open, Places: s.places, Named: s.named, Used: s.used.bytes(), Seen: s.seen.bytes(), Dropped: s.dropped,
		Savepoints: t.savepoints.places, Bare: t.savepoints.bare, Heard: t.executor.silence.heard, Asked: t.executor.silence.asked,
		Contexts: s.contexts, Notes: s.notes, Forgotten: s.forgotten,
	}
	c.Session = carried
	for _, k := range a.kept {
		carried.Answers = append(carried.Answers, t.refresh(k).Short())
	}
	for _, id := range a.order {
		q := a.requests[id]
		if t.isRequestOver(q) {
			answer := t.answer(q)
			if q.told { // else its agent has yet to ask
				answer = answer.Short()
			}
			carried.Answers = append(carried.Answers, answer)
			continue
		}
		r := protocol.RequestCarry{ID: q.id, Digest: q.digest, Steps: q.steps, Ends: q.ends, Undoes: q.rollback != nil, Context: q.context, Over: map[string]protocol.StepAnswer{}}
		maps.Copy(r.Over, q.over)
		for _, step := range q.steps {
			if run := t.schedule.byID[step]; run != nil && run.isOver() {
				r.Over[step] = t.stepAnswer(q, step)
			}
		}
		carried.Requests = append(carried.Requests, r)
	}
	carried.CutOver()
	carried.Answers = payload.KeepLast(carried.Answers, maxKeptAnswers, func(a protocol.Answer) int { return payload.SizeOf(a) })
	t.carryRedos(carried)
	carried.Outputs = t.keptOutputs()
	for _, id := range carried.Outputs {
		c.Outputs[id] = t.runner.outputs[id]
	}
	if more := len(c.Past) - maxPast; more > 0 {
		before := len(c.Past)
		c.Past = slices.DeleteFunc(slices.Clone(c.Past), func(v protocol.StepView) bool { // one that failed and stays marks the session as partial
			isDropped := more > 0 && v.State != protocol.StepFailed
			if isDropped {
				more--
			}
			return isDropped
		})
		carried.Dropped += before - len(c.Past)
	}
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
	return payload.KeepLast(ids, maxKeptOutputs, func(id string) int { return payload.SizeOf(t.runner.outputs[id]) })
}

// resumeSession restores what the previous run carried over.
func (t *agentTask) resumeSession(ctx workflow.Context, c protocol.Carry) {
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
