package protocol

import (
	"regexp"
	"strings"
	"time"
)

// Chain names a task by the last run of its chain. FirstRunID is its identity: a server may let a
// workflow id be used again, but never a first run id.
type Chain struct {
	WorkflowID string `json:"workflowId"`
	// RunID is the last run: the one that is dead, committed, or rolled back.
	RunID string `json:"runId"`
	// FirstRunID is the chain's first run, from the description of its last run.
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
func RecoverID(c Chain) string { return serviceID("recover", c) }

// serviceID is the id of the one workflow that does something about a chain. It names the task for
// people, and the chain by its first run.
func serviceID(verb string, c Chain) string {
	id := c.WorkflowID
	if of := served.FindStringSubmatch(id); of != nil {
		id = of[1]
	}
	return verb + "-" + strings.ToValidUTF8(id[:min(len(id), maxTaskName)], "") + "-" + c.FirstRunID
}

// maxTaskName is how many bytes of a task's id are in that of a workflow about it.
const maxTaskName = 100

// served is the id of a workflow about a task; the first group is the id of the task.
var served = regexp.MustCompile(
	`^(?:recover|rollback|redo)-(.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:-(?:to|step)-.*)?$`)

// RollbackRequest is the argument of Rollback. With neither To nor Step the whole task is rolled
// back.
type RollbackRequest struct {
	Chain
	// To is a savepoint: what was done after it is undone.
	To string `json:"to,omitempty"`
	// Step is undone, with all that depends on it.
	Step string `json:"step,omitempty"`
	// Without are earlier rollbacks that have undone some of it; this one leaves that out.
	Without []Chain `json:"without,omitempty"`
	Who     string  `json:"who,omitempty"`
	Why     string  `json:"why,omitempty"`
}

// Ledger returns the request for what r rolls back.
func (r RollbackRequest) Ledger() LedgerRequest {
	return LedgerRequest{WorkflowID: r.WorkflowID, RunID: r.RunID, To: r.To, Step: r.Step, Without: r.Without}
}

// RollbackID is the id of the one workflow that rolls back this part of a task.
func RollbackID(r RollbackRequest) string {
	id := serviceID("rollback", r.Chain)
	switch {
	case r.To != "":
		return id + "-to-" + r.To
	case r.Step != "":
		return id + "-step-" + r.Step
	}
	return id
}

// RedoRequest is the argument of Redo: the rollback to reverse.
type RedoRequest struct {
	// Rollback is the chain of the Rollback.
	Rollback Chain `json:"rollback"`
	// Task is the chain of the task that was rolled back.
	Task Chain  `json:"task"`
	Who  string `json:"who,omitempty"`
}

// RedoID is the id of the one workflow that takes a rollback back.
func RedoID(rollback Chain) string { return serviceID("redo", rollback) }

// ClearPlanID is the id of the one workflow that clears a plan.
func ClearPlanID(plan Chain) string { return serviceID("clear", plan) }

// SweepResult is what one sweep did.
type SweepResult struct {
	// Recovering are the ids of the workflows that it started.
	Recovering []string `json:"recovering,omitempty"`
	// Clearing are the ids of those that clear plans.
	Clearing []string `json:"clearing,omitempty"`
	// Dropped are the schedules that it has removed, of hosts that are gone.
	Dropped []string `json:"dropped,omitempty"`
	// Problems say why a run could not be recovered, by workflow id.
	Problems map[string]string `json:"problems,omitempty"`
}

// RetainRequest is the argument of Retain.
type RetainRequest struct {
	// Queue is the task queue of the host whose journals are cleaned up.
	Queue string `json:"queue"`
}

// RetentionResult is what one round of retention did on a host.
type RetentionResult struct {
	Committed int `json:"committed"` // records whose task was found to have ended with the step in place
	Released  int `json:"released"`
	Forgotten int `json:"forgotten"`
	// Orphans are open records whose workflow the server no longer knows: nothing will undo them.
	Orphans []RecordName `json:"orphans,omitempty"`
	// More counts the orphans that are not listed.
	More int `json:"more,omitempty"`
	// Held are records held by a workflow that is gone from the server: they are kept until their
	// rollback window has closed.
	Held []RecordName `json:"held,omitempty"`
	// Abandoned are records of undos that were given up: a person decided to leave the world as it is,
	// and the rollback window has closed since.
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
	// Holder is the workflow that holds it.
	Holder string `json:"holder,omitempty"`
}

// LedgerRequest asks for the ledger of a run, or a part of it.
type LedgerRequest struct {
	WorkflowID string `json:"workflowId"`
	RunID      string `json:"runId"`
	// To and Step name the part: see RollbackRequest.
	To   string `json:"to,omitempty"`
	Step string `json:"step,omitempty"`
	// Without are rollbacks whose undone entries are left out, even if To or Step names them.
	Without []Chain `json:"without,omitempty"`
}
