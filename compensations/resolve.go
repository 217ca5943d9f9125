package compensations

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// SignalResolve is the signal that resolves a parked undo; its payload is a Resolution.
const SignalResolve = "resolve"

// Do is what a person decides about a parked undo.
type Do string

// The ways out of a park.
const (
	Retry  Do = "retry"  // undo it again
	Force  Do = "force"  // overwrite exactly the drift that was shown
	Skip   Do = "skip"   // leave it; what it needs goes on waiting
	Accept Do = "accept" // leave the world as it is; what it needs goes on
	Reset  Do = "reset"  // put the resource back to its known start, whatever that loses; not every action can
)

// Resolution resolves one park of one step.
type Resolution struct {
	Step string `json:"step"`
	// Digest identifies the park: it fits what was shown, once.
	Digest activities.Digest `json:"digest"`
	Do     Do                `json:"do"`
	// Who is a claim unless it is signed: a bare signal proves nothing.
	Who string `json:"who,omitempty"`
	Why string `json:"why,omitempty"`
	// At and Signature are those of a signed decision: see StepReport.Statement. Task is the workflow
	// that it was sent to, and Key the fingerprint of the key; the workflow fills them in.
	At        time.Time `json:"at,omitzero"`
	Signature string    `json:"signature,omitempty"`
	Task      string    `json:"task,omitempty"`
	Key       string    `json:"key,omitempty"`
}

// ParseResolution reads the payload of SignalResolve.
func ParseResolution(raw []byte) (Resolution, error) {
	var r Resolution
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("the payload is not {step, digest, do, who, why}: %w", err)
	}
	r.Task, r.Key = "", "" // not for the sender to say
	return r.Clip(), nil
}

// Clip returns r with its texts cut to what a history and a report have room for. A signature that is
// too long for one is none.
func (r Resolution) Clip() Resolution {
	if len(r.Signature) > activities.MaxSignature {
		r.Signature = ""
	}
	r.Step, r.Do, r.Who, r.Why = clip(r.Step, maxName), Do(clip(string(r.Do), maxName)), clip(r.Who, maxName),
		clip(r.Why, maxWhy)
	return r
}

// Bounds on what a decision may put into the history and the report.
const (
	maxName = 200
	maxWhy  = 1000
)

// clip keeps a text within n bytes, which reports are bounded by.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}

func (p *plan) findItem(step string) (*item, error) {
	if it := p.byStep[step]; it != nil {
		return it, nil
	}
	return nil, fmt.Errorf("step %q is not in the ledger", step)
}

// resolvePark applies a resolution. An error says why it decides nothing and has changed nothing.
func (p *plan) resolvePark(r Resolution) error {
	it, err := p.findItem(r.Step)
	if err != nil {
		return err
	}
	next, err := it.applyResolution(r)
	if err != nil {
		return err
	}
	if it.state == Waiting {
		it.chosen = next
		it.cancel()
		return nil
	}
	p.setState(it, next)
	return nil
}

// checkResolution returns the state that a resolution of the item's present park leads to. An error
// says why it decides nothing.
func (it *item) checkResolution(r Resolution) (UndoState, error) {
	switch {
	case it.chosen != "":
		return "", fmt.Errorf("step %q is being %s already", r.Step, it.chosen)
	case it.state == Waiting && (r.Do == Retry || r.Do == Force || r.Do == Reset):
		return "", fmt.Errorf("step %q is %s, and goes on by itself; skip or accept ends that", r.Step, it.Reason)
	case it.state != Parked && it.state != Waiting:
		return "", fmt.Errorf("step %q is not parked; it is %s", r.Step, it.state)
	case r.Digest != it.parkDigest():
		return "", fmt.Errorf("digest %s is not that of the present park of step %q, %s", r.Digest.Short(), r.Step,
			it.parkDigest().Short())
	case r.Do == Force && (it.Undone.Outcome != activities.Drifted || it.Undone.Drift == nil):
		return "", fmt.Errorf("step %q has not drifted: there is nothing to force; retry, skip or accept", r.Step)
	}
	switch r.Do {
	case Retry, Force, Reset:
		return Pending, nil
	case Skip:
		return Skipped, nil
	case Accept:
		return Accepted, nil
	}
	return "", fmt.Errorf("do: %q is not one of retry, force, skip, accept, reset", r.Do)
}

// applyResolution records a resolution that fits the item's present park, and returns the item's
// next state.
func (it *item) applyResolution(r Resolution) (UndoState, error) {
	next, err := it.checkResolution(r)
	if err != nil {
		return "", err
	}
	switch r.Do {
	case Retry:
		it.Decision, it.Reset, it.Alone = activities.Decision{Who: r.Who, Why: r.Why}, false, true
	case Force:
		it.force(*it.Undone.Drift, r.Who, r.Why)
		it.Decision.Signing, it.Reset = it.signingOf(r), false
	case Reset:
		it.Decision, it.Reset, it.Alone = activities.Decision{Who: r.Who, Why: r.Why, Signing: it.signingOf(r)}, true, true
	}
	note := fmt.Sprintf("%s by %s", r.Do, activities.Signer(orSomebody(r.Who), r.Key))
	if r.Why != "" {
		note += ": " + r.Why
	}
	it.Notes = append(it.Notes, note)
	return next, nil
}

// signingOf is how a resolution was signed, for the worker that carries it out; nil if it was not.
func (it *item) signingOf(r Resolution) *activities.Signing {
	if r.Signature == "" {
		return nil
	}
	change := it.report().Statement(r.Task, r).Change
	return &activities.Signing{Task: r.Task, Opening: r.Digest, Change: change, At: r.At, Signature: r.Signature}
}

// Statement is what is signed of a resolution of the park.
func (s StepReport) Statement(task string, r Resolution) activities.Statement {
	statement := activities.Statement{Task: task, Step: s.Step, Action: s.Action, Token: s.Token, Opening: s.Digest,
		Verdict: string(r.Do), Who: r.Who, At: r.At, Why: r.Why}
	if s.Drift != nil {
		statement.Change = s.Drift.Digest
	}
	return statement
}

func orSomebody(who string) string {
	if who == "" {
		return "somebody"
	}
	return who
}
