package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// agentTask is the state of one run of a task: of an AgentTask, and of what recovers it, rolls it back or does it again.
type agentTask struct {
	began    time.Time // of the chain's first run
	phase    Phase
	compiled task.Compiled
	steps    []*stepRun // of this run: those that the runs before have brought to an end are counted only
	byID     map[string]*stepRun
	outputs  map[string]map[string]any
	saga     *compensations.Saga
	cause    *compensations.Cause
	report   *compensations.Report
	ignored  []string
	more     int // ignored beyond those
	notes    []string

	ready   []*stepRun // whose needs are done
	gates   []*stepRun // that wait for a person
	slots   workflow.Semaphore
	running int             // coroutines that run steps
	limit   workflow.Future // the deadline of the whole task; nil: it has none
	failed  []*failure      // to be rolled back before the task goes on
	pauses  bool            // a rollback of a part may be paused
	rewound map[string]int  // how often each step has unwound to its savepoint

	past      []StepView // what the runs before have to tell of steps that have ended
	size      int        // steps of the task, in all runs
	done      int        // of these, done
	kept      int        // entries up to a pivot: they are unwound no more
	pivot     int        // sequence number of the last pivot that is done
	redoes    map[string]string
	unknown   bool // the ledger of a run that this one was reset from could not be read
	repairs   bool // it undoes what another workflow has done: having done so is no failure
	redoable  bool // what it undoes is kept
	redo      bool // it does again what was rolled back
	round     int  // of a late sweep
	continues bool // it starts nothing more, to continue as new
	next      func(workflow.Context, json.RawMessage) error
	room      room

	signals   []signal
	frontier  int    // the last step that has begun
	shownGate string // what the search attribute says
	stale     bool   // the current details are not what they should be
}

// newTask makes the state of a run: a new one, or with what the run before has carried over. next continues it as new.
func newTask(ctx workflow.Context, carry *Carry, next func(workflow.Context, json.RawMessage) error) (*agentTask, error) {
	t := &agentTask{
		began: workflow.Now(ctx), phase: Compiling, outputs: map[string]map[string]any{}, byID: map[string]*stepRun{},
		rewound: map[string]int{}, next: next, slots: workflow.NewSemaphore(ctx, maxInFlight),
	}
	t.saga = compensations.New(ctx, t.sagaOptions(ctx, compensations.Options{}))
	if carry != nil {
		t.resume(ctx, *carry)
	}
	if err := workflow.SetQueryHandler(ctx, QueryState, func() (State, error) { return t.state(ctx), nil }); err != nil {
		return nil, err
	}
	t.attend(ctx)
	t.publishOpen(ctx)
	return t, nil
}

// sagaOptions are o with what every task's saga has.
func (t *agentTask) sagaOptions(ctx workflow.Context, o compensations.Options) compensations.Options {
	o.Changed, o.Alert = t.show, t.alert
	o.Pause = func() bool {
		if t.phase == Forward { // what is undone is a part, and all of it where the task ends meanwhile
			return t.pauses && (runIsLong(ctx) || t.over(ctx))
		}
		return runIsLong(ctx)
	}
	return o
}

// stepRun is a step as it runs.
type stepRun struct {
	step       task.Step
	index      int // in file order, among the steps of this run
	view       StepView
	row        string     // of the table in the details
	waits      int        // how many of its needs are not done
	unlocks    []*stepRun // the steps that need it
	gate       *gate
	openings   int
	generation int
	want       activities.Digest // what was approved, until it is applied
	seq        int               // of its entry; 0: it has none
	err        error
	cancel     func()   // while it runs
	failure    *failure // while it is among those to be rolled back
	rewinding  bool     // it is cancelled to be done again
}

func (s *stepRun) note(notes ...string) { s.view.Notes = append(s.view.Notes, notes...) }

func (s *stepRun) title() string {
	if s.step.Name != "" {
		return s.step.ID + ": " + s.step.Name
	}
	return s.step.ID
}

// satisfied says that what needs this step may run.
func (s *stepRun) satisfied() bool {
	return s.view.State == Done || s.view.State == StepFailed && s.step.OnFailure.Do == task.FailContinue
}

func (t *agentTask) step(id string) *stepRun { return t.byID[id] }

