package workflows

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/compensations/inbox"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// AgentTask runs one task. Its argument is the task document as people write it, as JSON. It completes with a Report if every
// step succeeds; otherwise it unwinds and closes as Failed or Canceled, with the Report in the error's details. A long task
// continues as new and passes its Carry as the second argument.
func AgentTask(ctx workflow.Context, input, carry converter.RawValue) (compensations.Report, error) {
	return runAgentTask(ctx, input, carry, nil)
}

func runAgentTask(ctx workflow.Context, input, carry converter.RawValue, check StepCheck) (compensations.Report, error) {
	var doc json.RawMessage
	unreadable := readInput(input, &doc)
	t, err := newTask(ctx, carry, variant{session: newSession(doc), check: check, continueAsNew: func(ctx workflow.Context, next json.RawMessage) error {
		return workflow.NewContinueAsNewError(ctx, protocol.AgentTaskType, json.RawMessage(nil), next)
	}})
	if err != nil {
		return compensations.Report{}, err
	}
	return t.run(ctx, func(ctx workflow.Context) error {
		if unreadable != nil {
			return protocol.Refusef("the task document cannot be read: %v", unreadable)
		}
		compiled, err := compile(ctx, doc)
		if err != nil {
			return err
		}
		seen, err := preflight(ctx, compiled)
		if err == nil {
			err = seen.Refusal()
		}
		if err != nil {
			return err
		}
		t.notes = append(t.notes, seen.Unseen...)
		compiled.FollowTouched(seen.Touched)
		t.adoptSteps(ctx, compiled)
		return nil
	})
}

// agentTask is one run of a task: of an AgentTask, or of a workflow that recovers one, rolls it back or redoes it. It decides
// what comes next and leaves the rest to its parts, each of which owns its state and can be read without the others.
type agentTask struct {
	variant  variant
	refusal  error     // why it must not begin; nil if it may
	began    time.Time // when the chain's first run began
	phase    protocol.Phase
	compiled task.Compiled
	notes    []string
	report   *compensations.Report
	redoable bool // what it undoes is kept, so that it can be redone
	leaving  bool // it only waits for updates before it continues as new
	serving  int  // the number of requests that are being carried out beside their updates
	closing  bool // it only waits for alerts and updates before it ends
	wasStuck bool // somebody was told that it cannot be carried over
	stuckAt  int  // the number of undos that were to be done when it could not; 0 if it could
	unknown  bool // the ledger of the run that this one recovers, or was reset from, could not be read

	saga       *compensations.Saga // the ledger, and how it is undone
	ending     *ending             // why the task no longer goes forward
	schedule   *schedule           // the steps, and which of them may start
	executor   *executor           // the coroutines that run them
	runner     *stepRunner         // takes one step through plan, gate, forward and probe
	gates      *gates              // the steps that wait for approval
	parks      *parks              // the steps that have failed and wait for a person
	pivot      *pivot              // the steps that are never unwound
	committer  *committer          // tells worlds what stays
	troubles   *troubles           // what fails, and is tried on
	alerts     *alerts             // what people are told by the webhook
	rollbacks  *rollbacks          // the parts that are undone while the task goes on
	room       *room               // whether the ledger still fits into a payload
	inbox      *inbox.Inbox        // the signals
	details    *details            // what the Temporal UI shows
	attributes *attributes         // the search attributes
	savepoints *savepoints         // the places that the agent of a session may roll back to
	session    *session            // nil if it takes no steps while it runs
}

// variant distinguishes the workflows that are built on agentTask.
type variant struct {
	repairs bool      // it undoes what another workflow did: to have done so is success
	redoes  bool      // it redoes what was rolled back
	round   int       // the number of a late sweep
	session *session  // that its document asks for; nil if it asks for none
	check   StepCheck // of steps that the session is to take; nil if they are only checked once they are accepted
	// continueAsNew returns the error that ends the run and starts the next one of its chain.
	continueAsNew func(ctx workflow.Context, carry json.RawMessage) error
}

