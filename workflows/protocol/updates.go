package protocol

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// Updates of a session. The id of an update is the caller's, and makes it idempotent: the same id
// again is the same request, whatever runs of the chain it meets, for as long as it is one of the
// last 10,000. Each answers with an Answer. What cannot be done is refused, and leaves no trace in
// the history. What is not over within seconds is answered as pending: ask QueryAnswer for the
// rest.
const (
	// UpdateOpen answers when the session takes steps: no argument. A client starts the session with
	// it.
	UpdateOpen = "open"
	// UpdateStep adds steps: argument StepRequest. It answers when all of them are over, or wait for a
	// person.
	UpdateStep = "step"
	// UpdateSavepoint gives a name to the place after everything that is done: argument
	// SavepointRequest.
	UpdateSavepoint = "savepoint"
	// UpdateNote notes something for people: argument NoteRequest. The state and the report of the
	// session show the last ones.
	UpdateNote = "note"
	// UpdateContext remembers a context that the agent has given: argument Context.
	UpdateContext = "context"
	// UpdateRollback undoes a part: argument SessionRollback. It answers when that is undone, or waits
	// for a person.
	UpdateRollback = "rollback"
	// UpdateRedo runs again what a rollback has taken back: argument SessionRedo. It answers as
	// UpdateStep.
	UpdateRedo = "redo"
	// UpdateResolveStep has the agent decide about a step that is parked after a failure: argument
	// StepResolution. It answers when that step is over, or needs a person. A session takes it only if
	// its document says failures: agent.
	UpdateResolveStep = "resolve-step"
	// UpdateFinish commits what the session has done: no argument. It answers with the report.
	UpdateFinish = "finish"
	// UpdateAbort undoes all that the session has done: argument AbortRequest. It answers with the
	// report.
	UpdateAbort = "abort"
	// UpdateAwait answers when an earlier request is over, or soon as it stands: argument
	// AwaitRequest. QueryAnswer adds nothing to the history.
	UpdateAwait = "await"
)

// SessionUpdates are the updates that only a session takes.
var SessionUpdates = []string{
	UpdateOpen, UpdateStep, UpdateSavepoint, UpdateNote, UpdateContext, UpdateRollback, UpdateRedo, UpdateResolveStep,
	UpdateFinish, UpdateAbort, UpdateAwait,
}

// StepRequest is the argument of UpdateStep.
type StepRequest struct {
	// Steps are as in a task file. One without an id gets one.
	Steps []json.RawMessage `json:"steps"`
}

// SavepointRequest is the argument of UpdateSavepoint.
type SavepointRequest struct {
	Name string `json:"name"`
	// Context is the agent's at this place; nil if it gives none.
	Context *Context `json:"context,omitempty"`
}

// NoteRequest is the argument of UpdateNote.
type NoteRequest struct {
	Text string `json:"text"`
}

// SessionRollback is the argument of UpdateRollback. Exactly one of To and Step is set.
type SessionRollback struct {
	// To is a savepoint: what was done since is undone.
	To string `json:"to,omitempty"`
	// Step is undone, with all that builds on it. One that is still running is canceled first.
	Step string `json:"step,omitempty"`
	// Branch keeps what was done since To under a name, so that it can be compared with other
	// branches, and redone.
	Branch *Branch `json:"branch,omitempty"`
	Why    string  `json:"why,omitempty"`
}

// SessionRedo is the argument of UpdateRedo. With none of Branch, To and Step, it is the last
// rollback that was not redone.
type SessionRedo struct {
	// Branch names what the rollback was kept as. Nothing else must stand that came after its
	// savepoint.
	Branch string `json:"branch,omitempty"`
	// To names the rollback by its savepoint, Step by its step.
	To   string `json:"to,omitempty"`
	Step string `json:"step,omitempty"`
	Why  string `json:"why,omitempty"`
}

// StepResolution is the argument of UpdateResolveStep.
type StepResolution struct {
	Step string `json:"step"`
	// Digest is that of the ParkView which the decision is about.
	Digest activities.Digest `json:"digest"`
	// Do is one of the ways of that view.
	Do  compensations.Do `json:"do"`
	Why string           `json:"why,omitempty"`
	// With replaces the parameters of a step that is to run again.
	With json.RawMessage `json:"with,omitempty"`
}

// AbortRequest is the argument of UpdateAbort.
type AbortRequest struct {
	Who string `json:"who,omitempty"`
	Why string `json:"why,omitempty"`
}

// AwaitRequest is the argument of UpdateAwait.
type AwaitRequest struct {
	// Request is the id of the update that is waited for.
	Request string `json:"request"`
}

