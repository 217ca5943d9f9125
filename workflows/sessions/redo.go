package sessions

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// findTakenBack finds what a request redoes.
func (t *session) findTakenBack(r protocol.SessionRedo) (protocol.TakenBack, error) {
	switch {
	case r.IsAmbiguous():
		return protocol.TakenBack{}, protocol.RefuseRequestf(protocol.BadRequest,
			"at most one of branch, to and step can be given")
	case t.Rollbacks.HasDue():
		return protocol.TakenBack{}, protocol.RefuseRequestf(protocol.SessionBusy,
			"a rollback is under way: wait for it, then redo it")
	}
	parts := t.takenBack()
	var names []string
	for _, part := range slices.Backward(parts) {
		if r.Means(part) {
			return part, t.checkBase(part)
		}
		names = append(names, part.Name())
		if slices.ContainsFunc(part.Steps, func(s protocol.TakenStep) bool { return s.ID == r.Step }) {
			return protocol.TakenBack{},
				protocol.RefuseRequestf(protocol.BadRequest, "step: %s was taken back by the rollback %s: redo that", r.Step,
					part.Name())
		}
	}
	why := "nothing was rolled back that is not done again"
	switch {
	case len(parts) > 0:
		why = fmt.Sprintf("the rollback %s cannot be redone; these can: %s", protocol.NameRollback(r.Branch, r.To, r.Step),
			listed(names))
	case t.redos.released:
		why = "what was rolled back is no longer kept; send the steps again"
	}
	return protocol.TakenBack{}, protocol.RefuseRequestf(protocol.BadRequest, "%s", why)
}

// maxRedone is how many bytes of steps are compiled together in a redo.
const maxRedone = 1 << 20

// additions returns the steps of a redo as steps that are added, in as few groups as can be
// compiled.
func (t *session) additions(part protocol.TakenBack) ([]task.Addition, error) {
	var all []task.Addition
	coming := map[string]string{} // the actions of those in earlier groups, by id
	isHere := map[string]bool{}
	for _, s := range part.Steps {
		isHere[s.ID] = true
	}
	for rest := part.Steps; len(rest) > 0; {
		var written []json.RawMessage
		var ids []string
		uses := map[string]string{}
		for size := 0; len(rest) > 0 && len(ids) < task.MaxAdded; rest = rest[1:] {
			id := rest[0].ID
			raw := t.redos.written[id]
			if size += len(raw); size > maxRedone && len(ids) > 0 {
				break
			}
			if raw == nil {
				return nil, protocol.RefuseRequestf(protocol.BadRequest,
					"step %s is no longer kept as it was written; send the steps again", id)
			}
			if err := t.checkNeeds(id, raw, isHere); err != nil {
				return nil, err
			}
			written, ids = append(written, raw), append(ids, id)
			var fields struct {
				Uses string `json:"uses"`
			}
			_ = json.Unmarshal(raw, &fields) // it was compiled
			uses[id] = fields.Uses
		}
		steps, _ := json.Marshal(written) // JSON
		a, err := t.Addition(t.document, steps, ids, coming)
		if err != nil {
			return nil, err
		}
		a.Redone = true
		maps.Copy(coming, uses)
		all = append(all, a)
	}
	return all, nil
}

// checkNeeds refuses to redo a step without those that it needs.
func (t *session) checkNeeds(id string, written json.RawMessage, isHere map[string]bool) error {
	needed, referred := task.Mentioned(slices.Concat([]byte("["), written, []byte("]")))
	for _, need := range slices.Concat(needed, referred) {
		if !isHere[need] && !t.isStanding(need) {
			return protocol.RefuseRequestf(protocol.BadRequest,
				"step %s needs step %s, which is not done: redo that first, or send %s again", id, need, id)
		}
	}
	return nil
}

// redoPart runs again what a rollback has taken back.
var redoPart = ask[protocol.SessionRedo]{check: checkGrows[protocol.SessionRedo], inspect: (*session).inspectRedo,
	carryOut: (*session).redo}.as(protocol.UpdateRedo)

func (t *session) inspectRedo(r protocol.SessionRedo) error {
	part, err := t.findTakenBack(r)
	if err != nil {
		return err
	}
	additions, err := t.additions(part)
	if err != nil {
		return err
	}
	return t.checkSteps(additions...)
}

