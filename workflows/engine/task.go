package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/compensations/inbox"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Task is one run of a task: of an AgentTask, or of a workflow that recovers one, rolls it back or
// redoes it. It decides what comes next and leaves the rest to its parts, each of which owns its
// state and can be read without the others.
type Task struct {
	variant  Variant
	refusal  error     // why it must not begin; nil if it may
	began    time.Time // when the chain's first run began
	Phase    protocol.Phase
	Compiled task.Compiled
	notes    []string
	Report   *compensations.Report
	redoable bool // what it undoes is kept, so that it can be redone
	leaving  bool // it only waits for updates before it continues as new
	Serving  int  // the number of requests that are being carried out beside their updates
	closing  bool // it only waits for alerts and updates before it ends
	wasStuck bool // somebody was told that it cannot be carried over
	stuckAt  int  // the number of undos that were to be done when it could not; 0 if it could
	unknown  bool // the ledger of the run that this one recovers, or was reset from, could not be read

	Saga       *compensations.Saga // the ledger, and how it is undone
	Ending     *ending             // why the task no longer goes forward
	Schedule   *schedule           // the steps, and which of them may start
	executor   *executor           // the coroutines that run them
	Outputs    outputs             // what they have returned
	Silence    *Silence            // of the agent of a session
	runner     *stepRunner         // takes one step through plan, gate, forward and probe
	Gates      *gates              // the steps that wait for approval
	Parks      *parks              // the steps that have failed and wait for a person
	proofs     *proofs             // who has decided, where that must be proved
	Pivot      *pivot              // the steps that are never unwound
	committer  *calls.Committer    // tells worlds what stays
	troubles   *calls.Troubles     // what fails, and is tried on
	alerts     *alerts             // what people are told
	Rollbacks  *rollbacks          // the parts that are undone while the task goes on
	room       *room               // whether the ledger still fits into a payload
	Inbox      *inbox.Inbox        // the signals
	details    *details            // what the Temporal UI shows
	attributes *attributes         // the search attributes
	Savepoints *savepoints         // the places that the agent of a session may roll back to
	extension  Extension           // what a session adds
}

// Variant distinguishes the workflows that are built on Task.
type Variant struct {
	Repairs bool      // it undoes what another workflow did: to have done so is success
	Redoes  bool      // it redoes what was rolled back
	Round   int       // the number of a late sweep
	Extend  Extend    // makes what a session adds; nil for a plain task
	Check   StepCheck // of steps that the session is to take; nil if they are only checked once they are accepted
	// ContinueAsNew returns the error that ends the run and starts the next one of its chain.
	ContinueAsNew func(ctx workflow.Context, carry json.RawMessage) error
}

// Extend makes the extension of a task; carried is what the previous run has handed over of it. It
// returns nil for a plain task.
type Extend func(t *Task, carried *protocol.SessionCarry) Extension

// StepCheck checks steps before a session accepts them, with all that the worker knows of its
// actions. It is not called in a replay, so it may change with the worker.
type StepCheck func(task.Addition) error

// Stuck says why there can be no next run; empty if there can.
func (t *Task) Stuck() string { return t.executor.stuck }

// IsQuiet reports whether every running step waits at a gate.
func (t *Task) IsQuiet() bool { return t.executor.isQuiet() }

// RunsSteps reports whether a step runs.
func (t *Task) RunsSteps() bool { return t.executor.running > 0 }

// MarkStale has the details rewritten.
func (t *Task) MarkStale() { t.details.markStale() }

// AddNote adds a note to the report.
func (t *Task) AddNote(note string) { t.notes = append(t.notes, note) }

// sagaOptions returns o with the options that every task's saga has.
func (t *Task) sagaOptions(ctx workflow.Context, o compensations.Options) compensations.Options {
	o.Changed, o.Alert, o.Paused = t.details.markStale, t.sendAlerts, calls.PausedSince
	o.Pause = func() bool {
		if t.Phase == protocol.Forward { // a part is being undone; if the task ends meanwhile, everything will be
			return t.isLong(ctx) || t.executor.isOver(ctx)
		}
		return t.isLong(ctx)
	}
	return o
}

// AdoptSteps takes up the steps of a compiled document.
func (t *Task) AdoptSteps(ctx workflow.Context, compiled task.Compiled) {
	t.Compiled, t.Schedule.Size = compiled, len(compiled.Steps)
	t.configure(ctx)
	var order []string
	for _, step := range compiled.Steps {
		order = append(order, step.ID)
		t.AddStep(step)
		if text := step.Gate.DescribeOmission(); text != "" {
			t.notes = append(t.notes, fmt.Sprintf("step %s %s: the task file says gate: none", step.ID, text))
		}
	}
	if compiled.Session == nil { // its steps come in time
		t.Schedule.keepOrder(order)
	}
	t.Schedule.arrangeSteps()
	t.extension.Begin(ctx)
}