// adopt makes the steps of a compiled task.
func (t *agentTask) adopt(ctx workflow.Context, compiled task.Compiled) {
	t.compiled, t.size = compiled, len(compiled.Steps)
	t.configure(ctx)
	for _, step := range compiled.Steps {
		t.add(step)
		if step.Gate.Mode == task.GateNone {
			t.notes = append(t.notes, fmt.Sprintf("step %s runs without its gate: the task file says gate: none", step.ID))
		}
	}
	t.arrange()
}

// configure gives the saga what the task file says of unwinding. Its ledger is kept.
func (t *agentTask) configure(ctx workflow.Context) {
	o := t.sagaOptions(ctx, compensations.Options{Redoable: t.redoable})
	if t.compiled.Unwind == task.UnwindParallel {
		o.Parallel = maxInFlight
	}
	t.saga.Configure(ctx, o)
}

func (t *agentTask) add(step task.Step) *stepRun {
	s := &stepRun{step: step, index: len(t.steps), generation: 1, view: StepView{
		ID: step.ID, Name: step.Name, Uses: step.Uses, State: NotStarted, Host: step.Place.Host,
	}}
	t.steps = append(t.steps, s)
	t.byID[step.ID] = s
	t.room.grow(len(step.With) + stepBytes)
	return s
}

// arrange finds out what each step waits for. Steps that need one which is not done and never will be are left out.
func (t *agentTask) arrange() {
	t.ready = nil
	for _, s := range t.steps {
		s.waits, s.unlocks = 0, nil
	}
	for _, s := range t.steps { // needs come before
		for _, need := range s.step.Needs {
			n := t.byID[need]
			switch {
			case n == nil || n.satisfied(): // n == nil: an earlier run has brought it to an end
				continue
			case s.view.State == NotStarted && (n.view.State == RolledBack || n.view.State == LeftOut):
				s.note("left out: it needs " + need)
				t.enter(s, LeftOut)
			}
			s.waits++
			n.unlocks = append(n.unlocks, s)
		}
		if s.view.State == NotStarted && s.waits == 0 {
			t.ready = append(t.ready, s)
		}
	}
}

// goForward runs the steps, each when its needs are done, until all are, or something ends the task: the cause, then, with
// no step running any more. It also returns, with t.continues, where the run is long enough.
func (t *agentTask) goForward(ctx workflow.Context) *compensations.Cause {
	stepsCtx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	if t.compiled.Deadline > 0 {
		left := max(t.began.Add(t.compiled.Deadline).Sub(workflow.Now(ctx)), time.Millisecond)
		t.limit = workflow.NewTimerWithOptions(stepsCtx, left, workflow.TimerOptions{Summary: "the task's deadline"})
	}
	calm := func() bool { return t.running == len(t.gates) }
	t.reopen(stepsCtx)
	for t.cause == nil && len(t.ready)+t.running+len(t.failed) > 0 {
		for !t.passed() && t.mayLaunch() {
			s := t.take(stepsCtx)
			if s == nil {
				break
			}
			t.launch(stepsCtx, s)
		}
		_ = workflow.Await(stepsCtx, func() bool {
			return t.cause != nil || len(t.ready) > 0 && t.mayLaunch() || t.running == 0 || t.passed() || (t.holds() || runIsLong(ctx)) && calm()
		})
		switch {
		case ctx.Err() != nil: // first: it makes the deadline's timer ready too
			t.cause = &compensations.Cause{Kind: compensations.Canceled, Text: "the task was canceled"}
		case t.cause == nil && t.passed():
			t.cause = &compensations.Cause{Kind: compensations.Deadline, Text: fmt.Sprintf("the task's deadline of %s has passed", t.compiled.Deadline)}
		case t.cause == nil && len(t.failed) > 0 && calm():
			if !t.rollBack(stepsCtx) && !t.over(ctx) && calm() {
				t.continues = true
				return nil
			}
		case t.cause == nil && (t.continues || runIsLong(ctx)) && calm():
			t.continues = len(t.ready)+t.running > 0
			return nil
		}
	}
	if t.cause != nil {
		cancel()
		t.settleDown(ctx)
	}
	return t.cause
}

