package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// A step that fails ends its task, unless its on_failure says otherwise. What is undone then is undone while no other
// step runs; steps at a gate go on waiting.

// fail sees to a step that has ended with an error.
func (t *agentTask) fail(s *stepRun) {
	var rejected rejection
	isRejected := errors.As(s.err, &rejected)
	switch do := s.step.OnFailure.Do; {
	case t.cause != nil:
	case s.view.State == Canceled || isType(s.err, activities.ResetRun):
		t.cause = causeOf(s)
	case do == task.FailContinue:
		s.note("the task goes on: on_failure is continue")
		t.unlock(s)
	case do == task.FailRollbackStep, do == task.FailUnwindTo && !isRejected && t.rewound[s.step.ID] < s.step.OnFailure.Times:
		t.failed = append(t.failed, s)
	default:
		t.cause = causeOf(s)
	}
}

// rollBack undoes what the steps that have failed want undone, and arranges the rest anew. Others may fail meanwhile: at a
// gate that is rejected.
func (t *agentTask) rollBack(ctx workflow.Context) {
	for ; len(t.failed) > 0; t.failed = t.failed[1:] {
		switch s := t.failed[0]; {
		case t.cause != nil || s.err == nil: // another one has put it back to its start
		case s.step.OnFailure.Do == task.FailUnwindTo:
			t.unwindTo(ctx, s)
		default:
			t.rollBackStep(ctx, s)
		}
	}
	t.arrange()
}

// rollBackStep undoes a failed step and all that builds on it.
func (t *agentTask) rollBackStep(ctx workflow.Context, s *stepRun) {
	s.note("rolled back: on_failure is rollback_step")
	t.saga.UnwindSteps(ctx, *causeOf(s), func(e activities.Entry) bool { return e.Step == s.step.ID })
	t.enter(s, RolledBack)
}

// unwindTo undoes everything from a savepoint on, so that it is done again.
func (t *agentTask) unwindTo(ctx workflow.Context, failed *stepRun) {
	name := failed.step.OnFailure.To
	from, known := t.savepoints()[name]
	if first := cmp.Or(from, failed.seq); first > 0 && t.pivot >= first {
		cause := causeOf(failed)
		cause.Text = fmt.Sprintf("a pivot that is done stands after savepoint %s: %s", name, cause.Text)
		t.cause = cause
		return
	}
	again := map[string]bool{failed.step.ID: true} // also where it never came to the ledger
	after := func(e activities.Entry) bool { return known && e.Seq >= from || e.Step == failed.step.ID }
	for _, e := range t.saga.Entries() {
		if s := t.byID[e.Step]; s != nil && after(e) {
			again[e.Step] = true
			if s.gate != nil {
				s.rewinding = true
				s.cancel()
			}
		}
	}
	_ = workflow.Await(ctx, func() bool {
		for _, s := range t.gates {
			if s.rewinding {
				return false
			}
		}
		return t.running == len(t.gates)
	})
	t.rewound[failed.step.ID]++
	cause := causeOf(failed)
	failed.note(fmt.Sprintf("unwound to savepoint %s, %d of %d: %s", name, t.rewound[failed.step.ID], failed.step.OnFailure.Times, cause.Text))
	for _, r := range t.saga.UnwindSteps(ctx, *cause, after) {
		if compensations.UndoState(r.State) == compensations.Skipped {
			cause.Text = fmt.Sprintf("step %s is not undone, so nothing is done again from savepoint %s on: %s", r.Step, name, cause.Text)
			t.cause = cause
			return
		}
		again[r.Step] = true
	}
	for _, s := range t.steps {
		if again[s.step.ID] {
			t.again(s)
		}
	}
}

// savepoints are the places in the ledger that have a name, also those of steps that are off it.
func (t *agentTask) savepoints() map[string]int {
	places := map[string]int{}
	for _, s := range t.steps {
		if s.step.Savepoint != "" && s.seq > 0 {
			places[s.step.Savepoint] = s.seq
		}
	}
	return places
}

// again puts an undone step back to its start, as the next generation of itself.
func (t *agentTask) again(s *stepRun) {
	if s.view.State == Done {
		t.done--
	}
	delete(t.outputs, s.step.ID)
	s.generation++
	s.err, s.want, s.seq, s.rewinding = nil, "", 0, false
	s.view = StepView{ID: s.view.ID, Name: s.view.Name, Uses: s.view.Uses, Host: s.view.Host, Notes: s.view.Notes}
	t.enter(s, NotStarted)
}

// pass sees to the pivots: what is done and was registered before one that is done is kept for good.
func (t *agentTask) pass(s *stepRun) {
	if s.step.Pivot {
		t.pivot = max(t.pivot, s.seq)
	}
	if s.seq > t.pivot {
		return
	}
	failed := map[string]bool{} // in an earlier run
	for _, v := range t.past {
		failed[v.ID] = v.State == StepFailed
	}
	t.saga.Keep(func(e activities.Entry) bool {
		o := t.byID[e.Step]
		if e.Seq > t.pivot || o != nil && o.view.State != Done || failed[e.Step] {
			return false
		}
		t.kept++
		return true
	})
}

// partial says that something of the task is not done, and it went on.
func (t *agentTask) partial() bool {
	missing := func(s StepState) bool { return s == StepFailed || s == RolledBack || s == LeftOut }
	return slices.ContainsFunc(t.past, func(v StepView) bool { return missing(v.State) }) ||
		slices.ContainsFunc(t.steps, func(s *stepRun) bool { return missing(s.view.State) })
}

// committed is the report of a task that has come to its end.
func (t *agentTask) committed() compensations.Report {
	past := t.saga.Past()
	r := compensations.Report{Status: compensations.Committed, Outcomes: maps.Clone(past.Outcomes)}
	r.Steps = append(append(r.Steps, past.Steps...), t.saga.Skipped()...)
	switch {
	case t.partial():
		r.Status = compensations.Partly
	case t.redo:
		r.Status = compensations.Redone
	}
	return r
}
