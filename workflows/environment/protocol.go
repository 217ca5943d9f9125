package environment

import (
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// WorkflowType is the type of the long-lived workflow that has an environment: argument Start, id
// WorkflowID. It takes the updates below one at a time, and runs a task for each that touches the
// parts.
const WorkflowType = "Environment"

// Activities of it. KeepActivity, DropActivity and ListActivity run on the host of the
// environment, which stores the list of its checkpoints.
const (
	// HomeActivity names the host that runs it: no argument, result its name.
	HomeActivity = "environment.home"
	// DoneActivity reads the steps of a finished task: argument its id, result []Done.
	DoneActivity = "environment.done"
	// HoldActivity holds what a checkpoint has on another host, and LetGoActivity ends that and
	// releases it: argument Holding, no result.
	HoldActivity  = "environment.hold"
	LetGoActivity = "environment.let-go"
	// KeepActivity holds the records of a checkpoint and stores it: argument Stored, result []Stored,
	// all of the environment, the newest first. Stored again, it replaces the former.
	KeepActivity = "environment.keep"
	// DropActivity ends the holds of checkpoints, releases their records and forgets them: argument
	// DropRequest, result []Stored.
	DropActivity = "environment.drop"
	// ListActivity lists what is stored of an environment: argument its name, result []Stored.
	ListActivity = "environment.list"
	// EndActivity waits for the end of a task that has been started before: argument its id, result
	// compensations.Report.
	EndActivity = "environment.end"
	// AdmitActivity refuses, as activities.Fenced, what a step asks too late: argument AdmitRequest. It
	// runs on the host of the environment, whose journal has the record of the step.
	AdmitActivity = "environment.admit"
	// WritesActivity tells which steps have changed parts on its host, as far as the records there
	// know: argument WritesRequest, result Writes.
	WritesActivity = "environment.writes"
)

// Updates and the query. Their errors have the types below, or that of the task that failed.
const (
	// UpdateCheckpoint takes a checkpoint: argument CheckpointRequest, result Checkpoint. With the id
	// of one that is there, that one is the result.
	UpdateCheckpoint = "checkpoint"
	// UpdateRollback rolls back: argument RollbackRequest, result RolledBack.
	UpdateRollback = "rollback"
	// UpdateCompare compares a checkpoint with another one, or with what is there now: argument
	// CompareRequest, result Comparison. It changes nothing.
	UpdateCompare = "compare"
	// UpdateTasks tells which tasks have changed parts: no argument, result Tasks. It changes nothing.
	UpdateTasks = "tasks"
	// UpdatePast looks once more for the tasks whose changes the rollback that is under way takes back:
	// argument the id of its task, result how many. It is refused where one of them has not ended.
	UpdatePast = "past"
	// UpdatePin pins or unpins: argument PinRequest, result Checkpoint.
	UpdatePin = "pin"
	// UpdateDelete deletes one: argument its id, no result.
	UpdateDelete = "delete"
	// UpdateLetGo ends what a step needs checkpoints for: argument its token, no result.
	UpdateLetGo = "let-go"
	// UpdatePrune deletes what the policy no longer keeps: no argument, result Pruned.
	UpdatePrune = "prune"
	// UpdateApply gives it another document: argument Document, no result.
	UpdateApply = "apply"
	// UpdateRemove deletes all checkpoints and ends the workflow: no argument, result Pruned.
	UpdateRemove = "remove"
	// QueryView shows it: a View.
	QueryView = "environment"
)

// Types of the errors of updates.
const (
	// Unknown: there is no such checkpoint.
	Unknown = "UnknownCheckpoint"
	// Pinned: it must be unpinned first.
	Pinned = "CheckpointPinned"
	// Busy: another operation is under way.
	Busy = "EnvironmentBusy"
	// Open: a task that has not ended has changed what a rollback that stops the unit would put back.
	Open = "TaskOpen"
	// Bad: the request is at fault.
	Bad = "BadRequest"
	// Failed: the task has failed, and undone what it had done.
	Failed = "EnvironmentTaskFailed"
)

// WorkflowID is the id of the workflow of an environment.
func WorkflowID(name string) string { return "environment-" + name }

// NameOf is the name of the environment whose workflow has this id.
func NameOf(id string) string { return id[len(WorkflowID("")):] }

// CheckpointTaskID is the id of the task that takes a checkpoint, and RollbackTaskID that of the
// rollback whose safety checkpoint it is.
func CheckpointTaskID(name, id string) string { return WorkflowID(name) + "-" + id }

func RollbackTaskID(name, safety string) string { return WorkflowID(name) + "-rollback-" + safety }

// TakenBy is the id of the checkpoint that a task of an environment takes, for itself or before a
// rollback; empty if it takes none.
func TakenBy(name, task string) string {
	for _, prefix := range []string{RollbackTaskID(name, ""), CheckpointTaskID(name, "")} {
		if id, is := strings.CutPrefix(task, prefix); is && strings.HasPrefix(id, "cp-") {
			return id
		}
	}
	return ""
}

// CompareTaskID is the id of the task that compares.
func CompareTaskID(name, id string) string { return WorkflowID(name) + "-compare-" + id }

// Start is the argument of the workflow.
type Start struct {
	Document Document `json:"document"`
	// Home is the host of an environment that has continued as new.
	Home string `json:"home,omitempty"`
	// Rollbacks are those of an environment that has continued as new.
	Rollbacks Rollbacks `json:"rollbacks,omitzero"`
}

// CheckpointRequest is the argument of UpdateCheckpoint.
type CheckpointRequest struct {
	// ID is that of the checkpoint, and begins with cp-.
	ID      string  `json:"id"`
	Trigger Trigger `json:"trigger"`
	Notes   string  `json:"notes,omitempty"`
	Pinned  bool    `json:"pinned,omitempty"`
	Who     string  `json:"who,omitempty"`
	// Step is the step that asks; nil if it is none.
	Step *Step `json:"step,omitempty"`
}

// RollbackRequest is the argument of UpdateRollback.
type RollbackRequest struct {
	To string `json:"to"`
	// Safety is the id of the checkpoint that is taken first.
	Safety string `json:"safety"`
	// Parts are those that are put back; empty: all that are in the checkpoint and the environment.
	Parts []string `json:"parts,omitempty"`
	Who   string   `json:"who,omitempty"`
	// Step is the step that asks; nil if it is none. The checkpoints To and Safety are kept until it
	// lets go of them.
	Step *Step `json:"step,omitempty"`
	// Undoing: the step asks while it is undone.
	Undoing bool `json:"undoing,omitempty"`
}

// AdmitRequest is the argument of AdmitActivity.
type AdmitRequest struct {
	Token   string `json:"token"`
	Undoing bool   `json:"undoing,omitempty"`
}

// CompareRequest is the argument of UpdateCompare.
type CompareRequest struct {
	// ID tells the comparison from others.
	ID   string `json:"id"`
	From string `json:"from"`
	// To is the other checkpoint; empty: what is there now.
	To  string `json:"to,omitempty"`
	Who string `json:"who,omitempty"`
}

// PinRequest is the argument of UpdatePin.
type PinRequest struct {
	ID     string `json:"id"`
	Pinned bool   `json:"pinned"`
	// GiveUp, with an unpin: steps whose undo needs the checkpoint can no longer be undone.
	GiveUp bool `json:"give_up,omitempty"`
}

// Holding is what a checkpoint of an environment has on a host.
type Holding struct {
	Environment string             `json:"environment"`
	Checkpoint  string             `json:"checkpoint"`
	Entries     []activities.Entry `json:"entries"`
}

// DropRequest is the argument of DropActivity.
type DropRequest struct {
	Environment string   `json:"environment"`
	IDs         []string `json:"ids"`
}

// Pruned is what became of the checkpoints.
type Pruned struct {
	Deleted []string `json:"deleted"`
	Kept    int      `json:"kept"`
}

// View answers QueryView.
type View struct {
	Document Document `json:"document"`
	// Host has the parts, and the list of checkpoints.
	Host string `json:"host"`
	// Doing is what is under way; nil if nothing is.
	Doing       *Operation   `json:"doing,omitempty"`
	Checkpoints []Checkpoint `json:"checkpoints"`
	Rollbacks   Rollbacks    `json:"rollbacks"`
	Usage       Usage        `json:"storage_usage"`
}

// Operation is what is under way.
type Operation struct {
	What  string    `json:"what"`
	Task  string    `json:"task,omitempty"`
	Since time.Time `json:"since"`
}

// MaxNotes bounds the notes of a checkpoint, in bytes.
const MaxNotes = 500
