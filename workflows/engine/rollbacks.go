package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// rollbacks undoes parts of a task that goes on: a failed step, or everything since a savepoint, as
// the step's on_failure says. Meanwhile no other step runs; steps at a gate go on waiting.
type rollbacks struct {
	saga       *compensations.Saga
	schedule   *schedule
	gates      *gates
	parks      *parks
	pivot      *pivot
	ending     *ending
	outputs    outputs
	savepoints *savepoints
	isQuiet    func() bool // whether every running step waits at a gate

	Due     []*Rollback
	unwound map[string]int  // how often each step has unwound to its savepoint
	Undone  int             // counts the steps that it has undone in this run
	settled func()          // called when something was undone
	took    func(*Rollback) // called when what the agent has asked for is undone
}

func (b *rollbacks) HasDue() bool { return len(b.Due) > 0 }

// mayUnwindAgain reports whether a step may unwind to its savepoint once more.
func (b *rollbacks) mayUnwindAgain(s *Step) bool {
	return b.unwound[s.Step.ID] < s.Step.OnFailure.Times
}

func (b *rollbacks) enqueueRollback(failed *Step) {
	failed.Rollback = &Rollback{step: failed, Cause: *causeOf(failed), From: math.MaxInt, Only: failed.Step.ID}
	b.Due = append(b.Due, failed.Rollback)
}

// undoDue undoes what is due and rearranges the schedule. More may become due meanwhile, by a
// rejection at a gate. It returns false if it was paused: it then continues in the next run, unless
// the task ends.
func (b *rollbacks) undoDue(ctx workflow.Context) (finished bool) {
	defer b.settled()
	defer b.schedule.arrangeSteps() // when paused too: the next run does not know what has ended in this one
	for ; len(b.Due) > 0; b.Due = b.Due[1:] {
		r := b.Due[0]
		isDue := r.step == nil || r.step.Rollback == r // else another rollback has restarted or undone the step
		if b.ending.Cause == nil && isDue && !b.undoRollback(ctx, r) {
			return false
		}
		if r.step != nil {
			r.step.Rollback = nil
		}
	}
	return true
}

func (b *rollbacks) undoRollback(ctx workflow.Context, r *Rollback) (finished bool) {
	if r.step == nil {
		return b.undoAsked(ctx, r)
	}
	if r.Edited {
		return b.undoEdited(ctx, r)
	}
	if !r.Begun && !b.decideScope(ctx, r) {
		return true
	}
	report := b.saga.UnwindSteps(ctx, r.Cause, r.covers)
	finished = report.Status != compensations.Open
	if r.step.Step.OnFailure.Do != task.FailUnwindTo {
		b.noteUndone(report)
		for _, u := range report.Steps { // for the same target, and what builds on it
			if u.Step != r.step.Step.ID && isUndone(u) {
				b.markUndone(u.Step, r)
			}
		}
		switch {
		case finished && r.step.Step.OnFailure.Do == task.FailAsk:
			b.parks.add(ctx, r.step, !isAnySkipped(report))
		case finished:
			b.schedule.setState(r.step, protocol.RolledBack)
		}
		return finished
	}
	if finished {
		for _, u := range report.Steps {
			if isSkipped(u) {
				r.Cause.Text = fmt.Sprintf("step %s is not undone, so nothing is done again from savepoint %s on: %s", u.Step,
					r.step.Step.OnFailure.To, r.Cause.Text)
				b.ending.Cause = &r.Cause
				return true
			}
		}
	}
	for _, u := range report.Steps {
		if s := b.schedule.ByID[u.Step]; s != nil && s != r.step && isUndone(u) {
			b.restartStep(s)
		}
	}
	if finished {
		b.restartStep(r.step) // even if it was never on the ledger
	}
	return finished
}

func isSkipped(u compensations.StepReport) bool {
	return compensations.UndoState(u.State) == compensations.Skipped
}

func isAnySkipped(report compensations.Report) bool {
	return slices.ContainsFunc(report.Steps, isSkipped)
}

// isUndone reports whether an undo has brought the world back, or a person has accepted it.
func isUndone(u compensations.StepReport) bool {
	state := compensations.UndoState(u.State)
	return state == compensations.Settled || state == compensations.Accepted
}

// decideScope decides what is undone. It returns false if a pivot forbids that.
func (b *rollbacks) decideScope(ctx workflow.Context, r *Rollback) bool {
	s := r.step
	switch s.Step.OnFailure.Do {
	case task.FailRollbackStep:
		s.AddNotes("rolled back, as its on_failure says: " + r.Cause.Text)
		if stays := b.committedOf(s.Step.OnFailure.With); len(stays) > 0 {
			s.AddNotes("not undone with it, because a pivot that is done came after them: " + strings.Join(stays, ", "))
		}
		r.Begun = true
		b.closeGates(ctx, r)
		return true
	case task.FailAsk:
		r.Begun = true
		return true
	case task.FailUnwind, task.FailContinue, task.FailUnwindTo:
	}
	name := s.Step.OnFailure.To
	from, isKnown := b.schedule.savepoints()[name]
	if first := cmp.Or(from, s.Seq); first > 0 && b.pivot.Seq >= first {
		r.Cause.Text = fmt.Sprintf("a pivot that is done stands after savepoint %s: %s", name, r.Cause.Text)
		b.ending.Cause = &r.Cause
		return false
	}
	r.Begun = true
	if isKnown {
		r.From = from
	}
	b.closeGates(ctx, r)
	b.unwound[s.Step.ID]++
	s.AddNotes(fmt.Sprintf("unwound to savepoint %s, %d of %d: %s", name, b.unwound[s.Step.ID], s.Step.OnFailure.Times,
		r.Cause.Text))
	return true
}

// committedOf returns those of the steps of a target, which are all done, that a pivot has put beyond
// undoing.
func (b *rollbacks) committedOf(ids []string) []string {
	open := map[string]bool{}
	for _, e := range b.saga.Entries() {
		open[e.Step] = true
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return open[id] })
}

// closeGates cancels the steps at gates that are undone: they ask again when they are repeated.
func (b *rollbacks) closeGates(ctx workflow.Context, r *Rollback) {
	for _, e := range compensations.Closure(b.saga.Entries(), r.covers) {
		if s := b.schedule.ByID[e.Step]; s != nil && s.Gate != nil {
			s.restarting = true
			s.cancel()
		}
	}
	_ = workflow.Await(ctx, func() bool {
		return b.isQuiet() && !slices.ContainsFunc(b.gates.open, func(s *Step) bool { return s.restarting })
	})
}

func (b *rollbacks) restartStep(s *Step) {
	delete(b.outputs, s.Step.ID)
	b.schedule.restartStep(s)
}

// firstReachable returns the first sequence number that the task may still unwind to while it goes
// on; math.MaxInt if there is none.
func (b *rollbacks) firstReachable() int {
	places, first := b.schedule.savepoints(), math.MaxInt
	for _, r := range b.Due {
		if r.step != nil { // else nothing is repeated
			first = min(first, r.From)
		}
	}
	for _, s := range b.schedule.Steps { // one that fails may take back its target
		for _, id := range s.Step.OnFailure.With {
			if done := b.schedule.ByID[id]; !s.IsOver() && done != nil && done.Seq > 0 {
				first = min(first, done.Seq)
			}
		}
	}
	for changed := true; changed; { // a repeated step may unwind further
		changed = false
		for _, s := range b.schedule.Steps {
			from, isKnown := places[s.Step.OnFailure.To]
			if isKnown && from < first && (!s.IsOver() || s.Seq >= first) {
				first, changed = from, true
			}
		}
	}
	return first
}
