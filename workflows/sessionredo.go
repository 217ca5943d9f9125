package workflows

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// TakenBack is what a rollback of a session has taken back: UpdateRedo runs it again.
type TakenBack struct {
	// Request is the update that asked for the rollback; To and Step are what it named.
	Request string `json:"request"`
	To      string `json:"to,omitempty"`
	Step    string `json:"step,omitempty"`
	// Branch is the name that the rollback has given to it; nil for none. Chosen says that it was redone, at least in part.
	Branch *Branch `json:"branch,omitempty"`
	Chosen bool    `json:"chosen,omitempty"`
	// Context is the last one that the agent had given in it.
	Context *Context `json:"context,omitempty"`
	// Steps are in the order in which they began. Those that had not begun are the last.
	Steps []TakenStep `json:"steps"`
}

// TakenStep is a step that was taken back.
type TakenStep struct {
	ID string `json:"id"`
	// Seq is that of its entry; 0 if it had none.
	Seq        int `json:"seq,omitempty"`
	Generation int `json:"generation,omitempty"`
	// Savepoint is the one that its entry bore.
	Savepoint string `json:"savepoint,omitempty"`
}

// redos is what a session needs in order to redo what it has rolled back.
type redos struct {
	written  map[string]json.RawMessage // the steps as their agent wrote them, by id; only looked up
	parts    []TakenBack                // the oldest first
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
func (d *redos) add(part TakenBack) {
	isHere := map[string]bool{}
	for _, s := range part.Steps {
		isHere[s.ID] = true
	}
	var parts []TakenBack
	for _, p := range d.parts {
		p.Steps = slices.DeleteFunc(slices.Clone(p.Steps), func(s TakenStep) bool { return isHere[s.ID] })
		switch {
		case len(p.Steps) == 0:
		case part.Branch != nil && p.Branch.isNamed(part.Branch.Name):
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
		r.taken = append(r.taken, TakenStep{ID: e.Step, Seq: e.Seq, Generation: max(1, e.Generation), Savepoint: e.Savepoint})
	}
}

// keepTakenBack remembers what a rollback has taken back, once it is over, and forgets what the agent has given since.
func (t *agentTask) keepTakenBack(r *rollback) {
	part := TakenBack{
		Request: r.request, To: r.to, Step: r.only, Branch: r.branch, Context: t.lastContextIn(r.from), Steps: slices.Clone(r.taken),
	}
	slices.SortFunc(part.Steps, func(a, b TakenStep) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, id := range r.unfinished {
		isTaken := slices.ContainsFunc(part.Steps, func(s TakenStep) bool { return s.ID == id })
		if s := t.schedule.byID[id]; s != nil && !isTaken && !t.isStanding(id) {
			part.Steps = append(part.Steps, TakenStep{ID: id, Generation: s.generation})
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
func (t *agentTask) takenBack() []TakenBack {
	var parts []TakenBack
	for _, part := range t.session.redos.parts {
		var steps []TakenStep
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
func (t *agentTask) findTakenBack(r SessionRedo) (TakenBack, error) {
	switch {
	case r.isAmbiguous():
		return TakenBack{}, refuseRequestf(BadRequest, "at most one of branch, to and step can be given")
	case t.rollbacks.hasDue():
		return TakenBack{}, refuseRequestf(SessionBusy, "a rollback is under way: wait for it, then redo it")
	}
	parts := t.takenBack()
	var names []string
	for _, part := range slices.Backward(parts) {
		if part.isMeant(r) {
			return part, t.checkBase(part)
		}
		names = append(names, part.name())
		if slices.ContainsFunc(part.Steps, func(s TakenStep) bool { return s.ID == r.Step }) {
			return TakenBack{}, refuseRequestf(BadRequest, "step: %s was taken back by the rollback %s: redo that", r.Step, part.name())
		}
	}
	why := "nothing was rolled back that is not done again"
	switch {
	case len(parts) > 0:
		why = fmt.Sprintf("the rollback %s cannot be redone; these can: %s", nameRollback(r.Branch, r.To, r.Step), listed(names))
	case t.session.redos.released:
		why = "what was rolled back is no longer kept; send the steps again"
	}
	return TakenBack{}, refuseRequestf(BadRequest, "%s", why)
}

// isMeant reports whether a request to redo names p.
func (p TakenBack) isMeant(r SessionRedo) bool {
	if r.Branch != "" {
		return p.Branch.isNamed(r.Branch)
	}
	return r.To+r.Step == "" || p.To == r.To && p.Step == r.Step
}

func (r SessionRedo) isAmbiguous() bool {
	given := slices.DeleteFunc([]string{r.Branch, r.To, r.Step}, func(name string) bool { return name == "" })
	return len(given) > 1
}

func (p TakenBack) name() string {
	if p.Branch != nil {
		return nameRollback(p.Branch.Name, "", "")
	}
	return nameRollback("", p.To, p.Step)
}

func nameRollback(branch, to, step string) string {
	switch {
	case branch != "":
		return "of branch " + clip(branch, maxName)
	case to != "":
		return "to savepoint " + clip(to, maxName)
	}
	return "of step " + clip(step, maxName)
}

// maxRedone is how many bytes of steps are compiled together in a redo.
const maxRedone = 1 << 20

// additions returns the steps of a redo as steps that are added, in as few groups as can be compiled.
func (t *agentTask) additions(part TakenBack) ([]task.Addition, error) {
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
				return nil, refuseRequestf(BadRequest, "step %s is no longer kept as it was written; send the steps again", id)
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
			return refuseRequestf(BadRequest, "step %s needs step %s, which is not done: redo that first, or send %s again", id, need, id)
		}
	}
	return nil
}

// redo compiles what was taken back, and adds it as the next generation of its steps. Its agent is back at the context that it had there.
func (t *agentTask) redo(ctx workflow.Context, q *request, r SessionRedo) error {
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
		return refuseRequestf(SessionBusy, "another request has redone or rolled back some of it at the same time: send it again")
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
func (t *agentTask) addAgain(part TakenBack, steps []task.Step, why string) (ids []string) {
	before := map[string]StepView{}
	for _, step := range steps {
		before[step.ID] = t.schedule.takeOut(step.ID)
	}
	first := len(t.schedule.steps)
	for _, step := range steps {
		was := part.Steps[slices.IndexFunc(part.Steps, func(s TakenStep) bool { return s.ID == step.ID })]
		if _, isTaken := t.savepoints.places[was.Savepoint]; step.Savepoint == "" && !isTaken {
			step.Savepoint = was.Savepoint
		}
		s := t.appendStep(step, first)
		s.generation = was.Generation + 1
		next := before[step.ID].Next(s.generation)
		s.view.Try, s.view.Tried = next.Try, next.Tried
		note := "redone by the agent"
		if why != "" {
			note += ": " + clip(why, maxWhy)
		}
		s.addNotes(note)
		t.schedule.place(s)
		ids = append(ids, step.ID)
	}
	return ids
}

// carryRedos puts into c what a redo needs, or may need: first what was taken back, the last of it before the rest, then the newest steps.
func (t *agentTask) carryRedos(c *SessionCarry) {
	d, parts := &t.session.redos, t.takenBack()
	sizeOfPart := func(p TakenBack) int {
		size := sizeOf(p)
		for _, s := range p.Steps {
			size += len(d.written[s.ID])
		}
		return size
	}
	c.TakenBack = keepLast(parts, maxKeptSteps, sizeOfPart)
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
	ids = append(ids, keepLast(standing, left, func(id string) int { return len(d.written[id]) })...)
	c.Written = map[string]json.RawMessage{}
	for _, id := range ids {
		if raw := d.written[id]; raw != nil {
			c.Written[id] = raw
		}
	}
}

// forgetSteps drops what only a redo needs.
func (c *SessionCarry) forgetSteps() {
	c.Released = c.Released || len(c.TakenBack) > 0
	c.TakenBack, c.Written = nil, nil
}

// resumeRedos restores what the previous run carried over.
func (d *redos) resume(c SessionCarry) {
	d.parts, d.released = c.TakenBack, c.Released
	maps.Copy(d.written, c.Written)
}