// Answer is what an update of a session has come to.
type Answer struct {
	// Request is the id of the update, and Digest that of what it asked for: an id that was used for
	// something else has another.
	Request string            `json:"request"`
	Digest  activities.Digest `json:"digest,omitempty"`
	// Pending says that it is not over: something waits for a person, or the run continues as new.
	// UpdateAwait waits for the end.
	Pending bool `json:"pending,omitempty"`
	// NeedsPerson says that nothing of it goes on before somebody decides: see Steps, Waiting,
	// WaitsFor and Stuck.
	NeedsPerson bool `json:"needsPerson,omitempty"`
	// Refused says why nothing was done of it. An update that learns of that in time is refused
	// itself.
	Refused *Refused `json:"refused,omitempty"`
	// Phase is that of the session, and Cause why it goes no further.
	Phase Phase                `json:"phase"`
	Cause *compensations.Cause `json:"cause,omitempty"`
	// Steps are the steps that it has added.
	Steps []StepAnswer `json:"steps,omitempty"`
	// Undone is what became of the steps that a rollback has undone.
	Undone []compensations.StepReport `json:"undone,omitempty"`
	// Waiting are the undos that need a person.
	Waiting []compensations.StepReport `json:"waiting,omitempty"`
	// WaitsFor are steps of other requests that wait for a decision, while nothing else goes on.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// Stuck says why the session cannot go on.
	Stuck string `json:"stuck,omitempty"`
	// Savepoint is the name of a place.
	Savepoint string `json:"savepoint,omitempty"`
	// Context is what the agent has given, or had given at the savepoint that it has gone back to.
	Context *Context `json:"context,omitempty"`
	// Report is that of a session that has ended.
	Report *compensations.Report `json:"report,omitempty"`
	// Forgotten says that the request was carried out, so long ago that its answer is no longer kept.
	Forgotten bool `json:"forgotten,omitempty"`
	// Omitted says what is left out, for it would be too long, and More counts the steps and undos
	// that are not listed, by their state. QueryStep shows each of them.
	Omitted []string       `json:"omitted,omitempty"`
	More    map[string]int `json:"more,omitempty"`
}

// Refused is a request that was refused after its update was answered: see NotASession and what
// follows it.
type Refused struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// StepAnswer is what became of a step of a session.
type StepAnswer struct {
	ID      string         `json:"id"`
	Uses    string         `json:"uses"`
	State   StepState      `json:"state"`
	Try     int            `json:"try,omitempty"` // where it is not the first
	Summary string         `json:"summary,omitempty"`
	Error   string         `json:"error,omitempty"`
	Outputs map[string]any `json:"outputs,omitempty"`
	Notes   []string       `json:"notes,omitempty"`
	Took    time.Duration  `json:"took,omitempty"`
	// Gate is where it waits for approval.
	Gate *GateView `json:"gate,omitempty"`
	// Park is why it waits for a person after it has failed.
	Park *ParkView `json:"park,omitempty"`
	// Undone is what became of it if it was undone.
	Undone *compensations.StepReport `json:"undone,omitempty"`
}

// DigestOfRequest identifies what an update asks for: its argument, or nil.
func DigestOfRequest(content any) activities.Digest {
	raw, _ := digestedContent(content) // plain data
	return activities.DigestOf(raw)
}

// identity is what the same request has in common when it is repeated.
func (r SavepointRequest) identity() SavepointRequest {
	if r.Context != nil {
		c := r.Context.Anywhere()
		r.Context = &c
	}
	return r
}

// digestedContent is what DigestOfRequest digests of a request.
func digestedContent(content any) ([]byte, error) {
	switch r := content.(type) {
	case SavepointRequest:
		return json.Marshal(r.identity())
	case Context:
		return json.Marshal(r.Anywhere())
	}
	return json.Marshal(content)
}

// Resolution is the decision as one of the agent's.
func (r StepResolution) Resolution() Resolution {
	return Resolution{Resolution: compensations.Resolution{Step: r.Step, Digest: r.Digest, Do: r.Do, Who: "the agent",
		Why: r.Why}, With: r.With}
}

func (r SessionRedo) IsAmbiguous() bool {
	given := slices.DeleteFunc([]string{r.Branch, r.To, r.Step}, func(name string) bool { return name == "" })
	return len(given) > 1
}

// Means reports whether r names what was taken back as p.
func (r SessionRedo) Means(p TakenBack) bool {
	if r.Branch != "" {
		return p.Branch.IsNamed(r.Branch)
	}
	return r.To+r.Step == "" || p.To == r.To && p.Step == r.Step
}
