package workflows

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// redos is what a session needs in order to redo what it has rolled back.
type redos struct {
	written  map[string]json.RawMessage // the steps as their agent wrote them, by id; only looked up
	parts    []protocol.TakenBack       // the oldest first
	released bool                       // some are no longer kept
}

// maxKeptSteps bounds the steps that are carried over as they were written, with what was taken back.
const maxKeptSteps = 256 << 10

// keep remembers steps as they were written, each for the host that it was compiled for.
func (d *redos) keep(written json.RawMessage, compiled []task.Step) {
	var all []map[string]json.RawMessage
	_ = json.Unmarshal(written, &all) // it was compiled
	hosts := map[string]string{}
	for _, s := range compiled {
		hosts[s.ID] = s.Place.Host
	}
	for _, fields := range all {
		var id string
		_ = json.Unmarshal(fields["id"], &id)
		if host := hosts[id]; host != "" && fields["on"] == nil {
			fields["on"], _ = json.Marshal(host)
		}
		d.written[id], _ = json.Marshal(fields)
	}
}

// correct gives a step the parameters that a person has written.
func (d *redos) correct(id string, with json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(d.written[id], &fields) == nil && fields != nil {
		fields["with"] = with
		d.written[id], _ = json.Marshal(fields)
	}
}

// add remembers what a rollback has taken back. A step that was done again since an earlier one belongs to this one, and so does the rest
// of a branch of the same name.
func (d *redos) add(part protocol.TakenBack) {
	isHere := map[string]bool{}
	for _, s := range part.Steps {
		isHere[s.ID] = true
	}
	var parts []protocol.TakenBack
	for _, p := range d.parts {
		p.Steps = slices.DeleteFunc(slices.Clone(p.Steps), func(s protocol.TakenStep) bool { return isHere[s.ID] })
		switch {
		case len(p.Steps) == 0:
		case part.Branch != nil && p.Branch.IsNamed(part.Branch.Name):
			part.Steps = append(part.Steps, p.Steps...)
		default:
			parts = append(parts, p)
		}
	}
	if len(part.Steps) > 0 {
		parts = append(parts, part)
	}
	d.parts = parts
}

// take notes which entries a rollback has undone.
func (r *rollback) take(undone []activities.Entry) {
	for _, e := range undone {
		r.taken = append(r.taken, protocol.TakenStep{ID: e.Step, Seq: e.Seq, Generation: max(1, e.Generation), Savepoint: e.Savepoint})
	}
}

