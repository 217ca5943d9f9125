package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// edited ends a try of a step that has other parameters by now: a person has given them at its gate.
// That try is undone, since its plan may have left something behind, and the next one is planned, and
// asked about, under a token of its own.
type edited struct {
	step task.Step // with them
	note string    // says who has given them, and how they differ
}

func (e edited) Error() string { return e.note }

// findEdited returns the step at a gate to which a resolution gives other parameters. An error says why
// it decides nothing.
func (t *Task) findEdited(r protocol.Resolution) (*Step, error) {
	gate, err := t.Gates.findGate(protocol.Decision{Step: r.Step, Digest: r.Digest, Who: r.Who, Why: r.Why,
		Signature: r.Signature}, false)
	switch {
	case err != nil:
		return nil, err
	case t.Ending.Cause != nil:
		return nil, fmt.Errorf("the task goes no further: %s", t.Ending.Cause.Text)
	case !r.HasWith():
		return nil, fmt.Errorf("with: edit takes the new parameters of step %q", r.Step)
	case gate.edit != nil:
		return nil, fmt.Errorf("step %q is being edited by %s already", r.Step, protocol.OrSomebody(gate.edit.Who))
	}
	return t.Schedule.ByID[r.Step], nil
}

// edit has the parameters of a step at a gate replaced, once they are checked. Until then the gate can
// be decided as it is, and then nothing is replaced.
func (t *Task) edit(r protocol.Resolution) (*parkDecision, error) {
	s, err := t.findEdited(r)
	if err != nil {
		return nil, err
	}
	r.Resolution = r.Clip()
	d := &parkDecision{Resolution: r, checking: true}
	gate := s.Gate
	gate.edit = d
	t.proofs.open++ // no run ends with this under way
	ctx, _ := workflow.NewDisconnectedContext(t.proofs.ctx)
	workflow.GoNamed(ctx, "edit of "+s.Step.ID, func(ctx workflow.Context) {
		defer func() { t.proofs.open-- }()
		step, err := t.correctStep(ctx, s, r.With)
		if err == nil && (s.Gate != gate || gate.decision != nil || t.Ending.Cause != nil) {
			err = fmt.Errorf("the gate of step %q was decided meanwhile", s.Step.ID)
		}
		changed := changedText(s.Step.With, step.With)
		if err == nil && changed == "" {
			err = fmt.Errorf("with: these are the parameters that step %q has", s.Step.ID)
		}
		by := activities.Signer(protocol.OrSomebody(r.Who), r.Key)
		if err != nil {
			gate.edit, d.Refusal = nil, err
			s.addFutile(fmt.Sprintf("%s by %s decided nothing: %s", r.Do, by, compensations.Reason(err)))
			t.Schedule.changed()
			return
		}
		note := "edited by " + by + ": " + changed
		if r.Why != "" {
			note += ": " + r.Why
		}
		step.Gate = task.Gate{Mode: task.GateAsk, Limit: step.Gate.Limit, Why: gate.view.Why}
		t.replaceParams(s.Step.ID, r.With)
		d.corrected = &step
		gate.edited = &edited{step, note}
		gate.settle(protocol.Decision{Step: r.Step, Digest: r.Digest, Who: r.Who, Key: r.Key, Why: r.Why}, false)
		_ = workflow.Await(ctx, func() bool { return s.Gate != gate })
	})
	return d, nil
}

// maxChanged is how much of a parameter a note shows, before and after.
const maxChanged = 200

// changedText says which parameters differ, and how; empty if none does.
func changedText(before, after json.RawMessage) string {
	var a, b map[string]json.RawMessage
	_, _ = json.Unmarshal(before, &a), json.Unmarshal(after, &b) // compiled parameters are a map
	value := func(raw json.RawMessage) string {
		if raw == nil {
			return "nothing"
		}
		return payload.Clip(string(raw), maxChanged)
	}
	var texts []string
	for _, name := range changedParams(before, after) {
		texts = append(texts, fmt.Sprintf("%s from %s to %s", name, value(a[name]), value(b[name])))
	}
	return payload.Clip(strings.Join(texts, ", "), payload.MaxWhy)
}

// enqueueEdit gives a step other parameters, and has its present try undone. It begins again after
// that, even if it is another rollback that undoes it.
func (b *rollbacks) enqueueEdit(s *Step, e edited) {
	b.enqueueRollback(s)
	s.Rollback.Edited = true
	s.Step, s.corrected, s.edited, s.openings = e.step, true, e.note, 0
	s.AddNotes(e.note)
}

// undoEdited undoes a try of a step that was edited, and has the step begin again, unless the agent of
// its session takes it back meanwhile. Where a person has left what the try did, nothing may run on top
// of that: the step is parked.
func (b *rollbacks) undoEdited(ctx workflow.Context, r *Rollback) (finished bool) {
	report := b.saga.UnwindSteps(ctx, r.Cause, r.covers)
	b.noteUndone(report)
	if report.Status == compensations.Open {
		return false
	}
	s := r.step
	switch {
	case s.Rollback != r:
	case isAnySkipped(report):
		s.err = errors.New("it was edited, and what it had left behind until then is not undone")
		s.View.Error = s.reason()
		b.parks.add(ctx, s, false)
	default:
		b.schedule.repeatStep(s)
	}
	return true
}
