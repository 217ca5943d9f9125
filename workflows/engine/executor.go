package engine

import (
	"encoding/json"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// executor runs each step of a schedule in a coroutine when its needs are done, and handles how it
// ended.
type executor struct {
	schedule  *schedule
	gates     *gates
	parks     *parks
	runner    *stepRunner
	rollbacks *rollbacks
	pivot     *pivot
	committer *calls.Committer
	ending    *ending

	running  int      // the number of coroutines that run steps
	deadline deadline // of the whole task
	draining bool     // starting is over, so that the run can continue as new
	paused   bool     // a rollback was interrupted for that
	silence  *Silence // of the agent of a session

	takeSignals func()                          // takes those that are there
	carryOver   func() (json.RawMessage, error) // returns what the next run is handed; an error says why it is too large
	getStuck    func(workflow.Context, error)   // called when it is
	isCalm      func() bool                     // whether nobody is being alerted, and no request is being carried out
	next        json.RawMessage                 // what the next run is handed, once this one is over
	stuck       string                          // why there can be no next run; empty if there can
}

// runSteps goes forward until all steps are over or something ends the task; no step is running
// when it returns. It also returns, draining, when the run is long enough.
func (x *executor) runSteps(ctx workflow.Context, began time.Time, limit time.Duration) {
	stepsCtx, cancel := workflow.WithCancel(ctx)
	defer func() {
		if x.next == nil { // else the next run has the steps that wait, and a query may still ask this one
			cancel()
		}
	}()
	if limit > 0 {
		x.deadline = deadline{began: began, limit: limit}
		x.deadline.watch(stepsCtx, 0)
	}
	x.reopenGates(stepsCtx)
	for x.ending.Cause == nil && x.hasWork() {
		for !x.isOver(ctx) && x.mayLaunchStep() {
			s := x.takeStep(stepsCtx)
			if s == nil {
				break
			}
			x.launchStep(stepsCtx, s)
		}
		x.silence.watch(stepsCtx)
		_ = workflow.Await(stepsCtx, func() bool { return x.hasTurn(ctx) })
		switch {
		case isReset(ctx):
			x.ending.Cause = wasReset(ctx)
		case ctx.Err() != nil: // checked early, because it makes the deadline's timer ready too
			x.ending.Cause = CanceledCause()
		case x.ending.Cause == nil && x.deadline.isDue():
			x.ending.end(x.deadline.end(stepsCtx))
		case x.ending.Cause == nil && x.silence.isDue():
			x.ending.end(x.silence.end(ctx))
		case x.ending.Cause == nil && x.canUndo():
			finished := x.rollbacks.undoDue(stepsCtx)
			if x.silence.rest(workflow.Now(ctx)); !finished && !x.isOver(ctx) && x.isQuiet() {
				x.draining, x.paused = true, true
			}
			x.stuck = "" // less is to be carried over now
		case x.ending.Cause == nil && x.mayCarryOut():
			x.parks.carryOut(stepsCtx)
		case x.ending.Cause == nil && x.canStop(ctx):
			if x.draining = x.hasWork(); !x.draining || x.leave(ctx) {
				return
			}
		}
	}
	if x.ending.Cause != nil {
		cancel()
		x.awaitSteps(ctx)
	}
}

// hasTurn reports whether there is anything to do but wait for steps.
func (x *executor) hasTurn(ctx workflow.Context) bool {
	return x.isOver(ctx) || len(x.schedule.Ready) > 0 && x.mayLaunchStep() || x.running == 0 && !x.draining &&
		!x.hasWork() ||
		x.mayCarryOut() || x.silence.isDue() || x.silence.isUnwatched() || x.canUndo() || x.canStop(ctx)
}

// hasWork reports whether the task has anything left to do, or may get more.
func (x *executor) hasWork() bool {
	return len(x.schedule.Ready)+x.running > 0 || x.rollbacks.HasDue() || x.parks.IsOpen() || x.schedule.Open
}

// canUndo reports whether a rollback may begin, or continue.
func (x *executor) canUndo() bool { return x.rollbacks.HasDue() && x.isQuiet() && !x.paused }

// canStop reports whether the run may begin to continue as new, or has waited for the updates that
// it has answered: the next run would not know of them.
func (x *executor) canStop(ctx workflow.Context) bool {
	if x.draining {
		return x.isQuiet() && x.canLeave(ctx)
	}
	return x.stuck == "" && runIsLong(ctx) && x.isQuiet()
}

// leave reports whether the run is over, and the next one can go on.
func (x *executor) leave(ctx workflow.Context) bool {
	x.takeSignals() // one that has to be verified is verified in this run
	if !x.canLeave(ctx) {
		return false
	}
	var err error
	if x.next, err = x.carryOver(); err != nil {
		x.getStuck(ctx, err)
	}
	return err == nil
}

// canLeave reports whether no update waits for its answer, no request and no correction of a step
// is being checked, and nobody is being alerted.
func (x *executor) canLeave(ctx workflow.Context) bool {
	return workflow.AllHandlersFinished(ctx) && x.parks.correcting == 0 && x.isCalm()
}

// mayCarryOut reports whether a decision about a parked step can be carried out in this run.
func (x *executor) mayCarryOut() bool { return x.parks.hasDue() && !x.draining }

// isOver reports whether the task no longer goes forward.
func (x *executor) isOver(ctx workflow.Context) bool {
	return x.ending.Cause != nil || ctx.Err() != nil || x.deadline.isDue() || isReset(ctx)
}

// isHolding reports whether starting is suspended for now.
func (x *executor) isHolding() bool { return x.draining || x.stuck != "" || x.rollbacks.HasDue() }

// isQuiet reports whether every running step waits at a gate.
func (x *executor) isQuiet() bool { return x.running == len(x.gates.open) }

// mayLaunchStep reports whether another coroutine may run steps. Each one slows down all others, so
// their number is bounded.
func (x *executor) mayLaunchStep() bool {
	return !x.isHolding() && x.running-len(x.gates.open) < calls.MaxInFlight && x.running < calls.MaxInFlight+maxGates
}

// reopenGates relaunches the steps that waited at a gate when the previous run ended, even while
// something is rolled back.
func (x *executor) reopenGates(ctx workflow.Context) {
	if !x.rollbacks.HasDue() {
		return // they start with the other ready steps
	}
	ready := x.schedule.Ready
	x.schedule.Ready = nil
	for _, s := range ready {
		if s.Gate != nil {
			x.launchStep(ctx, s)
		} else {
			x.schedule.Ready = append(x.schedule.Ready, s)
		}
	}
}

// launchStep runs a step in a coroutine, which then continues with the steps that became ready, so
// that a sequential task needs only one.
func (x *executor) launchStep(ctx workflow.Context, s *Step) {
	x.running++
	workflow.GoNamed(ctx, "steps from "+s.Step.ID, func(ctx workflow.Context) {
		for ; s != nil; s = x.takeStep(ctx) {
			x.executeStep(ctx, s)
		}
		x.running--
	})
}

// takeStep takes a ready step; nil if there is none, or if this run must not start any more.
func (x *executor) takeStep(ctx workflow.Context) *Step {
	if len(x.schedule.Ready) == 0 || x.ending.Cause != nil || x.isHolding() || ctx.Err() != nil {
		return nil
	}
	if runIsLong(ctx) {
		x.draining = true
		return nil
	}
	return x.schedule.takeReady()
}

// executeStep runs a step and handles how it ended.
func (x *executor) executeStep(ctx workflow.Context, s *Step) {
	if s.View.State != protocol.NotStarted { // the agent of its session has taken it back
		return
	}
	ctx, s.cancel = workflow.WithCancel(ctx)
	defer s.cancel()
	x.schedule.latest = max(x.schedule.latest, s.index)
	s.View.Began, s.View.Waited = workflow.Now(ctx), 0
	s.err = x.runner.runStep(ctx, s)
	if errors.Is(s.err, calls.ErrHeld) {
		x.schedule.holdBack(s)
		return
	}
	s.View.Ended = workflow.Now(ctx)
	x.silence.rest(s.View.Ended)
	switch {
	case s.withdrawn && s.Seq == 0:
		x.schedule.setState(s, protocol.LeftOut)
		return
	case s.withdrawn:
		x.schedule.setState(s, protocol.RolledBack) // it is on the ledger, and undone next
		return
	}
	x.schedule.setState(s, endState(s.err))
	switch {
	case s.restarting:
	case s.err == nil:
		x.schedule.done++
		if s.Step.Pivot {
			x.committer.CommitPassed(ctx, s.Seq)
		}
		if s.Step.Marks != "" {
			x.runner.savepoints.moveTo(s.Step.Marks, s.Seq, x.runner.saga.Last())
		}
		x.pivot.commitSteps(s)
		x.schedule.unlockDependents(s)
	default:
		x.handleFailure(s)
	}
}

// handleFailure ends the task, unless the failed step's on_failure says otherwise.
func (x *executor) handleFailure(s *Step) {
	var rejected rejection
	var e edited
	isRejected := errors.As(s.err, &rejected)
	switch do := s.Step.OnFailure.Do; {
	case x.ending.Cause != nil:
	case errors.As(s.err, &e):
		x.rollbacks.enqueueEdit(s, e)
	case s.View.State == protocol.Canceled || calls.IsType(s.err, activities.ResetRun):
		x.ending.Cause = causeOf(s)
	case do == task.FailContinue:
		s.AddNotes("the task goes on: on_failure is continue")
		x.schedule.unlockDependents(s)
	case do == task.FailRollbackStep, do == task.FailAsk && !isRejected, do == task.FailUnwindTo && !isRejected &&
		x.rollbacks.mayUnwindAgain(s):
		x.rollbacks.enqueueRollback(s)
	default:
		x.ending.Cause = causeOf(s)
	}
}

// awaitSteps waits until no step is running. A reset shows in one step only, and takes precedence
// over whatever else ended the task at the same moment.
func (x *executor) awaitSteps(ctx workflow.Context) {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_ = workflow.Await(calm, func() bool { return x.running == 0 })
	for _, s := range x.schedule.Steps {
		if calls.IsType(s.err, activities.ResetRun) {
			x.ending.Cause = causeOf(s)
		}
	}
}

func endState(err error) protocol.StepState {
	switch {
	case err == nil:
		return protocol.Done
	case temporal.IsCanceledError(err):
		return protocol.Canceled
	case errors.As(err, &edited{}):
		return protocol.Planning
	}
	return protocol.StepFailed
}
