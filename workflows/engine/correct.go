package engine

import (
	"encoding/json"
	"maps"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// correction is the document with which other parameters of a step are compiled anew. Its vars
// are filled in already.
const correction = `{"name": "correction", "session": {}}`

// correctStep compiles other parameters for a step that is parked, or at a gate, and stays as it is in
// all else. They may refer to what is done, and to the secrets that the step had, and must not touch
// what an unfinished step touches that does not wait for this one.
func (t *Task) correctStep(ctx workflow.Context, s *Step, with json.RawMessage) (task.Step, error) {
	had := task.SecretsIn(s.Step.With)
	for _, name := range task.SecretsIn(with) {
		if !slices.Contains(had, name) {
			return s.Step, protocol.Refusef("with: secret %s is none that the task gives step %s: refer to those that it "+
				"had, or to none", name, s.Step.ID)
		}
	}
	a, err := t.correctionOf(s, with)
	if err != nil {
		return s.Step, err
	}
	compiled, err := calls.CompileAdded(ctx, "check the correction of "+s.Step.ID, a)
	if err != nil {
		return s.Step, err
	}
	corrected, next := s.Step, compiled.Steps[0]
	corrected.With, corrected.Keys, corrected.MayChange = next.With, next.Keys, next.MayChange
	corrected.Changes, corrected.Reads, corrected.NamedLate = next.Changes, next.Reads, next.NamedLate
	for _, need := range next.Needs {
		if n := t.Schedule.ByID[need]; n != nil && !n.IsSatisfied() {
			return s.Step, protocol.Refusef("with: refers to step %s, which is not done", need)
		}
	}
	before, after := NamesOf(s.Step), NamesOf(next)
	isNew := func(queue string, names named) bool {
		return queue == s.Step.Place.Queue && names.Meets(after) && !names.Meets(before)
	}
	needs := append(slices.Clone(s.Step.Needs), next.Needs...)
	for _, e := range t.Saga.Entries() {
		if e.Step != s.Step.ID && isNew(e.Place.Queue, NamesIn(e)) {
			needs = append(needs, e.Step)
		}
	}
	waiting := s.waiting()
	for _, other := range t.Schedule.Steps {
		if other != s && !other.IsOver() && !waiting[other] && isNew(other.Step.Place.Queue, NamesOf(other.Step)) {
			return s.Step,
				protocol.Refusef(
					"with: touches what step %s touches, which is %s, and does not wait for this one: wait until it is done, or "+
						"write other parameters",
					other.Step.ID, other.View.State)
		}
	}
	corrected.Needs = nil
	for _, need := range needs {
		if !slices.Contains(corrected.Needs, need) {
			corrected.Needs = append(corrected.Needs, need)
		}
	}
	return corrected, nil
}

// correctionOf is a step with other parameters, as a step that is added.
func (t *Task) correctionOf(s *Step, with json.RawMessage) (task.Addition, error) {
	written := map[string]any{"id": s.Step.ID, "uses": s.Step.Uses, "with": with, "needs": []string{}}
	if s.Step.Place.Host != "" {
		written["on"] = s.Step.Place.Host
	}
	steps, err := json.Marshal([]any{written})
	if err != nil {
		return task.Addition{}, protocol.Refusef("with: %v", err)
	}
	return t.Addition(json.RawMessage(correction), steps, []string{s.Step.ID}, nil)
}

// Addition is steps with what the task knows about the steps that they build on. coming are the
// actions of steps, by id, that are to be added before them.
func (t *Task) Addition(document, steps json.RawMessage, ids []string, coming map[string]string) (task.Addition,
	error) {
	a := task.Addition{Session: document, Steps: steps}
	needed, referred := task.Mentioned(steps)
	isMentioned := map[string]bool{}
	for _, id := range append(needed, referred...) {
		isMentioned[id] = !slices.Contains(ids, id)
	}
	if len(isMentioned) == 0 {
		return a, nil
	}
	a.Earlier = map[string]string{}
	for _, e := range t.Saga.Entries() {
		if isMentioned[e.Step] {
			a.Earlier[e.Step] = e.Action
		}
	}
	for _, id := range slices.Sorted(maps.Keys(isMentioned)) {
		s := t.Schedule.ByID[id]
		switch {
		case coming[id] != "":
			a.Earlier[id] = coming[id]
		case !isMentioned[id] || s == nil:
		case s.View.State == protocol.RolledBack || s.View.State == protocol.LeftOut || s.View.State == protocol.StepFailed &&
			!s.IsSatisfied():
			return a, protocol.RefuseRequestf(protocol.BadRequest, "step %s is %s: nothing can build on it", id, s.View.State)
		default:
			a.Earlier[id] = s.Step.Uses
		}
	}
	for _, id := range referred {
		_, isKept := t.Outputs[id]
		isKept = isKept || coming[id] != ""
		if _, isEarlier := a.Earlier[id]; isEarlier && !isKept &&
			(t.Schedule.ByID[id] == nil || t.Schedule.ByID[id].IsOver()) {
			return a, protocol.RefuseRequestf(protocol.BadRequest,
				"${{ steps.%s.outputs }}: the outputs of step %s are no longer kept; write the value itself", id, id)
		}
	}
	return a, nil
}
