package workflows

import "go.temporal.io/sdk/temporal"

// Workflow types.
const (
	AgentTaskType = "AgentTask"
	PlanTaskType  = "PlanTask"
	// RecoverType unwinds what a run left that ended without unwinding: argument RecoverRequest, id RecoverID.
	RecoverType = "Recover"
	// RollbackType undoes a committed task, or a part of it: argument RollbackRequest, id RollbackID.
	RollbackType = "Rollback"
	// RedoType takes a rollback back: argument RedoRequest, id RedoID.
	RedoType = "Redo"
	// LateSweepType looks again at undos whose absence of effects was not yet proof.
	LateSweepType = "LateSweep"
	// SweepType starts Recover for every closed run that is still open: no argument, result Swept. A Schedule starts it.
	SweepType = "Sweep"
	// RetainType releases the records of one host whose time is over: argument RetainRequest, result Retained. A Schedule
	// starts it for each host.
	RetainType = "Retain"
)

// Activities that belong to no world. Every worker serves them: Compile and Ledger on the shared queue, Places on the
// queue of each host.
const (
	// CompileActivity checks a task document: argument the document, result task.Compiled. Refused is final.
	CompileActivity = "task.compile"
	// PlacesActivity tells the journals of the host that runs it: result Places.
	PlacesActivity = "task.places"
	// LedgerActivity rebuilds a ledger from a run's history: argument LedgerRequest, result Ledger.
	LedgerActivity = "task.ledger"
	// RedoableActivity reads what a rollback has undone: argument RedoRequest, result Redoable.
	RedoableActivity = "task.redoable"
	// SweepActivity looks for closed runs that are still open and starts Recover for each: result Swept.
	SweepActivity = "task.sweep"
	// RetainActivity releases what is over in the journals of the host that runs it: result Retained.
	RetainActivity = "task.retain"
	// AlertActivity tells the configured webhook about an undo that needs a person: argument Alert.
	AlertActivity = "task.alert"
)

// Places are the worlds of a host, by name: the ids of their journals, and what is wrong with those that cannot be used.
type Places struct {
	Journals map[string]string `json:"journals"`
	Problems map[string]string `json:"problems,omitempty"`
}

// LedgerRequest names the run whose ledger is wanted.
type LedgerRequest struct {
	WorkflowID string `json:"workflowId"`
	RunID      string `json:"runId"`
	// To and Step say which part of it is wanted: see RollbackRequest.
	To   string `json:"to,omitempty"`
	Step string `json:"step,omitempty"`
	// Without are rollbacks: what they have undone is left out, also where it is what To or Step names.
	Without []Chain `json:"without,omitempty"`
}

// Signals and queries of a task. SignalResolve is compensations.SignalResolve.
const (
	SignalApprove = "approve"
	SignalReject  = "reject"
	QueryState    = "state"
)

// Types of the ApplicationErrors that a task fails with; the details hold its compensations.Report.
const (
	TaskFailed   = "TaskFailed"
	TaskRejected = "TaskRejected"
	TaskDeadline = "TaskDeadline"
	TaskReset    = "TaskReset"
)

// Search attributes of a task. Upserting one that the server does not know hangs a workflow, so a worker looks for them
// before it starts.
var (
	AttributeStatus  = temporal.NewSearchAttributeKeyKeyword("UnwindStatus")
	AttributeAgent   = temporal.NewSearchAttributeKeyKeyword("UnwindAgent")
	AttributeGate    = temporal.NewSearchAttributeKeyKeyword("UnwindGate")
	AttributePending = temporal.NewSearchAttributeKeyInt64("UnwindPending")
)
