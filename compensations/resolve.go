package compensations

import (
	"encoding/json"
	"fmt"
	"strings"

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
	Skip   Do = "skip"   // leave it; what it needs waits on
	Accept Do = "accept" // take the world as it is; what it needs goes on
	Reset  Do = "reset"  // put the resource back to its known start, whatever that loses; not every action can
)

// Resolution resolves one park of one step.
type Resolution struct {
	Step string `json:"step"`
	// Digest is that of the park: it fits what was shown, once.
	Digest activities.Digest `json:"digest"`
	Do     Do                `json:"do"`
	// Who is a claim; a bare signal proves nothing.
	Who string `json:"who,omitempty"`
	Why string `json:"why,omitempty"`
}

// ParseResolution reads the payload of SignalResolve.
func ParseResolution(raw []byte) (Resolution, error) {
	var r Resolution
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("the payload is not {step, digest, do, who, why}: %w", err)
	}
	r.Step, r.Do, r.Who, r.Why = clip(r.Step, maxName), Do(clip(string(r.Do), maxName)), clip(r.Who, maxName), clip(r.Why, maxWhy)
	return r, nil
}

// Bounds on what a signal may put into the history and the report.
const (
	maxName = 200
	maxWhy  = 1000
)

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}

// resolve applies a resolution. An error says why it decides nothing; nothing is changed then.
func (p *plan) resolve(r Resolution) error {
	it := p.byStep[r.Step]
	if it == nil {
		return fmt.Errorf("step %q is not in the ledger", r.Step)
	}
	next, err := it.decide(r)
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

// decide records a resolution that fits the item's present park, and returns the state that it puts the item into.
func (it *item) decide(r Resolution) (UndoState, error) {
	switch {
	case it.chosen != "":
		return "", fmt.Errorf("step %q is being %s already", r.Step, it.chosen)
	case it.state == Waiting && (r.Do == Retry || r.Do == Force || r.Do == Reset):
		return "", fmt.Errorf("step %q is %s, and goes on by itself; skip or accept ends that", r.Step, it.Reason)
	case it.state != Parked && it.state != Waiting:
		return "", fmt.Errorf("step %q is not parked; it is %s", r.Step, it.state)
	case r.Digest != it.parkDigest():
		return "", fmt.Errorf("digest %s is not that of the present park of step %q, %s", r.Digest.Short(), r.Step, it.parkDigest().Short())
	}
	next := Pending
	switch r.Do {
	case Retry:
		it.Decision, it.Reset, it.Alone = activities.Decision{Who: r.Who, Why: r.Why}, false, true
	case Force:
		if it.Undone.Outcome != activities.Drifted || it.Undone.Drift == nil {
			return "", fmt.Errorf("step %q has not drifted: there is nothing to force; retry, skip or accept", r.Step)
		}
		it.Decision, it.Reset = activities.Decision{Force: it.Undone.Drift.Digest, Who: r.Who, Why: r.Why}, false
	case Reset:
		it.Decision, it.Reset, it.Alone = activities.Decision{Who: r.Who, Why: r.Why}, true, true
	case Skip:
		next = Skipped
	case Accept:
		next = Accepted
	default:
		return "", fmt.Errorf("do: %q is not one of retry, force, skip, accept, reset", r.Do)
	}
	note := fmt.Sprintf("%s by %s", r.Do, orSomebody(r.Who))
	if r.Why != "" {
		note += ": " + r.Why
	}
	it.Notes = append(it.Notes, note)
	return next, nil
}

func orSomebody(who string) string {
	if who == "" {
		return "somebody"
	}
	return who
}
