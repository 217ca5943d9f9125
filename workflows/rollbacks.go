package workflows

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// rollbacks undoes parts of a task that goes on: a failed step, or all that was done since a savepoint, as the step's
// on_failure says. Meanwhile no other step runs; steps at a gate go on waiting.
type rollbacks struct {
	saga     *compensations.Saga
	schedule *schedule
	gates    *gates
	pivot    *pivot
	ending   *ending
	outputs  outputs
	isQuiet  func() bool // whatever still runs waits at a gate

	due     []*rollback
	unwound map[string]int // how often each step has unwound to its savepoint
}

// rollback is a failed step that is undone, with what its on_failure says, before the task goes on.
type rollback struct {
	step  *stepRun
	cause compensations.Cause
	begun bool // what is undone is decided; some of it may be undone already
	from  int  // the first place in the ledger that is undone; math.MaxInt: the step alone
}

// covers holds for what is undone; what builds on that is as well.
func (r *rollback) covers(e activities.Entry) bool {
	return e.Seq >= r.from || e.Step == r.step.step.ID
}

func (b *rollbacks) hasDue() bool { return len(b.due) > 0 }

// mayUnwindAgain says that a step has not yet unwound to its savepoint as often as it may.
func (b *rollbacks) mayUnwindAgain(s *stepRun) bool {
	return b.unwound[s.step.ID] < s.step.OnFailure.Times
}

func (b *rollbacks) enqueue(failed *stepRun) {
	failed.rollback = &rollback{step: failed, cause: *causeOf(failed), from: math.MaxInt}
	b.due = append(b.due, failed.rollback)
}

// undoDue undoes what is due, and arranges the schedule anew. More may come due meanwhile: at a gate that is rejected. It is
// not finished where it was paused: it goes on in the next run, unless the task ends.
func (b *rollbacks) undoDue(ctx workflow.Context) (finished bool) {
	defer b.schedule.arrange() // also where it is paused: the next run knows nothing of what has ended in this one
	for ; len(b.due) > 0; b.due = b.due[1:] {
		r := b.due[0]
		if b.ending.cause == nil && r.step.rollback == r && !b.undoOne(ctx, r) { // another one may have put it back to its start
			return false
		}
		r.step.rollback = nil
	}
	return true
}

func (b *rollbacks) undoOne(ctx workflow.Context, r *rollback) (finished bool) {
	if !r.begun && !b.decideScope(ctx, r) {
		return true
	}
	report := b.saga.UnwindSteps(ctx, r.cause, r.covers)
	finished = report.Status != compensations.Open
	if r.step.step.OnFailure.Do == task.FailRollbackStep {
		if finished {
			b.schedule.setState(r.step, RolledBack)
		}
		return finished
	}
	if finished {
		for _, u := range report.Steps {
			if compensations.UndoState(u.State) == compensations.Skipped {
				r.cause.Text = fmt.Sprintf("step %s is not undone, so nothing is done again from savepoint %s on: %s", u.Step, r.step.step.OnFailure.To, r.cause.Text)
				b.ending.cause = &r.cause
				return true
			}
		}
	}
	for _, u := range report.Steps {
		switch s := b.schedule.byID[u.Step]; compensations.UndoState(u.State) {
		case compensations.Settled, compensations.Accepted:
			if s != nil && s != r.step {
				b.restartStep(s)
			}
		default:
		}
	}
	if finished {
		b.restartStep(r.step) // also where it never came to the ledger
	}
	return finished
}

// decideScope decides what is undone. It is false where a pivot forbids that.
func (b *rollbacks) decideScope(ctx workflow.Context, r *rollback) bool {
	s := r.step
	if s.step.OnFailure.Do == task.FailRollbackStep {
		s.addNotes("rolled back: on_failure is rollback_step")
		r.begun = true
		return true
	}
	name := s.step.OnFailure.To
	from, isKnown := b.schedule.savepoints()[name]
	if first := cmp.Or(from, s.seq); first > 0 && b.pivot.seq >= first {
		r.cause.Text = fmt.Sprintf("a pivot that is done stands after savepoint %s: %s", name, r.cause.Text)
		b.ending.cause = &r.cause
		return false
	}
	r.begun = true
	if isKnown {
		r.from = from
	}
	b.closeGates(ctx, r)
	b.unwound[s.step.ID]++
	s.addNotes(fmt.Sprintf("unwound to savepoint %s, %d of %d: %s", name, b.unwound[s.step.ID], s.step.OnFailure.Times, r.cause.Text))
	return true
}

// closeGates ends the waiting of steps that are undone: they ask anew when they are done again.
func (b *rollbacks) closeGates(ctx workflow.Context, r *rollback) {
	for _, e := range b.saga.Entries() {
		if s := b.schedule.byID[e.Step]; s != nil && r.covers(e) && s.gate != nil {
			s.restarting = true
			s.cancel()
		}
	}
	_ = workflow.Await(ctx, func() bool {
		return b.isQuiet() && !slices.ContainsFunc(b.gates.open, func(s *stepRun) bool { return s.restarting })
	})
}

func (b *rollbacks) restartStep(s *stepRun) {
	delete(b.outputs, s.step.ID)
	b.schedule.restartStep(s)
}

// firstReachable is the first place in the ledger that the task may still unwind to while it goes on; math.MaxInt where none is.
func (b *rollbacks) firstReachable() int {
	places, first := b.schedule.savepoints(), math.MaxInt
	for _, r := range b.due {
		first = min(first, r.from)
	}
	for changed := true; changed; { // a step that is done again may unwind further
		changed = false
		for _, s := range b.schedule.steps {
			from, isKnown := places[s.step.OnFailure.To]
			if isKnown && from < first && (!s.isOver() || s.seq >= first) {
				first, changed = from, true
			}
		}
	}
	return first
}
