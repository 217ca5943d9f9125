package sessions

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// takeSteps adds steps to the session.
var takeSteps = ask[protocol.StepRequest]{check: checkGrows[protocol.StepRequest], inspect: (*session).inspectSteps,
	carryOut: (*session).takeSteps}.as(protocol.UpdateStep)

func (t *session) inspectSteps(r protocol.StepRequest) error {
	named, ids, err := t.nameSteps(r.Steps)
	if err != nil {
		return err
	}
	a, err := t.Addition(t.document, named, ids, nil)
	if err != nil {
		return err
	}
	return t.checkSteps(a)
}

func (t *session) takeSteps(ctx workflow.Context, q *request, r protocol.StepRequest) error {
	compiled, err := t.compileSteps(ctx, r.Steps, false)
	if err != nil {
		return err
	}
	q.steps = t.addSteps(compiled)
	return nil
}

// nameSteps returns steps with an id for each, and the ids.
func (t *session) nameSteps(steps []json.RawMessage) (named json.RawMessage, ids []string, err error) {
	next := t.named
	all := make([]map[string]json.RawMessage, len(steps))
	written := map[string]bool{}
	for i, raw := range steps {
		if err := json.Unmarshal(raw, &all[i]); err != nil || all[i] == nil {
			return nil, nil,
				protocol.RefuseRequestf(protocol.BadRequest, "steps[%d]: must be a map with uses and with, as in a task file", i)
		}
		if id, has := all[i]["id"]; has {
			var text string
			_ = json.Unmarshal(id, &text) // what is no text is refused when the step is read
			if written[text] = true; t.used.has("step", text) {
				return nil, nil,
					protocol.RefuseRequestf(protocol.BadRequest,
						"steps.%s.id: the session has had a step %[1]q; choose another id, or leave it out", text)
			} else if t.naming[text] {
				return nil, nil,
					protocol.RefuseRequestf(protocol.BadRequest,
						"steps.%s.id: another request, which is being checked, has a step %[1]q; choose another id, or leave it out",
						text)
			}
		}
	}
	for i := range all {
		for all[i]["id"] == nil {
			next++
			if id := fmt.Sprintf("s%d", next); !written[id] && !t.naming[id] && !t.used.has("step", id) {
				all[i]["id"], _ = json.Marshal(id)
			}
		}
		var id string
		_ = json.Unmarshal(all[i]["id"], &id)
		ids = append(ids, id)
	}
	named, err = json.Marshal(all)
	return named, ids, err
}

// compileSteps compiles steps, without adding them yet: those of a request, or own ones of the
// session.
func (t *session) compileSteps(ctx workflow.Context, steps []json.RawMessage, own bool) (task.Compiled, error) {
	named, ids, err := t.nameSteps(steps)
	if err != nil {
		return task.Compiled{}, err
	}
	a, err := t.Addition(t.document, named, ids, nil)
	if err != nil {
		return task.Compiled{}, err
	}
	a.Redone = own
	t.compiling++
	for _, id := range ids {
		t.naming[id] = true
	}
	defer func() {
		t.compiling--
		for _, id := range ids {
			delete(t.naming, id)
		}
	}()
	compiled, err := t.compileHere(ctx, "check the steps", a)
	if err != nil {
		return compiled, err
	}
	// Meanwhile others may have been added or undone.
	if err := t.checkTakes(); err != nil {
		return compiled, err
	}
	if err := t.checkSavepoints(compiled.Steps); err != nil {
		return compiled, err
	}
	if slices.ContainsFunc(ids, func(id string) bool { return t.used.has("step", id) }) {
		return compiled,
			protocol.RefuseRequestf(protocol.SessionBusy,
				"another request has used one of the ids %s at the same time: send it again", strings.Join(ids, ", "))
	}
	if _, err = t.Addition(t.document, named, ids, nil); err == nil {
		err = t.Admit(ctx, "steps", engine.SizeOfSteps(compiled.Steps))
	}
	if err == nil {
		t.redos.keep(named, compiled.Steps)
	}
	return compiled, err
}

// compileHere compiles steps for the places of the session, or refuses their request.
func (t *session) compileHere(ctx workflow.Context, summary string, a task.Addition) (task.Compiled, error) {
	compiled, err := calls.CompileAdded(ctx, summary, a)
	if err == nil {
		err = calls.LocateSteps(ctx, compiled.Steps, t.places)
	}
	if err != nil {
		return compiled, protocol.RefuseRequestf(protocol.BadRequest, "%s", compensations.Reason(err))
	}
	return compiled, nil
}

// checkSteps checks steps before a request is accepted.
func (t *session) checkSteps(additions ...task.Addition) error {
	if t.check == nil {
		return nil
	}
	for _, a := range additions {
		if err := t.check(a); err != nil {
			return protocol.RefuseRequestf(protocol.BadRequest, "%v", err)
		}
	}
	return nil
}

// checkSavepoints refuses steps with a savepoint that there is already.
func (t *session) checkSavepoints(steps []task.Step) error {
	for _, s := range steps {
		if _, isTaken := t.Savepoints.Places[s.Savepoint]; isTaken {
			return protocol.RefuseRequestf(protocol.BadRequest,
				"steps.%s.savepoint: there is a savepoint %q already; choose another", s.ID, s.Savepoint)
		}
	}
	return nil
}

// addSteps adds compiled steps to the schedule.
func (t *session) addSteps(compiled task.Compiled) (ids []string) {
	first := len(t.Schedule.Steps)
	for _, step := range compiled.Steps {
		t.used.add("step", step.ID)
		t.named++
		t.Schedule.Size++
		t.Schedule.Place(t.appendStep(step, first))
		ids = append(ids, step.ID)
	}
	return ids
}

// appendStep puts a step behind all others. first is the index of the first step of its request.
func (t *session) appendStep(step task.Step, first int) *engine.Step {
	step.Needs = t.completeNeeds(step, first)
	s := t.AddStep(step)
	if text := step.Gate.DescribeOmission(); text != "" {
		s.AddNotes(text + ": it says gate: none")
	}
	return s
}
