package workflows

import (
	"encoding/json"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// correction is the document with which the parameters of a parked step are compiled anew. Its vars are filled in already.
const correction = `{"name": "correction", "session": {}}`

// correctStep compiles other parameters for a parked step, which stays as it is in all else. They may refer to what is done, and must
// not touch what an unfinished step touches that neither comes before this one nor after it.
func (t *agentTask) correctStep(ctx workflow.Context, s *stepRun, with json.RawMessage) (task.Step, error) {
	a, err := t.correctionOf(s, with)
	if err != nil {
		return s.step, err
	}
	compiled, err := t.compileAdded(ctx, "check the correction of "+s.step.ID, a)
	if err != nil {
		return s.step, err
	}
	corrected, next := s.step, compiled.Steps[0]
	corrected.With, corrected.Keys, corrected.MayChange = next.With, next.Keys, next.MayChange
	corrected.Changes, corrected.Reads, corrected.NamedLate = next.Changes, next.Reads, next.NamedLate
	for _, need := range next.Needs {
		if n := t.schedule.byID[need]; n != nil && !n.isSatisfied() {
			return s.step, protocol.Refusef("with: refers to step %s, which is not done", need)
		}
	}
	before, after := namesOf(s.step), namesOf(next)
	isNew := func(queue string, names named) bool {
		return queue == s.step.Place.Queue && names.meets(after) && !names.meets(before)
	}
	needs := append(slices.Clone(s.step.Needs), next.Needs...)
	for _, e := range t.saga.Entries() {
		if isNew(e.Place.Queue, namesIn(e)) {
			needs = append(needs, e.Step)
		}
	}
	for _, other := range t.schedule.steps {
		if other != s && !other.isOver() && isNew(other.step.Place.Queue, namesOf(other.step)) {
			return s.step, protocol.Refusef("with: touches what step %s touches, which is %s, and neither needs the other: wait until it is done, or write other parameters",
				other.step.ID, other.view.State)
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

// correctionOf is a parked step with other parameters, as a step that is added.
func (t *agentTask) correctionOf(s *stepRun, with json.RawMessage) (task.Addition, error) {
	written := map[string]any{"id": s.step.ID, "uses": s.step.Uses, "with": with, "needs": []string{}}
	if s.step.Place.Host != "" {
		written["on"] = s.step.Place.Host
	}
	steps, err := json.Marshal([]any{written})
	if err != nil {
		return task.Addition{}, protocol.Refusef("with: %v", err)
	}
	return t.addition(json.RawMessage(correction), steps, []string{s.step.ID}, nil)
}
