package protocol

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// Phase is what a task is doing.
type Phase string

// The phases.
const (
	NotBegun  Phase = "not-begun" // no worker has taken the task yet
	Compiling Phase = "compiling"
	Forward   Phase = "forward"
	Unwinding Phase = "unwinding"
	Closed    Phase = "closed"
)

// StepState is the state of a step while the task goes forward.
type StepState string

// The states of a step.
const (
	NotStarted StepState = "not-started"
	Planning   StepState = "planning"
	AtGate     StepState = "at-gate"
	Running    StepState = "running"
	Done       StepState = "done"
	StepFailed StepState = "failed"
	Canceled   StepState = "canceled"
	StepParked StepState = "parked"      // it failed and was undone, and waits for a person
	RolledBack StepState = "rolled-back" // it failed and was undone, and the task went on
	LeftOut    StepState = "left-out"    // it needs a step that was rolled back
)

// State answers the query "state".
type State struct {
	Task  string               `json:"task"`
	Name  string               `json:"name"`
	Agent string               `json:"agent,omitempty"`
	Phase Phase                `json:"phase"`
	Cause *compensations.Cause `json:"cause,omitempty"`
	// Steps are the steps of the present run of the chain, and the notable ones of earlier runs; of a
	// long task, only the last to have started and those that come next.
	Steps []StepView `json:"steps"`
	// Done is the number of steps that are done, in all runs; Total is the number that there are.
	Done  int `json:"done"`
	Total int `json:"total"`
	// Gates are the first steps that wait for approval, each whole, and MoreGates counts the others:
	// QueryStep shows each of them.
	Gates     []GateView `json:"gates,omitempty"`
	MoreGates int        `json:"moreGates,omitempty"`
	// Parks are the first steps that have failed and wait for a person, and MoreParks counts the
	// others.
	Parks     []ParkView `json:"parks,omitempty"`
	MoreParks int        `json:"moreParks,omitempty"`
	// Troubles are what was tried without success, and is tried on. The workflow itself knows those
	// that have lasted for minutes.
	Troubles []Trouble `json:"troubles,omitempty"`
	// AwaitedHosts are hosts whose workers have yet to take what was given to them. No workflow knows
	// them all.
	AwaitedHosts []string `json:"awaitedHosts,omitempty"`
	// PendingUndos is the number of undos that are still to be done, while the task unwinds.
	PendingUndos int `json:"pendingUndos,omitempty"`
	// Stuck says why the task cannot go on; a person can cancel it, or roll back a part of a session.
	Stuck string `json:"stuck,omitempty"`
	// Session is nil for a task that takes no steps while it runs.
	Session *SessionView          `json:"session,omitempty"`
	Report  *compensations.Report `json:"report,omitempty"` // once it unwinds or is closed
	// Ignored are the signals that decided nothing, with the reasons.
	Ignored []string `json:"ignored,omitempty"`
	// Omitted says what else is left out, for it would be too long.
	Omitted []string `json:"omitted,omitempty"`
}

// StepView describes a step while the task goes forward.
type StepView struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	Uses    string    `json:"uses"`
	State   StepState `json:"state,omitempty"`
	Summary string    `json:"summary,omitempty"`
	Error   string    `json:"error,omitempty"`
	Host    string    `json:"host,omitempty"`
	// Waiting says what the step waits for: a host, while no worker takes it, or a time.
	Waiting string `json:"waiting,omitempty"`
	// Try says which try of the step this is, where it is not the first. Began, Ended and Notes are
	// about this try.
	Try int `json:"try,omitempty"`
	// Began and Ended are zero until then.
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// Waited is for how long of that it waited at a gate for a person.
	Waited time.Duration `json:"waited,omitempty"`
	Notes  []string      `json:"notes,omitempty"`
	// Tried are the earlier tries that have notes.
	Tried []Tried `json:"tried,omitempty"`
	// Outputs are what the step has returned, long ones cut in their middle; only in what a query
	// answers.
	Outputs map[string]any `json:"outputs,omitempty"`
	// Progress is the last lines of what a step has told that is being planned, run or undone. No
	// workflow knows them: see activities.Progress.
	Progress []string `json:"progress,omitempty"`
}

// Tried is what there is to tell of an earlier try of a step.
type Tried struct {
	Try   int      `json:"try"`
	Notes []string `json:"notes"`
}

