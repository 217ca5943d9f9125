package sessions

import (
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// maxPast is how many steps a session remembers for its report; the others are counted.
const maxPast = 300

// Carry puts the session into c.
func (t *session) Carry(c *protocol.Carry) {
	a := &t.answers
	carried := &protocol.SessionCarry{
		Document: t.document, Open: t.Schedule.Open, Places: t.places, Named: t.named, Used: t.used.bytes(),
		Seen: t.seen.bytes(), Dropped: t.dropped,
		Savepoints: t.Savepoints.Places, Bare: t.Savepoints.Bare, Heard: t.Silence.Heard, Asked: t.Silence.Asked,
		Contexts: t.contexts, Notes: t.notes, Forgotten: t.forgotten, Checkpoints: t.checkpoints,
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
		r := protocol.RequestCarry{ID: q.id, Digest: q.digest, Steps: q.steps, Ends: q.ends, Undoes: q.rollback != nil,
			Context: q.context, Savepoint: q.savepoint, Over: map[string]protocol.StepAnswer{}}
		maps.Copy(r.Over, q.over)
		for _, step := range q.steps {
			if run := t.Schedule.ByID[step]; run != nil && run.IsOver() {
				r.Over[step] = t.stepAnswer(q, step)
			}
		}
		carried.Requests = append(carried.Requests, r)
	}
	carried.CutOver()
	carried.Answers = payload.KeepLast(carried.Answers, maxKeptAnswers,
		func(a protocol.Answer) int { return payload.SizeOf(a) })
	t.carryRedos(carried)
	carried.Outputs = t.keepOutputs()
	for _, id := range carried.Outputs {
		c.Outputs[id] = t.Outputs[id]
	}
	if more := len(c.Past) - maxPast; more > 0 {
		before := len(c.Past)
		// one that failed and stays marks the session as partial
		c.Past = slices.DeleteFunc(slices.Clone(c.Past), func(v protocol.StepView) bool {
			isDropped := more > 0 && v.State != protocol.StepFailed
			if isDropped {
				more--
			}
			return isDropped
		})
		carried.Dropped += before - len(c.Past)
	}
}

// keepOutputs returns the ids of the last steps whose outputs are kept, the oldest first.
func (t *session) keepOutputs() []string {
	var ids []string
	for _, id := range t.keptOutputs {
		if t.Schedule.ByID[id] == nil && t.Outputs[id] != nil {
			ids = append(ids, id)
		}
	}
	for _, s := range t.Schedule.Steps {
		if t.Outputs[s.Step.ID] != nil {
			ids = append(ids, s.Step.ID)
		}
	}
	kept := payload.KeepLast(ids, maxKeptOutputs, func(id string) int { return payload.SizeOf(t.Outputs[id]) })
	for _, id := range ids {
		if t.isCheckpoint(id) && !slices.Contains(kept, id) { // a rollback to its savepoint refers to them
			kept = append([]string{id}, kept...)
		}
	}
	return kept
}

// Resume restores what the previous run carried over.
func (t *session) Resume(ctx workflow.Context, carried protocol.SessionCarry) {
	if carried.Places != nil {
		t.places = carried.Places
	}
	t.named, t.used, t.dropped, t.keptOutputs, t.answers.kept = carried.Named, idSetOf(carried.Used), carried.Dropped,
		carried.Outputs, carried.Answers
	t.seen, t.forgotten = requestIDsOf(carried.Seen), carried.Forgotten
	t.redos.resume(carried)
	t.contexts, t.notes = carried.Contexts, carried.Notes
	maps.Copy(t.checkpoints, carried.Checkpoints)
	t.Savepoints.Places, t.Savepoints.Bare = carried.Savepoints, carried.Bare
	t.Begin(ctx)
	t.Schedule.Open = carried.Open
	if !carried.Open {
		t.Silence.Limit = 0
	}
	t.Silence.Heard, t.Silence.Asked = carried.Heard, carried.Asked
	for _, r := range carried.Requests {
		q := &request{id: r.ID, digest: r.Digest, steps: r.Steps, over: r.Over, ends: r.Ends, context: r.Context,
			savepoint: r.Savepoint}
		if r.Undoes {
			i := slices.IndexFunc(t.Rollbacks.Due, func(b *engine.Rollback) bool { return b.Request == r.ID })
			if i < 0 {
				panic(fmt.Sprintf("request %s undoes something, and its rollback was not handed over", r.ID))
			}
			q.rollback = t.Rollbacks.Due[i]
		}
		t.answers.add(q)
	}
}
