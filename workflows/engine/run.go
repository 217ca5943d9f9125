package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/compensations/inbox"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// New makes the first run of a chain, or one that resumes what the previous run carried over.
func New(ctx workflow.Context, handed converter.RawValue, v Variant) (*Task, error) {
	carry, refusal := calls.ReadCarry(ctx, handed)
	if err := checkStart(ctx); err != nil {
		carry, refusal = nil, err
	}
	t := &Task{
		refusal: refusal, variant: v, began: workflow.Now(ctx), Phase: protocol.Compiling,
		Savepoints: &savepoints{}, Outputs: outputs{}, Silence: &Silence{}, Ending: &ending{}, Inbox: &inbox.Inbox{},
		details: &details{}, attributes: &attributes{},
	}
	t.alerts = &alerts{
		changed: t.details.markStale, note: t.AddNote, patience: calls.NewPatience(0),
		isLeaving: func() bool { return t.leaving || t.closing || t.executor.draining && t.executor.isQuiet() },
	}
	t.Saga = newSaga(ctx, t.sagaOptions(ctx, compensations.Options{}), carry)
	t.Schedule = newSchedule(t.details.markStale)
	agent := func() string { return agentOf(ctx) }
	t.proofs = &proofs{ctx: ctx, task: workflow.GetInfo(ctx).WorkflowExecution.ID, inbox: t.Inbox,
		changed: t.details.markStale, lines: map[string]*line{}}
	t.Gates = &gates{schedule: t.Schedule, attributes: t.attributes, agent: agent, proofs: t.proofs,
		alert:   func(ctx workflow.Context, a protocol.Alert) { t.alerts.send(ctx, a) },
		changed: t.details.markStale, now: func() time.Time { return workflow.Now(ctx) }}
	t.Parks = &parks{
		schedule: t.Schedule, ending: t.Ending, correct: t.correctStep, alert: t.SendAlert,
		replaced: t.replaceParams,
	}
	t.Pivot = &pivot{saga: t.Saga, schedule: t.Schedule}
	t.troubles = &calls.Troubles{Changed: t.details.markStale, Alert: t.SendAlert}
	t.committer = &calls.Committer{Saga: t.Saga, Troubles: t.troubles, Note: t.AddNote}
	t.room = &room{measure: t.measureCarry}
	t.executor = &executor{schedule: t.Schedule, gates: t.Gates, parks: t.Parks, pivot: t.Pivot, committer: t.committer,
		ending: t.Ending, silence: t.Silence}
	t.runner = &stepRunner{
		saga: t.Saga, schedule: t.Schedule, gates: t.Gates, room: t.room, outputs: t.Outputs,
		calls: calls.NewSlots(ctx, t.executor.isHolding),
	}
	t.runner.calls.Waits, t.runner.calls.IsServed = t.markWaiting, t.markServed
	t.runner.calls.Defers = t.markDeferred
	t.Rollbacks = &rollbacks{
		saga: t.Saga, schedule: t.Schedule, gates: t.Gates, parks: t.Parks, pivot: t.Pivot, ending: t.Ending,
		outputs: t.Outputs,
		unwound: map[string]int{}, isQuiet: t.executor.isQuiet,
	}
	t.executor.runner, t.executor.rollbacks = t.runner, t.Rollbacks
	t.executor.takeSignals = t.Inbox.HandleSignals
	t.executor.carryOver, t.executor.getStuck, t.executor.isCalm = t.carryOver, t.getStuck,
		func() bool { return t.alerts.flights == 0 && t.Serving+t.proofs.open == 0 }
	t.runner.savepoints, t.Rollbacks.savepoints, t.Rollbacks.settled = t.Savepoints, t.Savepoints, t.moveSavepoints
	t.extension = plain{t}
	if v.Extend != nil {
		if x := v.Extend(t, sessionIn(carry)); x != nil {
			t.extension = x
		}
	}
	t.Rollbacks.took = t.extension.TakeBack
	if carry != nil {
		t.resume(ctx, *carry)
	}
	if err := workflow.SetQueryHandler(ctx, protocol.QueryState,
		func() (protocol.State, error) { return t.state(ctx), nil }); err != nil {
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

func newSaga(ctx workflow.Context, o compensations.Options, carry *protocol.Carry) *compensations.Saga {
	if carry == nil {
		return compensations.New(ctx, o)
	}
	return compensations.Resume(ctx, o, carry.Saga)
}

// sessionIn is what a run was handed of its session; nil if there is none.
func sessionIn(carry *protocol.Carry) *protocol.SessionCarry {
	if carry == nil {
		return nil
	}
	return carry.Session
}

// attendSignals handles signals as they arrive, and rewrites the current details when they are
// stale. One coroutine does both, because every waiting coroutine is woken several times for each
// step.
func (t *Task) attendSignals(ctx workflow.Context) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	t.Inbox.Open(ctx, // rejections are handled first: gates fail closed
		inbox.Handler{Signal: protocol.SignalReject, Handle: t.Gates.reject},
		inbox.Handler{Signal: protocol.SignalApprove, Handle: t.Gates.approve},
		inbox.Handler{Signal: compensations.SignalResolve, Handle: t.resolve},
	)
	workflow.GoNamed(ctx, "attendant", func(ctx workflow.Context) {
		for {
			_ = workflow.Await(ctx, func() bool { return t.details.stale || t.Inbox.HasSignals() })
			t.Inbox.HandleSignals()
			t.writeDetails(ctx)
		}
	})
}

func (t *Task) resolve(payload []byte) error {
	var r protocol.Resolution
	if err := json.Unmarshal(payload, &r); err != nil {
		return fmt.Errorf("the payload is not {step, digest, do, who, why}, or with with: %w", err)
	}
	r.Key, r.Task = "", "" // not for the sender to say
	if _, isSigned := t.statementOf(r); !isSigned {
		if err := t.checkSigned(r); err != nil {
			return err
		}
		_, err := t.carryOut(r)
		return err
	}
	if _, err := t.findResolved(r); err != nil {
		return err
	}
	if err := t.checkSigned(r); err != nil {
		return err
	}
	return t.proofs.takeSignal(compensations.SignalResolve, r.Step, func(ctx workflow.Context) error {
		_, err := t.resolveProved(ctx, r)
		return err
	})
}

// Run takes a task from prepare, which only the first run of a chain calls, to its end.
func (t *Task) Run(ctx workflow.Context, prepare func(workflow.Context) error) (compensations.Report, error) {
	if t.Phase == protocol.Compiling {
		err := t.refusal
		if err == nil {
			err = prepare(ctx)
		}
		if err != nil {
			t.variant.Repairs = false
			t.Ending.Cause = &compensations.Cause{Kind: kindOf(ctx, err), Text: compensations.Reason(err)}
		} else if t.Ending.Cause == nil {
			t.Phase = protocol.Forward
		}
	}
	if t.Phase == protocol.Forward {
		t.attributes.publishAgent(ctx, t.Compiled.Agent)
		t.executor.runSteps(ctx, t.began, t.Compiled.Deadline)
	}
	reset := wasReset(ctx) // checked before continuing as new too, because the next run could not tell
	switch {
	case t.Ending.Cause == nil && reset == nil && t.executor.draining:
		return compensations.Report{}, t.variant.ContinueAsNew(ctx, t.executor.next)
	case t.Ending.Cause == nil && reset == nil:
		err := t.committer.CommitLedger(ctx)
		if err == nil {
			return t.close(ctx, t.reportCommitted(), nil)
		}
		t.Ending.Cause = &compensations.Cause{Kind: kindOf(ctx, err),
			Text: "what the task did could not be made durable: " + compensations.Reason(err)}
	case t.Ending.Cause == nil:
		t.Ending.Cause = reset
		t.executor.awaitSteps(ctx)
	}
	return t.unwind(ctx, reset)
}

// unwind undoes what is on the ledger.
func (t *Task) unwind(ctx workflow.Context, reset *compensations.Cause) (compensations.Report, error) {
	begins := t.Phase != protocol.Unwinding
	t.Parks.close()
	t.Phase = protocol.Unwinding
	if reset != nil && !t.takeOverLedger(ctx, reset) {
		t.unknown = true
	}
	if begins {
		if len(t.Saga.Entries()) == 0 && t.Pivot.committed == 0 && !t.unknown && t.Saga.Past().Count == 0 {
			t.Ending.Cause.Text = "nothing was touched: " + t.Ending.Cause.Text
		} else {
			pending, _ := t.Saga.Pending()
			t.attributes.publishPending(ctx, pending)
		}
	}
	t.executor.stuck = ""
	var report compensations.Report
	for {
		undone := slices.Clone(t.Saga.Entries())
		report = t.Saga.Unwind(ctx, *t.Ending.Cause)
		t.committer.CommitRemaining(ctx, undone)
		if report.Status != compensations.Open {
			break
		}
		t.leaving = true
		t.awaitAlerts(ctx)
		t.awaitUpdates(ctx)
		next, err := t.carryOver()
		if err == nil {
			return report, t.variant.ContinueAsNew(ctx, next)
		}
		t.leaving, t.stuckAt = false, len(t.Saga.Entries())
		t.alerts.resume(ctx)
	}
	switch {
	case t.unknown:
		report.Status = compensations.Remains
	case report.Status == compensations.Unwound && t.Pivot.committed > 0:
		report.Status = compensations.Partly
	}
	return t.close(ctx, report, t.Ending.Cause)
}

// awaitUpdates waits until every update that was accepted has its answer, and no request is being
// carried out.
func (t *Task) awaitUpdates(ctx workflow.Context) {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	isOver := func() bool { return workflow.AllHandlersFinished(calm) && t.Serving+t.proofs.open == 0 }
	for t.Inbox.HandleSignals(); !isOver(); t.Inbox.HandleSignals() { // what has to be verified first is not lost either
		_ = workflow.Await(calm, isOver)
	}
}

// close ends the task with its report: as the result if it committed or repaired another task,
// otherwise in the details of a failure or cancellation.
func (t *Task) close(ctx workflow.Context, r compensations.Report, cause *compensations.Cause) (compensations.Report,
	error) {
	t.closing = true
	t.awaitAlerts(ctx)
	t.giveUpAlerts()
	t.completeReport(ctx, &r, cause)
	t.Phase, t.Ending.Cause, t.Report = protocol.Closed, cause, &r
	t.attributes.publishClosed(ctx, r.Status)
	t.writeDetails(ctx)
	t.awaitUpdates(ctx)
	if cause == nil || t.variant.Repairs {
		return r, nil
	}
	return r, r.Err(map[compensations.CauseKind]string{
		compensations.Failure: protocol.TaskFailed, compensations.Rejected: protocol.TaskRejected,
		compensations.Deadline: protocol.TaskDeadline, compensations.WasReset: protocol.TaskReset,
	}[cause.Kind])
}