// RepeatSteps takes up steps that were rolled back.
func (t *Task) RepeatSteps(ctx workflow.Context, compiled task.Compiled, before protocol.RedoInput) {
	t.runner.redoes = before.Tokens
	maps.Copy(t.Outputs, before.Outputs)
	t.AdoptSteps(ctx, compiled)
}

// TakeUp takes up what is known of a ledger besides its entries: how it is undone, and what is not.
func (t *Task) TakeUp(ctx workflow.Context, l protocol.Ledger) {
	t.redoable, t.unknown, t.Pivot.committed, t.Compiled.Unwind = l.Redoable, l.Unknown, l.Committed, l.Unwind
	t.configure(ctx)
}

// MarkUnknown notes that nobody knows what is left.
func (t *Task) MarkUnknown() { t.unknown = true }

// HoldRecords holds the records of entries for as long as the workflow runs.
func (t *Task) HoldRecords(ctx workflow.Context, entries []activities.Entry) error {
	return t.troubles.HoldRecords(ctx, entries)
}

// AddStep puts a step behind all others.
func (t *Task) AddStep(step task.Step) *Step {
	t.room.addBytes(bytesOf(step))
	return t.Schedule.addStep(step)
}

// bytesOf is about how many bytes a step adds to what is carried over.
func bytesOf(step task.Step) int {
	return len(step.With) + payload.SizeOf(step.Check) + NamesOf(step).size() + stepBytes
}

// replaceParams notes that a person has given a step other parameters: it no longer repeats what
// was rolled back.
func (t *Task) replaceParams(id string, with json.RawMessage) {
	delete(t.runner.redoes, id)
	t.extension.Correct(id, with)
}

// configure applies the task-wide settings of the task file.
func (t *Task) configure(ctx workflow.Context) {
	o := t.sagaOptions(ctx, compensations.Options{Redoable: t.redoable})
	if t.Compiled.Unwind == task.UnwindParallel {
		o.Parallel = calls.MaxInFlight
	}
	t.Saga.Configure(ctx, o)
	t.runner.keep, t.runner.pinned = t.Compiled.Keep, t.Compiled.Pinned
}

// details describe the task in the Temporal UI, as Markdown in the workflow's current details.
type details struct {
	stale bool // they must be rewritten
}

// markStale has the details rewritten, once for everything that changes in one workflow task.
func (d *details) markStale() { d.stale = true }

// isLong reports whether the run should be continued by another one. One that is stuck stays, until
// much less is left to undo.
func (t *Task) isLong(ctx workflow.Context) bool {
	if t.Phase == protocol.Unwinding && t.stuckAt > 0 {
		pending, _ := t.Saga.Pending()
		return runIsLong(ctx) && pending <= t.stuckAt-max(1, t.stuckAt/10)
	}
	return runIsLong(ctx) && t.executor.stuck == ""
}

// sendAlerts has people told of what waits for them, and does not wait for that.
func (t *Task) sendAlerts(ctx workflow.Context, about []compensations.StepReport) {
	var all []protocol.Alert
	for _, s := range about {
		all = append(all, alertAbout(s))
	}
	t.alerts.send(ctx, all...)
}

// SendAlert has people told of a step that waits for them.
func (t *Task) SendAlert(ctx workflow.Context, about compensations.StepReport) {
	t.alerts.send(ctx, alertAbout(about))
}

// awaitAlerts gives the alerts that are under way a short time: no run ends, and none continues as
// new, with an activity pending.
func (t *Task) awaitAlerts(ctx workflow.Context) {
	if t.alerts.flights == 0 {
		return
	}
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_ = workflow.Await(calm, func() bool { return t.alerts.flights == 0 })
}

// giveUpAlerts notes what nobody was told of, because the task is over.
func (t *Task) giveUpAlerts() {
	if n := t.alerts.untold(); n > 0 {
		reason := t.alerts.trouble.Reason
		if reason == "" {
			reason = "there was no time left"
		}
		t.notes = append(t.notes,
			fmt.Sprintf("nobody was alerted about %s, as no channel took it: %s", activities.CountOf(n, "thing"),
				reason))
	}
}

// moveSavepoints moves a savepoint whose entry was undone to the next entry.
func (t *Task) moveSavepoints() {
	top := 0
	if entries := t.Saga.Entries(); len(entries) > 0 {
		top = entries[len(entries)-1].Seq
	}
	t.Savepoints.move(top)
}

// shownTroubles are what the task tries without success: what holds it up first.
func (t *Task) shownTroubles() []protocol.Trouble {
	return append(t.troubles.Views(t.Saga), t.alerts.troubles()...)
}

// IsLeaving reports whether the run only waits for its updates before it continues as new.
func (t *Task) IsLeaving() bool { return t.executor.draining || t.leaving }
