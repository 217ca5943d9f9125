package protocol

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// Decision is the payload of the signals, and the argument of the updates, approve and reject:
// {"step": ..., "digest": ..., "who": ..., "why": ...}.
type Decision struct {
	Step string `json:"step"`
	// Digest identifies the gate's present opening: it covers the change, the step's token and the
	// number of the opening.
	Digest activities.Digest `json:"digest"`
	// Who is a claim unless it is signed: a bare signal proves nothing.
	Who string `json:"who,omitempty"`
	Why string `json:"why,omitempty"`
	// At and Signature are those of a signed decision: see GateView.Statement.
	At        time.Time `json:"at,omitzero"`
	Signature string    `json:"signature,omitempty"`
	// Key is the fingerprint of the key, once a worker has verified the signature.
	Key string `json:"key,omitempty"`
}

// SignedDecision is the argument of VerifyActivity.
type SignedDecision struct {
	Statement activities.Statement `json:"statement"`
	Signature string               `json:"signature"`
}

// Resolution is the decision about an undo that was signed.
func (d SignedDecision) Resolution() compensations.Resolution {
	s := d.Statement
	return compensations.Resolution{Step: s.Step, Digest: s.Opening, Do: compensations.Do(s.Verdict), Who: s.Who,
		Why: s.Why, At: s.At, Signature: d.Signature, Task: s.Task}
}

// Proof is the result of VerifyActivity: the fingerprint of the key with which the person has signed
// that the statement names, or why that is not proved.
type Proof struct {
	Key     string `json:"key,omitempty"`
	Refusal string `json:"refusal,omitempty"`
}

// Statement is what is signed of a decision about the gate.
func (g GateView) Statement(task, verdict string, d Decision) activities.Statement {
	return activities.Statement{Task: task, Step: g.Step, Action: g.Action, Token: g.Token, Opening: g.Digest,
		Change: g.Change.Digest, Undo: g.Undo, Verdict: verdict, Who: d.Who, At: d.At, Why: d.Why}
}

// StatementOfEdit is what is signed of other parameters for the step at the gate.
func (g GateView) StatementOfEdit(task string, r Resolution) activities.Statement {
	return r.complete(activities.Statement{Task: task, Step: g.Step, Action: g.Action, Token: g.Token, Opening: g.Digest})
}

// Statement is what is signed of a decision about the park.
func (p ParkView) Statement(task string, r Resolution) activities.Statement {
	return r.complete(activities.Statement{Task: task, Step: p.Step, Action: p.Uses, Token: p.Token, Opening: p.Digest})
}

// complete returns the statement about what is decided with what is decided.
func (r Resolution) complete(s activities.Statement) activities.Statement {
	s.Verdict, s.Who, s.At, s.Why = string(r.Do), r.Who, r.At, r.Why
	if r.HasWith() {
		with, _ := json.Marshal(r.With) // as it is sent
		s.Change = activities.DigestOf(with)
	}
	return s
}

// Resolution is the payload of SignalResolve and the argument of UpdateResolve. It decides about an
// undo that is parked, about a step that is, or gives a step at a gate other parameters.
type Resolution struct {
	compensations.Resolution

	// With replaces the parameters of a parked step that is to run again, and of a step at a gate,
	// which is then planned and asked about anew.
	With json.RawMessage `json:"with,omitempty"`
}

// DoUnwind is the decision about a parked step to unwind the task. The others are
// compensations.Retry and compensations.Skip.
const DoUnwind compensations.Do = "unwind"

// DoEdit is the decision about a step at a gate to plan it anew with other parameters: nothing is
// approved by that.
const DoEdit compensations.Do = "edit"

// CheckUndo refuses what only fits a parked step.
func (r Resolution) CheckUndo() error {
	if r.HasWith() {
		return fmt.Errorf("with: step %q is not parked after a failure, so it takes no other parameters", r.Clip().Step)
	}
	return nil
}

func (r Resolution) HasWith() bool { return len(r.With) > 0 && string(r.With) != "null" }

// Updates that decide what waits for a person, in every task, recovery, rollback and redo. They
// mean the same as the signals of the same names and take the same arguments, and each answers with
// a DecisionAnswer once it has taken effect. One that decides nothing is refused with
// NothingDecided and leaves no trace in the history.
const (
	// UpdateApprove opens a gate: argument Decision.
	UpdateApprove = SignalApprove
	// UpdateReject ends the task at a gate: argument Decision.
	UpdateReject = SignalReject
	// UpdateResolve decides about an undo that is parked or waits for its host, or about a step that
	// is parked, or edits one at a gate: argument Resolution.
	UpdateResolve = compensations.SignalResolve
)

// NothingDecided is the type of the ApplicationError with which an update that decides nothing is
// refused: nothing waits at that step, or something other than the digest says. The message says
// which.
const NothingDecided = "NothingDecided"

// DecisionAnswer is what an update that decides has come to.
type DecisionAnswer struct {
	Step string `json:"step"`
	// State is that of the step behind its gate, or after its park.
	State StepState `json:"state,omitempty"`
	// Waits says whose approvals are still missing, where the rules of a worker ask for several.
	Waits string `json:"waits,omitempty"`
	// Undo is that of the undo that was decided about.
	Undo compensations.UndoState `json:"undo,omitempty"`
	// Phase is that of the task, and Cause why it goes no further.
	Phase Phase                `json:"phase"`
	Cause *compensations.Cause `json:"cause,omitempty"`
}

// RefuseDecision returns the error with which an update that decides nothing is refused; nil for
// nil.
func RefuseDecision(err error) error {
	if err == nil {
		return nil
	}
	return RefuseRequestf(NothingDecided, "%s", compensations.Reason(err))
}

// OrSomebody names who has decided something, as they claim.
func OrSomebody(who string) string {
	if who == "" {
		return "somebody"
	}
	return who
}

// What a gate's timer is called.
const (
	gatePrefix = "gate: "
	gateSuffix = " waits for approval"
)

// GateTimer is what the timer that limits a gate is called.
func GateTimer(step string) string { return gatePrefix + step + gateSuffix }

// GateOf returns the step whose gate a timer of that summary limits.
func GateOf(summary string) (step string, isGate bool) {
	step, isGate = strings.CutPrefix(strings.TrimSuffix(summary, gateSuffix), gatePrefix)
	return step, isGate
}

// Lapse says that a gate has closed because too few have approved in time.
func Lapse(who, step string, within time.Duration) string {
	return who + lapseOf(step) + within.String()
}

// IsLapse reports whether the error of a step says that its gate has lapsed.
func IsLapse(step, text string) bool { return strings.Contains(text, lapseOf(step)) }

func lapseOf(step string) string { return " approved step " + step + " within " }