// newTask makes the first run of a chain, or one that resumes what the previous run carried over.
func newTask(ctx workflow.Context, handed converter.RawValue, v variant) (*agentTask, error) {
	carry, refusal := readCarry(ctx, handed)
	if err := checkStart(ctx); err != nil {
		carry, refusal = nil, err
	}
	t := &agentTask{
		refusal: refusal, variant: v, began: workflow.Now(ctx), phase: protocol.Compiling,
		session: v.session, savepoints: &savepoints{}, ending: &ending{}, inbox: &inbox.Inbox{}, details: &details{}, attributes: &attributes{},
	}
	t.alerts = &alerts{
		changed: t.details.markStale, note: t.addNote, patience: newPatience(0),
		isLeaving: func() bool { return t.leaving || t.closing || t.executor.draining && t.executor.isQuiet() },
	}
	t.saga = newSaga(ctx, t.sagaOptions(ctx, compensations.Options{}), carry)
	t.schedule = newSchedule(t.details.markStale)
	t.gates = &gates{schedule: t.schedule, attributes: t.attributes, alert: t.sendAlert}
	t.parks = &parks{
		schedule: t.schedule, ending: t.ending, correct: t.correctStep, alert: t.sendAlert,
		replaced: t.replaceParams,
	}
	t.pivot = &pivot{saga: t.saga, schedule: t.schedule}
	t.troubles = &troubles{changed: t.details.markStale, alert: t.sendAlert}
	t.committer = &committer{saga: t.saga, troubles: t.troubles, note: t.addNote}
	t.room = &room{measure: t.measureCarry}
	t.executor = &executor{schedule: t.schedule, gates: t.gates, parks: t.parks, pivot: t.pivot, committer: t.committer, ending: t.ending}
	t.runner = &stepRunner{
		saga: t.saga, schedule: t.schedule, gates: t.gates, room: t.room, outputs: outputs{}, calls: newCalls(ctx, t.executor.isHolding),
	}
	t.runner.calls.waits, t.runner.calls.isServed = t.markWaiting, t.markServed
	t.rollbacks = &rollbacks{
		saga: t.saga, schedule: t.schedule, gates: t.gates, parks: t.parks, pivot: t.pivot, ending: t.ending, outputs: t.runner.outputs,
		unwound: map[string]int{}, isQuiet: t.executor.isQuiet,
	}
	t.executor.runner, t.executor.rollbacks = t.runner, t.rollbacks
	t.executor.carryOver, t.executor.getStuck, t.executor.isCalm = t.carryOver, t.getStuck, func() bool { return t.alerts.flights == 0 && t.serving == 0 }
	t.runner.savepoints, t.rollbacks.savepoints, t.rollbacks.settled = t.savepoints, t.savepoints, t.bearSavepoints
	t.rollbacks.took = t.keepTakenBack
	if carry != nil {
		t.resume(ctx, *carry)
	}
	if err := workflow.SetQueryHandler(ctx, protocol.QueryState, func() (protocol.State, error) { return t.state(ctx), nil }); err != nil {
		return nil, err
	}
	if err := workflow.SetQueryHandler(ctx, protocol.QueryAnswer, t.answerNow); err != nil {
		return nil, err
	}
	if err := workflow.SetQueryHandler(ctx, protocol.QueryStep, t.stepNow); err != nil {
		return nil, err
	}
	if err := t.handleUpdates(ctx); err != nil {
		return nil, err
	}
	t.attendSignals(ctx)
	t.attributes.publishOpen(ctx)
	return t, nil
}

func (t *agentTask) addNote(note string) { t.notes = append(t.notes, note) }

func newSaga(ctx workflow.Context, o compensations.Options, carry *protocol.Carry) *compensations.Saga {
	if carry == nil {
		return compensations.New(ctx, o)
	}
	return compensations.Resume(ctx, o, carry.Saga)
}