func (t *agentTask) passed() bool { return t.limit != nil && t.limit.IsReady() }

// over says that the task goes forward no more.
func (t *agentTask) over(ctx workflow.Context) bool {
	return t.cause != nil || ctx.Err() != nil || t.passed()
}

// reopen has what waited at a gate when the run before ended wait on, also while something is rolled back.
func (t *agentTask) reopen(ctx workflow.Context) {
	if len(t.failed) == 0 {
		return // they come with all that is ready
	}
	ready := t.ready
	t.ready = nil
	for _, s := range ready {
		if s.gate != nil {
			t.launch(ctx, s)
		} else {
			t.ready = append(t.ready, s)
		}
	}
}

// holds says that no step is started for now.
func (t *agentTask) holds() bool { return t.continues || len(t.failed) > 0 }

// mayLaunch says that another coroutine may run steps: not so many that each of them slows down all others.
func (t *agentTask) mayLaunch() bool { return !t.holds() && t.running-len(t.gates) < maxInFlight }

// launch runs a step in a coroutine of its own, which then goes on with what the step made ready: a task whose steps
// follow each other is one coroutine.
func (t *agentTask) launch(ctx workflow.Context, s *stepRun) {
	t.running++
	workflow.GoNamed(ctx, "steps from "+s.step.ID, func(ctx workflow.Context) {
		for ; s != nil; s = t.take(ctx) {
			t.bring(ctx, s)
		}
		t.running--
	})
}

// bring runs a step and sees to what comes of it.
func (t *agentTask) bring(ctx workflow.Context, s *stepRun) {
	ctx, s.cancel = workflow.WithCancel(ctx)
	defer s.cancel()
	t.frontier = max(t.frontier, s.index)
	s.view.Began = workflow.Now(ctx)
	s.err = t.runStep(ctx, s)
	if errors.Is(s.err, errHeld) {
		t.enter(s, NotStarted)
		return
	}
	s.view.Ended = workflow.Now(ctx)
	t.enter(s, endState(s.err))
	switch {
	case s.rewinding:
	case s.err == nil:
		t.done++
		t.commitPivot(ctx, s)
		t.pass(s)
		t.unlock(s)
	default:
		t.fail(s)
	}
}

func (t *agentTask) unlock(s *stepRun) {
	for _, next := range s.unlocks {
		if next.waits--; next.waits == 0 && next.view.State == NotStarted {
			t.ready = append(t.ready, next)
		}
	}
}

// take takes a step that is ready; nil where none is, or where the task goes forward no more, or not in this run.
func (t *agentTask) take(ctx workflow.Context) *stepRun {
	if len(t.ready) == 0 || t.cause != nil || t.holds() || ctx.Err() != nil {
		return nil
	}
	if runIsLong(ctx) {
		t.continues = true
		return nil
	}
	s := t.ready[0]
	t.ready = t.ready[1:]
	return s
}

// settleDown waits until no step runs any more. A reset shows in one step only, and must be known whatever else ended the
// task in the same moment.
func (t *agentTask) settleDown(ctx workflow.Context) {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_ = workflow.Await(calm, func() bool { return t.running == 0 })
	for _, s := range t.steps {
		if isType(s.err, activities.ResetRun) {
			t.cause = causeOf(s)
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

func causeOf(s *stepRun) *compensations.Cause {
	cause := &compensations.Cause{Kind: compensations.Failure, Step: s.step.ID, Text: compensations.Reason(s.err)}
	var rejected rejection
	switch {
	case errors.As(s.err, &rejected):
		cause.Kind, cause.Text = compensations.Rejected, rejected.text
	case isType(s.err, activities.ResetRun):
		cause.Kind = compensations.WasReset
	}
	return cause
}

func kindOf(ctx workflow.Context, err error) compensations.CauseKind {
	if ctx.Err() != nil || temporal.IsCanceledError(err) {
		return compensations.Canceled
	}
	return compensations.Failure
}

// enter puts a step into a state and shows it.
func (t *agentTask) enter(s *stepRun, state StepState) {
	s.view.State = state
	if state == StepFailed {
		s.view.Error = compensations.Reason(s.err)
	}
	s.row = ""
	t.show()
}
