package workflows

import (
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// Chain names a task by the last run of its chain. FirstRunID is its identity: a server may allow a workflow id to be used
// again, but never a first run id.
type Chain struct {
	WorkflowID string `json:"workflowId"`
	// RunID is the last run: the one that is dead, committed, or rolled back.
	RunID string `json:"runId"`
	// FirstRunID is that of the chain, from the description of its last run.
	FirstRunID string `json:"firstRunId"`
}

// RecoverRequest is the argument of Recover.
type RecoverRequest struct {
	Chain
	// Ended says how the run ended, for the report: "terminated", "timed out".
	Ended string `json:"ended"`
	Who   string `json:"who,omitempty"`
}

// RecoverID is the id of the one workflow that recovers a chain.
func RecoverID(c Chain) string { return "recover-" + c.FirstRunID }

// RollbackRequest is the argument of Rollback. With neither To nor Step the whole task is rolled back.
type RollbackRequest struct {
	Chain
	// To is a savepoint: what was done after it is undone.
	To string `json:"to,omitempty"`
	// Step is undone, with all that depends on it.
	Step string `json:"step,omitempty"`
	// Without are earlier rollbacks that have undone some of it: this one leaves that out.
	Without []Chain `json:"without,omitempty"`
	Who     string  `json:"who,omitempty"`
	Why     string  `json:"why,omitempty"`
}

// Ledger asks for what r rolls back.
func (r RollbackRequest) Ledger() LedgerRequest {
	return LedgerRequest{WorkflowID: r.WorkflowID, RunID: r.RunID, To: r.To, Step: r.Step, Without: r.Without}
}

// RollbackID is the id of the one workflow that rolls this part of a task back.
func RollbackID(r RollbackRequest) string {
	switch {
	case r.To != "":
		return "rollback-" + r.FirstRunID + "-to-" + r.To
	case r.Step != "":
		return "rollback-" + r.FirstRunID + "-step-" + r.Step
	}
	return "rollback-" + r.FirstRunID
}

// RedoRequest is the argument of Redo: the rollback that is taken back.
type RedoRequest struct {
	// Rollback is the chain of the Rollback.
	Rollback Chain `json:"rollback"`
	// Task is the chain of the task that was rolled back.
	Task Chain  `json:"task"`
	Who  string `json:"who,omitempty"`
}

// RedoID is the id of the one workflow that takes a rollback back.
func RedoID(rollback Chain) string { return "redo-" + rollback.FirstRunID }

// SweepResult is what one sweep did.
type SweepResult struct {
	// Recovering are the ids of the workflows that it started.
	Recovering []string `json:"recovering,omitempty"`
	// Problems say why a run could not be recovered, by workflow id.
	Problems map[string]string `json:"problems,omitempty"`
}

// RetainRequest is the argument of Retain.
type RetainRequest struct {
	// Queue is the task queue of the host whose journals are meant.
	Queue string `json:"queue"`
}

// RetentionResult is what one round of retention did on a host.
type RetentionResult struct {
	Committed int `json:"committed"` // records whose task was found to have ended with its step in place
	Released  int `json:"released"`
	Forgotten int `json:"forgotten"`
	// Orphans are open records whose workflow is gone from the server: nothing will undo them.
	Orphans []RecordName `json:"orphans,omitempty"`
	// More counts the orphans that are not listed.
	More int `json:"more,omitempty"`
	// Abandoned are records of undos that were given up: a person decided to leave the world as it is, and the window after
	// that is over.
	Abandoned []RecordName `json:"abandoned,omitempty"`
	Problems  []string     `json:"problems,omitempty"`
}

// RecordName names a record and its owner.
type RecordName struct {
	World    string    `json:"world"`
	Token    string    `json:"token"`
	Workflow string    `json:"workflow"`
	Step     string    `json:"step"`
	Since    time.Time `json:"since"`
}

// Alert tells of an undo that needs a person or waits for its host. A webhook gets a list of them, as JSON.
type Alert struct {
	Task   string                  `json:"task"`
	Run    string                  `json:"run"`
	Step   string                  `json:"step"`
	Action string                  `json:"action"`
	State  compensations.UndoState `json:"state"`
	Reason string                  `json:"reason"`
	Digest activities.Digest       `json:"digest,omitempty"`
	// At is when it was parked.
	At time.Time `json:"at"`
}