// keepTakenBack remembers what a rollback has taken back, once it is over, and forgets what the agent has given since.
func (t *agentTask) keepTakenBack(r *rollback) {
	part := protocol.TakenBack{
		Request: r.request, To: r.to, Step: r.only, Branch: r.branch, Context: t.lastContextIn(r.from), Steps: slices.Clone(r.taken),
	}
	slices.SortFunc(part.Steps, func(a, b protocol.TakenStep) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, id := range r.unfinished {
		isTaken := slices.ContainsFunc(part.Steps, func(s protocol.TakenStep) bool { return s.ID == id })
		if s := t.schedule.byID[id]; s != nil && !isTaken && !t.isStanding(id) {
			part.Steps = append(part.Steps, protocol.TakenStep{ID: id, Generation: s.generation})
		}
	}
	t.session.redos.add(part)
	t.session.answers.noteTakenBack(r.taken, r.cause.Text)
	t.dropContexts(r.from)
}

// isStanding reports whether a step is done or may still be: it is not to be done again.
func (t *agentTask) isStanding(id string) bool {
	s := t.schedule.byID[id]
	return s != nil && (!s.isOver() || s.isSatisfied()) ||
		slices.ContainsFunc(t.saga.Entries(), func(e activities.Entry) bool { return e.Step == id })
}

// takenBack returns what can be redone, the oldest first: what was taken back and does not stand again.
func (t *agentTask) takenBack() []protocol.TakenBack {
	var parts []protocol.TakenBack
	for _, part := range t.session.redos.parts {
		var steps []protocol.TakenStep
		for _, s := range part.Steps {
			if t.isStanding(s.ID) {
				continue
			}
			if run := t.schedule.byID[s.ID]; run != nil {
				s.Generation = run.generation
			}
			steps = append(steps, s)
		}
		if part.Steps = steps; len(steps) > 0 {
			parts = append(parts, part)
		}
	}
	return parts
}

// findTakenBack finds what a request redoes.
func (t *agentTask) findTakenBack(r protocol.SessionRedo) (protocol.TakenBack, error) {
	switch {
	case r.IsAmbiguous():
		return protocol.TakenBack{}, protocol.RefuseRequestf(protocol.BadRequest, "at most one of branch, to and step can be given")
	case t.rollbacks.hasDue():
		return protocol.TakenBack{}, protocol.RefuseRequestf(protocol.SessionBusy, "a rollback is under way: wait for it, then redo it")
	}
	parts := t.takenBack()
	var names []string
	for _, part := range slices.Backward(parts) {
		if part.IsMeant(r) {
			return part, t.checkBase(part)
		}
		names = append(names, part.Name())
		if slices.ContainsFunc(part.Steps, func(s protocol.TakenStep) bool { return s.ID == r.Step }) {
			return protocol.TakenBack{}, protocol.RefuseRequestf(protocol.BadRequest, "step: %s was taken back by the rollback %s: redo that", r.Step, part.Name())
		}
	}
	why := "nothing was rolled back that is not done again"
	switch {
	case len(parts) > 0:
		why = fmt.Sprintf("the rollback %s cannot be redone; these can: %s", protocol.NameRollback(r.Branch, r.To, r.Step), listed(names))
	case t.session.redos.released:
		why = "what was rolled back is no longer kept; send the steps again"
	}
	return protocol.TakenBack{}, protocol.RefuseRequestf(protocol.BadRequest, "%s", why)
}

// maxRedone is how many bytes of steps are compiled together in a redo.
const maxRedone = 1 << 20

// additions returns the steps of a redo as steps that are added, in as few groups as can be compiled.
func (t *agentTask) additions(part protocol.TakenBack) ([]task.Addition, error) {
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
			raw := t.session.redos.written[id]
			if size += len(raw); size > maxRedone && len(ids) > 0 {
				break
			}
			if raw == nil {
				return nil, protocol.RefuseRequestf(protocol.BadRequest, "step %s is no longer kept as it was written; send the steps again", id)
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
		a, err := t.addition(t.session.document, steps, ids, coming)
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
func (t *agentTask) checkNeeds(id string, written json.RawMessage, isHere map[string]bool) error {
	needed, referred := task.Mentioned(slices.Concat([]byte("["), written, []byte("]")))
	for _, need := range slices.Concat(needed, referred) {
		if !isHere[need] && !t.isStanding(need) {
			return protocol.RefuseRequestf(protocol.BadRequest, "step %s needs step %s, which is not done: redo that first, or send %s again", id, need, id)
		}
	}
	return nil
}

// redo compiles what was taken back, and adds it as the next generation of its steps. Its agent is back at the context that it had there.
func (t *agentTask) redo(ctx workflow.Context, q *request, r protocol.SessionRedo) error {
	part, err := t.findTakenBack(r)
	if err != nil {
		return err
	}
	additions, err := t.additions(part)
	if err != nil {
		return err
	}
	t.session.compiling++
	defer func() { t.session.compiling-- }()
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
		return protocol.RefuseRequestf(protocol.SessionBusy, "another request has redone or rolled back some of it at the same time: send it again")
	}
	for _, c := range compiled {
		if err := t.checkSavepoints(c.Steps); err != nil {
			return err
		}
	}
	size := 0
	for _, c := range compiled {
		size += sizeOfSteps(c.Steps)
	}
	if err := t.admit(ctx, "steps", size); err != nil {
		return err
	}
	for _, c := range compiled {
		q.steps = append(q.steps, t.addAgain(part, c.Steps, r.Why)...)
	}
	t.session.redos.choose(part)
	if part.Context != nil {
		q.context = t.rememberContext(ctx, *part.Context, "")
	}
	return nil
}

// addAgain adds steps that were taken back to the schedule.
func (t *agentTask) addAgain(part protocol.TakenBack, steps []task.Step, why string) (ids []string) {
	before := map[string]protocol.StepView{}
	for _, step := range steps {
		before[step.ID] = t.schedule.takeOut(step.ID)
	}
	first := len(t.schedule.steps)
	for _, step := range steps {
		was := part.Steps[slices.IndexFunc(part.Steps, func(s protocol.TakenStep) bool { return s.ID == step.ID })]
		if _, isTaken := t.savepoints.places[was.Savepoint]; step.Savepoint == "" && !isTaken {
			step.Savepoint = was.Savepoint
		}
		s := t.appendStep(step, first)
		s.generation = was.Generation + 1
		next := before[step.ID].Next(s.generation)
		s.view.Try, s.view.Tried = next.Try, next.Tried
		note := "redone by the agent"
		if why != "" {
			note += ": " + payload.Clip(why, payload.MaxWhy)
		}
		s.addNotes(note)
		t.schedule.place(s)
		ids = append(ids, step.ID)
	}
	return ids
}

// carryRedos puts into c what a redo needs, or may need: first what was taken back, the last of it before the rest, then the newest steps.
func (t *agentTask) carryRedos(c *protocol.SessionCarry) {
	d, parts := &t.session.redos, t.takenBack()
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
	for _, e := range t.saga.Entries() {
		standing = append(standing, e.Step)
	}
	for _, s := range t.schedule.steps {
		if s.seq == 0 && !s.isOver() {
			standing = append(standing, s.step.ID)
		}
	}
	for _, r := range t.rollbacks.due { // what is being taken back
		for _, s := range r.taken {
			standing = append(standing, s.ID)
		}
		standing = append(standing, r.unfinished...)
	}
	ids = append(ids, payload.KeepLast(standing, left, func(id string) int { return len(d.written[id]) })...)
	c.Written = map[string]json.RawMessage{}
	for _, id := range ids {
		if raw := d.written[id]; raw != nil {
			c.Written[id] = raw
		}
	}
}

// resumeRedos restores what the previous run carried over.
func (d *redos) resume(c protocol.SessionCarry) {
	d.parts, d.released = c.TakenBack, c.Released
	maps.Copy(d.written, c.Written)
}