// sagaOptions returns o with the options that every task's saga has.
func (t *agentTask) sagaOptions(ctx workflow.Context, o compensations.Options) compensations.Options {
	o.Changed, o.Alert, o.Paused = t.details.markStale, t.sendAlerts, pausedSince
	o.Pause = func() bool {
		if t.phase == protocol.Forward { // a part is being undone; if the task ends meanwhile, everything will be
			return t.isLong(ctx) || t.executor.isOver(ctx)
		}
		return t.isLong(ctx)
	}
	return o
}

// attendSignals handles signals as they arrive, and rewrites the current details when they are stale. One coroutine does both, because
// every waiting coroutine is woken several times for each step.
func (t *agentTask) attendSignals(ctx workflow.Context) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	t.inbox.Open(ctx, // rejections are handled first: gates fail closed
		inbox.Handler{Signal: protocol.SignalReject, Handle: t.gates.reject},
		inbox.Handler{Signal: protocol.SignalApprove, Handle: t.gates.approve},
		inbox.Handler{Signal: compensations.SignalResolve, Handle: t.resolve},
	)
	workflow.GoNamed(ctx, "attendant", func(ctx workflow.Context) {
		for {
			_ = workflow.Await(ctx, func() bool { return t.details.stale || t.inbox.HasSignals() })
			t.inbox.HandleSignals()
			t.writeDetails(ctx)
		}
	})
}

func (t *agentTask) resolve(payload []byte) error {
	var r protocol.Resolution
	if err := json.Unmarshal(payload, &r); err != nil {
		return fmt.Errorf("the payload is not {step, digest, do, who, why}, or with with: %w", err)
	}
	if t.parks.holds(r.Step) {
		_, err := t.parks.decide(r)
		return err
	}
	if err := r.CheckUndo(); err != nil {
		return err
	}
	return t.saga.Resolve(r.Clip())
}

func (t *agentTask) adoptSteps(ctx workflow.Context, compiled task.Compiled) {
	t.compiled, t.schedule.size = compiled, len(compiled.Steps)
	t.configure(ctx)
	var order []string
	for _, step := range compiled.Steps {
		order = append(order, step.ID)
		t.addStep(step)
		if text := describeOmittedGate(step.Gate); text != "" {
			t.notes = append(t.notes, fmt.Sprintf("step %s %s: the task file says gate: none", step.ID, text))
		}
	}
	if t.session == nil { // its steps come in time
		t.schedule.keepOrder(order)
	}
	t.schedule.arrangeSteps()
	t.beginSession(ctx)
}

func (t *agentTask) addStep(step task.Step) *stepRun {
	t.room.addBytes(bytesOf(step))
	return t.schedule.addStep(step)
}

// bytesOf is about how many bytes a step adds to what is carried over.
func bytesOf(step task.Step) int {
	return len(step.With) + payload.SizeOf(step.Check) + namesOf(step).size() + stepBytes
}

// replaceParams notes that a person has given a step other parameters: it no longer repeats what was rolled back.
func (t *agentTask) replaceParams(id string, with json.RawMessage) {
	delete(t.runner.redoes, id)
	if t.session != nil {
		t.session.redos.correct(id, with)
	}
}

// configure applies the task-wide settings of the task file.
func (t *agentTask) configure(ctx workflow.Context) {
	o := t.sagaOptions(ctx, compensations.Options{Redoable: t.redoable})
	if t.compiled.Unwind == task.UnwindParallel {
		o.Parallel = maxInFlight
	}
	t.saga.Configure(ctx, o)
	t.runner.keep, t.runner.pinned = t.compiled.Keep, t.compiled.Pinned
}

