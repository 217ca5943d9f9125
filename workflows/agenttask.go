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

// AgentTask runs one task. Its argument is the task document as people write it, as JSON. It completes with a Report when
// every step is done; else it unwinds, and closes as Failed or Canceled with the Report in the details.
func AgentTask(ctx workflow.Context, doc json.RawMessage) (compensations.Report, error) {
	t := &agentTask{began: workflow.Now(ctx), phase: Compiling, outputs: map[string]map[string]any{}}
	t.saga = compensations.New(ctx, compensations.Options{Changed: t.show})
	if err := workflow.SetQueryHandler(ctx, QueryState, func() (State, error) { return t.state(ctx), nil }); err != nil {
		return compensations.Report{}, err
	}
	t.listen(ctx)
	t.keepDetails(ctx)
	t.publishOpen(ctx)

	cause := t.forward(ctx, doc)
	reset := wasReset(ctx)
	switch {
	case cause == nil && reset == nil:
		return t.close(ctx, compensations.Report{Status: compensations.Committed}, nil)
	case cause == nil:
		cause = reset
	}
	t.phase, t.cause = Unwinding, cause
	known := true
	if reset != nil {
		known = t.takeOver(ctx, reset)
	}
	if len(t.saga.Entries()) == 0 {
		cause.Text = "nothing was touched: " + cause.Text
	} else {
		t.publishPending(ctx)
	}
	report := t.saga.Unwind(ctx, *cause)
	if !known {
		report.Status = compensations.Remains
	}
	return t.close(ctx, report, cause)
}

// forward compiles the document and runs its steps; the cause is nil where all are done.
func (t *agentTask) forward(ctx workflow.Context, doc json.RawMessage) *compensations.Cause {
	err := checkStart(ctx)
	if err == nil {
		t.compiled, err = compile(ctx, doc)
	}
	if err != nil {
		return &compensations.Cause{Kind: kindOf(ctx, err), Text: compensations.Reason(err)}
	}
	t.adopt(ctx)
	t.publishAgent(ctx)
	return t.goForward(ctx)
}

// agentTask is the state of one run.
type agentTask struct {
	began     time.Time
	phase     Phase
	compiled  task.Compiled
	steps     []*stepRun
	byID      map[string]*stepRun
	outputs   map[string]map[string]any
	saga      *compensations.Saga
	cause     *compensations.Cause
	report    *compensations.Report
	ignored   []string
	more      int // ignored beyond those
	notes     []string
	ready     []*stepRun // whose needs are done
	slots     workflow.Semaphore
	running   int    // coroutines that run steps
	shownGate string // what the search attribute says
	stale     bool   // the current details are not what they should be
}

// stepRun is a step as it runs.
type stepRun struct {
	step     task.Step
	view     StepView
	waits    int        // how many of its needs are not done
	unlocks  []*stepRun // the steps that need it
	gate     *gate
	openings int
	err      error
}

func (s *stepRun) note(notes ...string) { s.view.Notes = append(s.view.Notes, notes...) }

func (s *stepRun) title() string {
	if s.step.Name != "" {
		return s.step.ID + ": " + s.step.Name
	}
	return s.step.ID
}

func (t *agentTask) step(id string) *stepRun { return t.byID[id] }

// adopt makes the steps of the compiled task.
func (t *agentTask) adopt(ctx workflow.Context) {
	t.phase = Forward
	t.slots = workflow.NewSemaphore(ctx, maxInFlight)
	t.byID = make(map[string]*stepRun, len(t.compiled.Steps))
	for _, step := range t.compiled.Steps {
		s := &stepRun{step: step, waits: len(step.Needs), view: StepView{
			ID: step.ID, Name: step.Name, Uses: step.Uses, State: NotStarted, Host: step.Place.Host,
		}}
		t.steps = append(t.steps, s)
		t.byID[step.ID] = s
		for _, need := range step.Needs {
			t.byID[need].unlocks = append(t.byID[need].unlocks, s)
		}
		if step.Gate.Mode == task.GateNone {
			t.notes = append(t.notes, fmt.Sprintf("step %s runs without its gate: the task file says gate: none", step.ID))
		}
	}
}

// goForward runs the steps, each when its needs are done, until all are, or something ends the task: the cause, then, with
// no step running any more.
func (t *agentTask) goForward(ctx workflow.Context) *compensations.Cause {
	stepsCtx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	var deadline workflow.Future
	if t.compiled.Deadline > 0 {
		deadline = workflow.NewTimerWithOptions(stepsCtx, t.compiled.Deadline, workflow.TimerOptions{Summary: "the task's deadline"})
	}
	passed := func() bool { return deadline != nil && deadline.IsReady() }
	for _, s := range t.steps {
		if s.waits == 0 {
			t.ready = append(t.ready, s)
		}
	}
	for t.cause == nil && len(t.ready)+t.running > 0 {
		for s := t.next(stepsCtx); s != nil; s = t.next(stepsCtx) {
			t.launch(stepsCtx, s)
		}
		_ = workflow.Await(stepsCtx, func() bool {
			return t.cause != nil || len(t.ready) > 0 || t.running == 0 || passed()
		})
		switch {
		case ctx.Err() != nil: // first: it makes the deadline's timer ready too
			t.cause = &compensations.Cause{Kind: compensations.Canceled, Text: "the task was canceled"}
		case t.cause == nil && passed():
			t.cause = &compensations.Cause{Kind: compensations.Deadline, Text: fmt.Sprintf("the task's deadline of %s has passed", t.compiled.Deadline)}
		}
	}
	if t.cause != nil {
		cancel()
		t.settleDown(ctx)
	}
	return t.cause
}

// launch runs a step in a coroutine of its own, which then goes on with what the step made ready: a task whose steps
// follow each other is one coroutine.
func (t *agentTask) launch(ctx workflow.Context, s *stepRun) {
	t.running++
	workflow.GoNamed(ctx, "steps from "+s.step.ID, func(ctx workflow.Context) {
		for ; s != nil; s = t.next(ctx) {
			s.view.Began = workflow.Now(ctx)
			s.err = t.run(ctx, s)
			s.view.Ended = workflow.Now(ctx)
			t.enter(s, endState(s.err))
			t.unlock(s)
		}
		t.running--
	})
}

// unlock looks at a step that has ended: the first error is the task's, and what it unlocks is ready.
func (t *agentTask) unlock(s *stepRun) {
	if s.err != nil {
		if t.cause == nil {
			t.cause = causeOf(s)
		}
		return
	}
	for _, next := range s.unlocks {
		if next.waits--; next.waits == 0 {
			t.ready = append(t.ready, next)
		}
	}
}

// next takes a step that is ready; nil where none is, or where the task goes forward no more.
func (t *agentTask) next(ctx workflow.Context) *stepRun {
	if len(t.ready) == 0 || t.cause != nil || ctx.Err() != nil {
		return nil
	}
	if full := historyFull(ctx, len(t.saga.Entries())); full != "" {
		t.cause = &compensations.Cause{Kind: compensations.Failure, Text: full}
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
	t.show()
}
