package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
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
		s.failure = &failure{step: s, cause: *causeOf(s), from: math.MaxInt}
		t.failed = append(t.failed, s.failure)
	default:
		t.cause = causeOf(s)
	}
}

// failure is a step that has failed and, before the task goes on, is undone with what its on_failure says.
type failure struct {
	step  *stepRun
	cause compensations.Cause
	begun bool // what is undone is decided; some of it may be
	from  int  // where in the ledger that begins
}

// covers holds for what is undone; what builds on that is as well.
func (f *failure) covers(e activities.Entry) bool { return e.Seq >= f.from || e.Step == f.step.step.ID }

// rollBack undoes what the steps that have failed want undone, and arranges the rest anew. Others may fail meanwhile: at a
// gate that is rejected. It is false where it was paused: it goes on in the next run, unless the task ends.
func (t *agentTask) rollBack(ctx workflow.Context) (done bool) {
	t.pauses = workflow.GetVersion(ctx, "pause-partial", workflow.DefaultVersion, 1) != workflow.DefaultVersion
	defer t.arrange() // also where it is paused: the next run knows nothing of what has ended in this one
	for ; len(t.failed) > 0; t.failed = t.failed[1:] {
		f := t.failed[0]
		if t.cause == nil && f.step.failure == f && !t.rollBackOne(ctx, f) { // another one may have put it back to its start
			return false
		}
		f.step.failure = nil
	}
	return true
}

func (t *agentTask) rollBackOne(ctx workflow.Context, f *failure) (done bool) {
	if !f.begun && !t.begin(ctx, f) {
		return true
	}
	r := t.saga.UnwindSteps(ctx, f.cause, f.covers)
	if f.step.step.OnFailure.Do == task.FailRollbackStep {
		if r.Status != compensations.Open {
			t.enter(f.step, RolledBack)
		}
		return r.Status != compensations.Open
	}
	if r.Status != compensations.Open {
		for _, u := range r.Steps {
			if compensations.UndoState(u.State) == compensations.Skipped {
				f.cause.Text = fmt.Sprintf("step %s is not undone, so nothing is done again from savepoint %s on: %s", u.Step, f.step.step.OnFailure.To, f.cause.Text)
				t.cause = &f.cause
				return true
			}
		}
	}
	for _, u := range r.Steps {
		switch s := t.byID[u.Step]; compensations.UndoState(u.State) {
		case compensations.Settled, compensations.Accepted:
			if s != nil && s != f.step {
				t.again(s)
			}
		default:
		}
	}
	if r.Status == compensations.Open {
		return false
	}
	t.again(f.step) // also where it never came to the ledger
	return true
}

// begin decides what is undone. It is false where a pivot forbids that.
func (t *agentTask) begin(ctx workflow.Context, f *failure) bool {
	if f.step.step.OnFailure.Do == task.FailRollbackStep {
		f.step.note("rolled back: on_failure is rollback_step")
		f.begun = true
		return true
	}
	id, name := f.step.step.ID, f.step.step.OnFailure.To
	from, known := t.savepoints()[name]
	if first := cmp.Or(from, f.step.seq); first > 0 && t.pivot >= first {
		f.cause.Text = fmt.Sprintf("a pivot that is done stands after savepoint %s: %s", name, f.cause.Text)
		t.cause = &f.cause
		return false
	}
	f.begun = true
	if known {
		f.from = from
	}
	t.closeGates(ctx, f)
	t.rewound[id]++
	f.step.note(fmt.Sprintf("unwound to savepoint %s, %d of %d: %s", name, t.rewound[id], f.step.step.OnFailure.Times, f.cause.Text))
	return true
}

// closeGates ends the waiting of what is undone: it is asked about anew when it is done again.
func (t *agentTask) closeGates(ctx workflow.Context, f *failure) {
	for _, e := range t.saga.Entries() {
		if s := t.byID[e.Step]; s != nil && f.covers(e) && s.gate != nil {
			s.rewinding = true
			s.cancel()
		}
	}
	_ = workflow.Await(ctx, func() bool {
		return t.running == len(t.gates) && !slices.ContainsFunc(t.gates, func(s *stepRun) bool { return s.rewinding })
	})
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
	s.err, s.failure, s.want, s.seq, s.rewinding = nil, nil, "", 0, false
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
	open := map[string]bool{} // since an earlier run
	for _, v := range t.past {
		open[v.ID] = v.State != Done
	}
	t.saga.Keep(func(e activities.Entry) bool {
		o := t.byID[e.Step]
		if e.Seq > t.pivot || o != nil && o.view.State != Done || open[e.Step] {
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
