package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// executor runs the steps of a schedule, each in a coroutine when its needs are done, and sees to what comes of them.
type executor struct {
	schedule  *schedule
	gates     *gates
	runner    *stepRunner
	rollbacks *rollbacks
	pivot     *pivot
	committer *committer
	ending    *ending

	running  int             // coroutines that run steps
	deadline workflow.Future // of the whole task; nil: it has none
	draining bool            // it starts nothing more, so that the run can continue as new
}

// runSteps goes forward until all steps are over or something ends the task; no step runs any more then. It also returns,
// draining, where the run is long enough.
func (x *executor) runSteps(ctx workflow.Context, began time.Time, deadline time.Duration) {
	stepsCtx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	if deadline > 0 {
		left := max(began.Add(deadline).Sub(workflow.Now(ctx)), time.Millisecond)
		x.deadline = workflow.NewTimerWithOptions(stepsCtx, left, workflow.TimerOptions{Summary: "the task's deadline"})
	}
	x.reopenGates(stepsCtx)
	for x.ending.cause == nil && (len(x.schedule.ready)+x.running > 0 || x.rollbacks.hasDue()) {
		for !x.isPastDeadline() && x.mayLaunch() {
			s := x.takeStep(stepsCtx)
			if s == nil {
				break
			}
			x.launch(stepsCtx, s)
		}
		_ = workflow.Await(stepsCtx, func() bool {
			return x.ending.cause != nil || len(x.schedule.ready) > 0 && x.mayLaunch() || x.running == 0 || x.isPastDeadline() ||
				(x.isHolding() || runIsLong(ctx)) && x.isQuiet()
		})
		switch {
		case ctx.Err() != nil: // first: it makes the deadline's timer ready too
			x.ending.cause = canceled()
		case x.ending.cause == nil && x.isPastDeadline():
			x.ending.cause = pastDeadline(deadline)
		case x.ending.cause == nil && x.rollbacks.hasDue() && x.isQuiet():
			if finished := x.rollbacks.undoDue(stepsCtx); !finished && !x.isOver(ctx) && x.isQuiet() {
				x.draining = true
				return
			}
		case x.ending.cause == nil && (x.draining || runIsLong(ctx)) && x.isQuiet():
			x.draining = len(x.schedule.ready)+x.running > 0
			return
		}
	}
	if x.ending.cause != nil {
		cancel()
		x.awaitSteps(ctx)
	}
}

// isOver says that the task goes forward no more.
func (x *executor) isOver(ctx workflow.Context) bool {
	return x.ending.cause != nil || ctx.Err() != nil || x.isPastDeadline()
}

func (x *executor) isPastDeadline() bool { return x.deadline != nil && x.deadline.IsReady() }

// isHolding says that no step is started for now.
func (x *executor) isHolding() bool { return x.draining || x.rollbacks.hasDue() }

// isQuiet says that whatever still runs waits at a gate.
func (x *executor) isQuiet() bool { return x.running == len(x.gates.open) }

// mayLaunch says that another coroutine may run steps: not so many that each of them slows down all others.
func (x *executor) mayLaunch() bool {
	return !x.isHolding() && x.running-len(x.gates.open) < maxInFlight && x.running < maxInFlight+maxGates
}

// reopenGates has steps that waited at a gate when the run before ended go on waiting, also while something is rolled back.
func (x *executor) reopenGates(ctx workflow.Context) {
	if !x.rollbacks.hasDue() {
		return // they start with all that is ready
	}
	ready := x.schedule.ready
	x.schedule.ready = nil
	for _, s := range ready {
		if s.gate != nil {
			x.launch(ctx, s)
		} else {
			x.schedule.ready = append(x.schedule.ready, s)
		}
	}
}

// launch runs a step in a coroutine, which then continues with the steps that became ready: a task whose steps follow each
// other is one coroutine.
func (x *executor) launch(ctx workflow.Context, s *stepRun) {
	x.running++
	workflow.GoNamed(ctx, "steps from "+s.step.ID, func(ctx workflow.Context) {
		for ; s != nil; s = x.takeStep(ctx) {
			x.executeStep(ctx, s)
		}
		x.running--
	})
}

// takeStep takes a step that is ready; nil where none is, or where none is to be started in this run.
func (x *executor) takeStep(ctx workflow.Context) *stepRun {
	if len(x.schedule.ready) == 0 || x.ending.cause != nil || x.isHolding() || ctx.Err() != nil {
		return nil
	}
	if runIsLong(ctx) {
		x.draining = true
		return nil
	}
	return x.schedule.takeReady()
}

// executeStep runs a step and sees to what comes of it.
func (x *executor) executeStep(ctx workflow.Context, s *stepRun) {
	ctx, s.cancel = workflow.WithCancel(ctx)
	defer s.cancel()
	x.schedule.latest = max(x.schedule.latest, s.index)
	s.view.Began = workflow.Now(ctx)
	s.err = x.runner.runStep(ctx, s)
	if errors.Is(s.err, errHeld) {
		x.schedule.setState(s, NotStarted)
		return
	}
	s.view.Ended = workflow.Now(ctx)
	x.schedule.setState(s, endState(s.err))
	switch {
	case s.restarting:
	case s.err == nil:
		x.schedule.done++
		x.committer.commitPassed(ctx, s)
		x.pivot.commitSteps(s)
		x.schedule.unlockDependents(s)
	default:
		x.handleFailure(s)
	}
}

// handleFailure decides what the failure of a step means: the end of the task, unless the step's on_failure says otherwise.
func (x *executor) handleFailure(s *stepRun) {
	var rejected rejection
	isRejected := errors.As(s.err, &rejected)
	switch do := s.step.OnFailure.Do; {
	case x.ending.cause != nil:
	case s.view.State == Canceled || isType(s.err, activities.ResetRun):
		x.ending.cause = causeOf(s)
	case do == task.FailContinue:
		s.addNotes("the task goes on: on_failure is continue")
		x.schedule.unlockDependents(s)
	case do == task.FailRollbackStep, do == task.FailUnwindTo && !isRejected && x.rollbacks.mayUnwindAgain(s):
		x.rollbacks.enqueue(s)
	default:
		x.ending.cause = causeOf(s)
	}
}

// awaitSteps waits until no step runs any more. That the run was reset shows in one step only, and must be known whatever else
// ended the task in the same moment.
func (x *executor) awaitSteps(ctx workflow.Context) {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_ = workflow.Await(calm, func() bool { return x.running == 0 })
	for _, s := range x.schedule.steps {
		if isType(s.err, activities.ResetRun) {
			x.ending.cause = causeOf(s)
		}
	}
}

func endState(err error) StepState {
	switch {
	case err == nil:
		return Done
	case temporal.IsCanceledError(err):
		return Canceled
	}
	return StepFailed
}