// redo compiles what was taken back, and adds it as the next generation of its steps. Its agent is
// back at the context that it had there.
func (t *session) redo(ctx workflow.Context, q *request, r protocol.SessionRedo) error {
	part, err := t.findTakenBack(r)
	if err != nil {
		return err
	}
	additions, err := t.additions(part)
	if err != nil {
		return err
	}
	t.compiling++
	defer func() { t.compiling-- }()
	var compiled []task.Compiled
	for _, a := range additions {
		c, err := t.compileHere(ctx, "check the steps to redo", a)
		if err != nil {
			return err
		}
		compiled = append(compiled, c)
	}
	// Meanwhile others may have been added or undone.
	if err := t.checkTakes(); err != nil {
		return err
	}
	again, err := t.findTakenBack(r)
	if err == nil {
		_, err = t.additions(again)
	}
	switch {
	case err != nil:
		return err
	case !slices.Equal(again.Steps, part.Steps):
		return protocol.RefuseRequestf(protocol.SessionBusy,
			"another request has redone or rolled back some of it at the same time: send it again")
	}
	for _, c := range compiled {
		if err := t.checkSavepoints(c.Steps); err != nil {
			return err
		}
	}
	size := 0
	for _, c := range compiled {
		size += engine.SizeOfSteps(c.Steps)
	}
	if err := t.Admit(ctx, "steps", size); err != nil {
		return err
	}
	for _, c := range compiled {
		q.steps = append(q.steps, t.addAgain(part, c.Steps, r.Why)...)
	}
	t.redos.choose(part)
	if part.Context != nil {
		q.context = t.rememberContext(ctx, *part.Context, "")
	}
	return nil
}

// addAgain adds steps that were taken back to the schedule.
func (t *session) addAgain(part protocol.TakenBack, steps []task.Step, why string) (ids []string) {
	before := map[string]protocol.StepView{}
	for _, step := range steps {
		before[step.ID] = t.Schedule.TakeOut(step.ID)
	}
	first := len(t.Schedule.Steps)
	for _, step := range steps {
		was := part.Steps[slices.IndexFunc(part.Steps, func(s protocol.TakenStep) bool { return s.ID == step.ID })]
		if _, isTaken := t.Savepoints.Places[was.Savepoint]; step.Savepoint == "" && !isTaken && !t.hasEnvironment() {
			step.Savepoint = was.Savepoint
		}
		if _, isTaken := t.Savepoints.Places[was.Marks]; was.Marks != "" && !isTaken {
			step.Marks, t.checkpoints[was.Marks] = was.Marks, step.ID
		}
		s := t.appendStep(step, first)
		s.Generation = was.Generation + 1
		next := before[step.ID].Next(s.Generation)
		s.View.Try, s.View.Tried = next.Try, next.Tried
		note := "redone by the agent"
		if why != "" {
			note += ": " + payload.Clip(why, payload.MaxWhy)
		}
		s.AddNotes(note)
		t.Schedule.Place(s)
		ids = append(ids, step.ID)
	}
	return ids
}

// carryRedos puts into c what a redo needs, or may need: first what was taken back, the last of it
// before the rest, then the newest steps.
func (t *session) carryRedos(c *protocol.SessionCarry) {
	d, parts := &t.redos, t.takenBack()
	sizeOfPart := func(p protocol.TakenBack) int {
		size := payload.SizeOf(p)
		for _, s := range p.Steps {
			size += len(d.written[s.ID])
		}
		return size
	}
	c.TakenBack = payload.KeepLast(parts, maxKeptSteps, sizeOfPart)
	c.Released = d.released || len(c.TakenBack) < len(parts)
	left := maxKeptSteps
	var ids []string
	for _, p := range c.TakenBack {
		left -= sizeOfPart(p)
		for _, s := range p.Steps {
			ids = append(ids, s.ID)
		}
	}
	var standing []string
	for _, e := range t.Saga.Entries() {
		standing = append(standing, e.Step)
	}
	for _, s := range t.Schedule.Steps {
		if s.Seq == 0 && !s.IsOver() {
			standing = append(standing, s.Step.ID)
		}
	}
	for _, r := range t.Rollbacks.Due { // what is being taken back
		for _, s := range r.Taken {
			standing = append(standing, s.ID)
		}
		standing = append(standing, r.Unfinished...)
	}
	ids = append(ids, payload.KeepLast(standing, left, func(id string) int { return len(d.written[id]) })...)
	c.Written = map[string]json.RawMessage{}
	for _, id := range ids {
		if raw := d.written[id]; raw != nil {
			c.Written[id] = raw
		}
	}
}