// Text is a note where it stands apart from its try.
func (t Tried) Text(note string) string { return fmt.Sprintf("in try %d: %s", t.Try, note) }

// Took is how long the step was at work until a time, or until its end if that was before: without
// its waiting for people.
func (v StepView) Took(now time.Time) time.Duration {
	if !v.Ended.IsZero() {
		now = v.Ended
	}
	return max(0, now.Sub(v.Began)-v.Waited)
}

// Next returns the view of a further try of the step.
func (v StepView) Next(try int) StepView {
	next := StepView{ID: v.ID, Name: v.Name, Uses: v.Uses, Host: v.Host, Try: try, Tried: v.Tried}
	if len(v.Notes) > 0 {
		next.Tried = append(slices.Clip(v.Tried), Tried{Try: max(1, v.Try), Notes: v.Notes})
	}
	return next
}

// Tries returns what there is to tell of all tries, the present one last.
func (v StepView) Tries() []Tried {
	return append(slices.Clip(v.Tried), Tried{Try: max(1, v.Try), Notes: v.Notes})
}

// AllNotes returns the notes of all tries. Those of earlier ones say which try they are about.
func (v StepView) AllNotes() []string {
	var all []string
	for _, t := range v.Tried {
		for _, note := range t.Notes {
			all = append(all, t.Text(note))
		}
	}
	return append(all, v.Notes...)
}

// GateView is a gate that waits for a person.
type GateView struct {
	Step string `json:"step"`
	// Digest identifies this opening of this gate: approve and reject must carry it.
	Digest  activities.Digest `json:"digest"`
	Opening int               `json:"opening"`
	Why     string            `json:"why"`
	Change  activities.Change `json:"change"`
	// Signed means that only signed decisions count. Of what is signed Token, Action and Undo, the digest
	// of how the change would be undone, are a part: see Statement.
	Signed bool              `json:"signed,omitempty"`
	Token  string            `json:"token"`
	Action string            `json:"action"`
	Undo   activities.Digest `json:"undo"`
	// Assents are the approvals so far, where the rules of a worker ask for several persons, and Waits
	// says whose are still missing.
	Assents []activities.Assent `json:"assents,omitempty"`
	Waits   string              `json:"waits,omitempty"`
	// Edited says who has given the step other parameters at its last gate, and how they differ.
	Edited string    `json:"edited,omitempty"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

// StepNow answers the query "step": all about one step, whole where a State has only a part.
type StepNow struct {
	Step StepView `json:"step"`
	// Gate is where it waits for approval, Park why it waits after it has failed, and Undo how its
	// undo stands.
	Gate *GateView                 `json:"gate,omitempty"`
	Park *ParkView                 `json:"park,omitempty"`
	Undo *compensations.StepReport `json:"undo,omitempty"`
	// With are the parameters of a step at a gate, with their expressions.
	With json.RawMessage `json:"with,omitempty"`
}

// Trouble is what was tried without success, and is tried on.
type Trouble struct {
	What string `json:"what"`
	// Step is the one that it is about; empty where it is about several, or about the task.
	Step string `json:"step,omitempty"`
	// Attempt is the number of the attempt that is under way or comes next. No workflow knows it.
	Attempt int `json:"attempt,omitempty"`
	// Reason is why it failed last.
	Reason string    `json:"reason"`
	Since  time.Time `json:"since,omitzero"`
}

// ParkView is a step that has failed, was undone, and waits for a person.
type ParkView struct {
	Step string `json:"step"`
	Uses string `json:"uses"`
	// Digest identifies this try of the step, with its parameters and how it failed: a Resolution must
	// carry it.
	Digest activities.Digest `json:"digest"`
	// Signed means that only signed decisions count, and Token is a part of what is signed: see
	// Statement.
	Signed bool   `json:"signed,omitempty"`
	Token  string `json:"token"`
	Try    int    `json:"try"`
	Reason string `json:"reason"`
	// With are the parameters of that try, with their expressions.
	With json.RawMessage `json:"with,omitempty"`
	// Ways are the decisions that fit.
	Ways  []compensations.Do `json:"ways"`
	Since time.Time          `json:"since"`
	// AgentDecides says that the agent of the session may decide as well.
	AgentDecides bool `json:"agentDecides,omitempty"`
}
