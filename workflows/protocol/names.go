package protocol

import (
	"go.temporal.io/sdk/temporal"
)

// Workflow types.
const (
	AgentTaskType = "AgentTask"
	PlanTaskType  = "PlanTask"
	// ClearPlanType releases what a PlanTask that ended early has left in journals: argument Chain, id
	// ClearPlanID.
	ClearPlanType = "ClearPlan"
	// ValidateTaskType checks a task with the workers that would run it, and touches nothing: argument
	// the document, result Validation.
	ValidateTaskType = "ValidateTask"
	// RecoverType unwinds a run that ended without unwinding: argument RecoverRequest, id RecoverID.
	RecoverType = "Recover"
	// RollbackType undoes a committed task, or a part of it: argument RollbackRequest, id RollbackID.
	RollbackType = "Rollback"
	// RedoType reverses a rollback: argument RedoRequest, id RedoID.
	RedoType = "Redo"
	// LateSweepType checks again undos that found no effect when that was not yet proof.
	LateSweepType = "LateSweep"
	// SweepType starts Recover or ClearPlan for every closed run whose status is still open: no
	// argument, result SweepResult. A Schedule starts it.
	SweepType = "Sweep"
	// RetainType releases the expired records of one host: argument RetainRequest, result
	// RetentionResult. A Schedule starts it for each host.
	RetainType = "Retain"
	// OrphansType lists, shows or undoes records of a host that no history knows: argument
	// OrphansRequest, result OrphansResult.
	OrphansType = "Orphans"
	// NoticesType tells one channel what waits for a person, for as long as something does: argument
	// Notices, id NoticesID.
	NoticesType = "Notices"
)

// Activities that belong to no world. Every worker serves them: PlacesActivity, HoldActivity,
// ContextActivity, RetainActivity and OrphansActivity on the queue of its host, PreflightActivity
// on both, the others on the shared queue.
const (
	// CompileActivity checks a task document: argument the document, result task.Compiled. Refused is
	// final.
	CompileActivity = "task.compile"
	// CompileStepsActivity checks steps that are added to a session: argument task.Addition, result
	// task.Compiled. Refused is final.
	CompileStepsActivity = "task.compile_steps"
	// PlacesActivity lists the journals of the host that runs it: result Places.
	PlacesActivity = "task.places"
	// PreflightActivity looks at steps before the first step of their task acts: argument
	// PreflightRequest, result Preflight.
	PreflightActivity = "task.preflight"
	// LedgerActivity rebuilds a ledger from a run's history: argument LedgerRequest, result Ledger.
	LedgerActivity = "task.ledger"
	// PausedActivity tells for how long the workflow that asks was paused: argument time.Time, since
	// when; result time.Duration.
	PausedActivity = "task.paused"
	// HoldActivity keeps records of its host from being released: argument HoldRequest, result Held.
	HoldActivity = "task.hold"
	// RedoableActivity reads what a rollback has undone: argument RedoRequest, result RedoInput.
	RedoableActivity = "task.redoable"
	// ContextActivity confirms that its host has a context: argument ContextRequest. Refused is final.
	ContextActivity = "task.context"
	// SweepActivity starts Recover or ClearPlan for each closed run whose status is still open: result
	// SweepResult.
	SweepActivity = "task.sweep"
	// RetainActivity releases the expired records in the journals of the host that runs it: result
	// RetentionResult.
	RetainActivity = "task.retain"
	// OrphansActivity does on its host what Orphans is asked for: argument OrphansRequest, result
	// OrphansResult.
	OrphansActivity = "task.orphans"
	// AlertActivity hands what needs a person to the channels of the worker's config: argument
	// []Alert.
	AlertActivity = "task.alert"
	// NoticesActivity does what is due of a channel's notices: arguments time.Time, the time of the
	// workflow, and Notices; result Notices.
	NoticesActivity = "task.notices"
	// VerifyActivity verifies who has signed a decision: argument SignedDecision, result Proof.
	VerifyActivity = "task.verify"
)

// Signals and queries of a task. SignalResolve is compensations.SignalResolve.
const (
	SignalApprove = "approve"
	SignalReject  = "reject"
	QueryState    = "state"
	// QueryAnswer says how a request of a session stands, by its id: an Answer.
	QueryAnswer = "answer"
	// QueryStep says how one step stands, by its id: a StepNow.
	QueryStep = "step"
)

// Types of the ApplicationErrors that a task fails with; the details hold its compensations.Report.
const (
	TaskFailed   = "TaskFailed"
	TaskRejected = "TaskRejected"
	TaskDeadline = "TaskDeadline"
	TaskReset    = "TaskReset"
)

// NotYours is the type of the error with which LedgerActivity and RedoableActivity refuse a
// workflow that must not act on a run: it was started by hand, or the run is alive.
const NotYours = "NotYours"

// Search attributes of a task. Upserting one that the server does not know blocks a workflow, so a
// worker checks for them at its start.
var (
	AttributeStatus = temporal.NewSearchAttributeKeyKeyword("UnwindStatus")
	AttributeAgent  = temporal.NewSearchAttributeKeyKeyword("UnwindAgent")
	AttributeGate   = temporal.NewSearchAttributeKeyKeyword("UnwindGate")
	// AttributeParked is the first step whose undo waits for a person, as AttributeGate is the first
	// that waits for approval.
	AttributeParked = temporal.NewSearchAttributeKeyKeyword("UnwindParked")
	// AttributeFailing is the first of what the task tries without success, and tries on.
	AttributeFailing = temporal.NewSearchAttributeKeyKeyword("UnwindFailing")
	AttributePending = temporal.NewSearchAttributeKeyInt64("UnwindPending")
	// AttributeTask is the id of the task that a recovery, rollback or redo serves; of a task its own.
	AttributeTask = temporal.NewSearchAttributeKeyKeyword("UnwindTask")
)