// run takes a task from prepare, which only the first run of a chain calls, to its end.
func (t *agentTask) run(ctx workflow.Context, prepare func(workflow.Context) error) (compensations.Report, error) {
	if t.phase == protocol.Compiling {
		err := t.refusal
		if err == nil {
			err = prepare(ctx)
		}
		if err != nil {
			t.variant.repairs = false
			t.ending.cause = &compensations.Cause{Kind: kindOf(ctx, err), Text: compensations.Reason(err)}
		} else if t.ending.cause == nil {
			t.phase = protocol.Forward
		}
	}
	if t.phase == protocol.Forward {
		t.attributes.publishAgent(ctx, t.compiled.Agent)
		t.executor.runSteps(ctx, t.began, t.compiled.Deadline)
	}
	reset := wasReset(ctx) // checked before continuing as new too, because the next run could not tell
	switch {
	case t.ending.cause == nil && reset == nil && t.executor.draining:
		return compensations.Report{}, t.variant.continueAsNew(ctx, t.executor.next)
	case t.ending.cause == nil && reset == nil:
		err := t.committer.commitLedger(ctx)
		if err == nil {
			return t.close(ctx, t.reportCommitted(), nil)
		}
		t.ending.cause = &compensations.Cause{Kind: kindOf(ctx, err), Text: "what the task did could not be made durable: " + compensations.Reason(err)}
	case t.ending.cause == nil:
		t.ending.cause = reset
		t.executor.awaitSteps(ctx)
	}
	return t.unwind(ctx, reset)
}

// unwind undoes what is on the ledger.
func (t *agentTask) unwind(ctx workflow.Context, reset *compensations.Cause) (compensations.Report, error) {
	begins := t.phase != protocol.Unwinding
	t.parks.close()
	t.phase = protocol.Unwinding
	if reset != nil && !t.takeOverLedger(ctx, reset) {
		t.unknown = true
	}
	if begins {
		if len(t.saga.Entries()) == 0 && t.pivot.committed == 0 && !t.unknown && t.saga.Past().Count == 0 {
			t.ending.cause.Text = "nothing was touched: " + t.ending.cause.Text
		} else {
			pending, _ := t.saga.Pending()
			t.attributes.publishPending(ctx, pending)
		}
	}
	t.executor.stuck = ""
	var report compensations.Report
	for {
		undone := slices.Clone(t.saga.Entries())
		report = t.saga.Unwind(ctx, *t.ending.cause)
		t.committer.commitRemaining(ctx, undone)
		if report.Status != compensations.Open {
			break
		}
		t.leaving = true
		t.awaitAlerts(ctx)
		t.awaitUpdates(ctx)
		next, err := t.carryOver()
		if err == nil {
			return report, t.variant.continueAsNew(ctx, next)
		}
		t.leaving, t.stuckAt = false, len(t.saga.Entries())
		t.alerts.resume(ctx)
	}
	switch {
	case t.unknown:
		report.Status = compensations.Remains
	case report.Status == compensations.Unwound && t.pivot.committed > 0:
		report.Status = compensations.Partly
	}
	return t.close(ctx, report, t.ending.cause)
}

// awaitUpdates waits until every update that was accepted has its answer, and no request is being carried out.
func (t *agentTask) awaitUpdates(ctx workflow.Context) {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_ = workflow.Await(calm, func() bool { return workflow.AllHandlersFinished(calm) && t.serving == 0 })
}

// close ends the task with its report: as the result if it committed or repaired another task, otherwise in the details of a
// failure or cancellation.
func (t *agentTask) close(ctx workflow.Context, r compensations.Report, cause *compensations.Cause) (compensations.Report, error) {
	t.closing = true
	t.awaitAlerts(ctx)
	t.giveUpAlerts()
	t.completeReport(ctx, &r, cause)
	t.phase, t.ending.cause, t.report = protocol.Closed, cause, &r
	t.attributes.publishClosed(ctx, r.Status)
	t.writeDetails(ctx)
	t.awaitUpdates(ctx)
	if cause == nil || t.variant.repairs {
		return r, nil
	}
	return r, r.Err(map[compensations.CauseKind]string{
		compensations.Failure: protocol.TaskFailed, compensations.Rejected: protocol.TaskRejected,
		compensations.Deadline: protocol.TaskDeadline, compensations.WasReset: protocol.TaskReset,
	}[cause.Kind])
}
