package workflows

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// rollbacks undoes parts of a task that goes on: a failed step, or everything since a savepoint, as the step's on_failure says.
// Meanwhile no other step runs; steps at a gate go on waiting.
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

	due     []*rollback
	unwound map[string]int  // how often each step has unwound to its savepoint
	undone  int             // counts the steps that it has undone in this run
	settled func()          // called when something was undone
	took    func(*rollback) // called when what the agent has asked for is undone
}

// rollback undoes a failed step, and what its on_failure says, before the task goes on; or the part of a session that its agent
// asks to undo.
type rollback struct {
	step  *stepRun // nil if the agent asks for it
	cause compensations.Cause
	begun bool   // its scope is decided, and some of it may be undone already
	from  int    // the first sequence number that is undone; math.MaxInt for the target alone
	only  string // the id of the target; empty if everything from there on is undone

	request string                     // the update that asks for it
	undone  []compensations.StepReport // of the steps that it has undone so far, if it is asked for
	over    bool

	to         string               // the savepoint that it goes back to
	branch     *protocol.Branch     // what it takes back is kept under this name
	taken      []protocol.TakenStep // what it has undone so far
	unfinished []string             // the steps that it has canceled or left out
}

// covers reports whether e is undone. What builds on such an entry is undone too.
func (r *rollback) covers(e activities.Entry) bool {
	return e.Seq >= r.from || e.Step == r.only
}

func (b *rollbacks) hasDue() bool { return len(b.due) > 0 }

// mayUnwindAgain reports whether a step may unwind to its savepoint once more.
func (b *rollbacks) mayUnwindAgain(s *stepRun) bool {
	return b.unwound[s.step.ID] < s.step.OnFailure.Times
}

func (b *rollbacks) enqueueRollback(failed *stepRun) {
	failed.rollback = &rollback{step: failed, cause: *causeOf(failed), from: math.MaxInt, only: failed.step.ID}
	b.due = append(b.due, failed.rollback)
}

// undoDue undoes what is due and rearranges the schedule. More may become due meanwhile, by a rejection at a gate. It returns
// false if it was paused: it then continues in the next run, unless the task ends.
func (b *rollbacks) undoDue(ctx workflow.Context) (finished bool) {
	defer b.settled()
	defer b.schedule.arrangeSteps() // when paused too: the next run does not know what has ended in this one
	for ; len(b.due) > 0; b.due = b.due[1:] {
		r := b.due[0]
		isDue := r.step == nil || r.step.rollback == r // else another rollback has restarted or undone the step
		if b.ending.cause == nil && isDue && !b.undoRollback(ctx, r) {
			return false
		}
		if r.step != nil {
			r.step.rollback = nil
		}
	}
	return true
}

func (b *rollbacks) undoRollback(ctx workflow.Context, r *rollback) (finished bool) {
	if r.step == nil {
		return b.undoAsked(ctx, r)
	}
	if !r.begun && !b.decideScope(ctx, r) {
		return true
	}
	report := b.saga.UnwindSteps(ctx, r.cause, r.covers)
	finished = report.Status != compensations.Open
	isSkipped := func(u compensations.StepReport) bool {
		return compensations.UndoState(u.State) == compensations.Skipped
	}
	if r.step.step.OnFailure.Do != task.FailUnwindTo {
		b.noteUndone(report)
		switch {
		case finished && r.step.step.OnFailure.Do == task.FailAsk:
			b.parks.add(ctx, r.step, !slices.ContainsFunc(report.Steps, isSkipped))
		case finished:
			b.schedule.setState(r.step, protocol.RolledBack)
		}
		return finished
	}
	if finished {
		for _, u := range report.Steps {
			if isSkipped(u) {
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
		b.restartStep(r.step) // even if it was never on the ledger
	}
	return finished
}

// decideScope decides what is undone. It returns false if a pivot forbids that.
func (b *rollbacks) decideScope(ctx workflow.Context, r *rollback) bool {
	s := r.step
	switch s.step.OnFailure.Do {
	case task.FailRollbackStep:
		s.addNotes("rolled back, as its on_failure says: " + r.cause.Text)
		fallthrough
	case task.FailAsk:
		r.begun = true
		return true
	case task.FailUnwind, task.FailContinue, task.FailUnwindTo:
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

// closeGates cancels the steps at gates that are undone: they ask again when they are repeated.
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

// firstReachable returns the first sequence number that the task may still unwind to while it goes on; math.MaxInt if there is
// none.
func (b *rollbacks) firstReachable() int {
	places, first := b.schedule.savepoints(), math.MaxInt
	for _, r := range b.due {
		if r.step != nil { // else nothing is repeated
			first = min(first, r.from)
		}
	}
	for changed := true; changed; { // a repeated step may unwind further
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
