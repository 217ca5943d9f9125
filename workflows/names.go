package workflows

import "go.temporal.io/sdk/temporal"

// Workflow types.
const (
	AgentTaskType = "AgentTask"
	PlanTaskType  = "PlanTask"
	// RecoverType unwinds a run that ended without unwinding: argument RecoverRequest, id RecoverID.
	RecoverType = "Recover"
	// RollbackType undoes a committed task, or a part of it: argument RollbackRequest, id RollbackID.
	RollbackType = "Rollback"
	// RedoType takes a rollback back: argument RedoRequest, id RedoID.
	RedoType = "Redo"
	// LateSweepType checks again undos that found no effect when that was not yet proof.
	LateSweepType = "LateSweep"
	// SweepType starts Recover for every closed run that is still open: no argument, result SweepResult. A Schedule starts it.
	SweepType = "Sweep"
	// RetainType releases the expired records of one host: argument RetainRequest, result RetentionResult. A Schedule starts it for
	// each host.
	RetainType = "Retain"
)

// Activities that belong to no world. Every worker serves them: Compile and Ledger on the shared queue, Places on the
// queue of each host.
const (
	// CompileActivity checks a task document: argument the document, result task.Compiled. Refused is final.
	CompileActivity = "task.compile"
	// PlacesActivity lists the journals of the host that runs it: result Places.
	PlacesActivity = "task.places"
	// LedgerActivity rebuilds a ledger from a run's history: argument LedgerRequest, result Ledger.
	LedgerActivity = "task.ledger"
	// RedoableActivity reads what a rollback has undone: argument RedoRequest, result Redoable.
	RedoableActivity = "task.redoable"
	// SweepActivity starts Recover for each closed run that is still open: result SweepResult.
	SweepActivity = "task.sweep"
	// RetainActivity releases the expired records in the journals of the host that runs it: result RetentionResult.
	RetainActivity = "task.retain"
	// AlertActivity sends undos that need a person to the configured webhook: argument []Alert.
	AlertActivity = "task.alert"
)

// Places are the worlds of a host, by name: the ids of their journals, and what is wrong with those that cannot be used.
type Places struct {
	Journals map[string]string `json:"journals"`
	Problems map[string]string `json:"problems,omitempty"`
}

// LedgerRequest asks for the ledger of a run, or for a part of it.
type LedgerRequest struct {
	WorkflowID string `json:"workflowId"`
	RunID      string `json:"runId"`
	// To and Step name the part: see RollbackRequest.
	To   string `json:"to,omitempty"`
	Step string `json:"step,omitempty"`
	// Without are rollbacks. What they have undone is left out, even where To or Step names it.
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

// NotYours is the type of the error with which LedgerActivity and RedoableActivity refuse a workflow that must not act on a run: it
// was started by hand, or the run lives.
const NotYours = "NotYours"

// Search attributes of a task. Upserting one that the server does not know hangs a workflow, so a worker looks for them
// before it starts.
var (
	AttributeStatus  = temporal.NewSearchAttributeKeyKeyword("UnwindStatus")
	AttributeAgent   = temporal.NewSearchAttributeKeyKeyword("UnwindAgent")
	AttributeGate    = temporal.NewSearchAttributeKeyKeyword("UnwindGate")
	AttributePending = temporal.NewSearchAttributeKeyInt64("UnwindPending")
)
