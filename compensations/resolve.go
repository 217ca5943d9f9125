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
)

// Resolution resolves one park of one step.
type Resolution struct {
	Step string `json:"step"`
	// Digest is the park's own: it fits what was shown, once.
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
	var it *item
	for _, i := range p.items {
		if i.entry.Step == r.Step {
			it = i
		}
	}
	switch {
	case it == nil:
		return fmt.Errorf("step %q is not in the ledger", r.Step)
	case it.state == Waiting && (r.Do == Retry || r.Do == Force):
		return fmt.Errorf("step %q is %s, and goes on by itself; skip or accept ends that", r.Step, it.reason)
	case it.state != Parked && it.state != Waiting:
		return fmt.Errorf("step %q is not parked; it is %s", r.Step, it.state)
	case r.Digest != it.parkDigest():
		return fmt.Errorf("digest %s is not that of the present park of step %q, %s", r.Digest.Short(), r.Step, it.parkDigest().Short())
	}
	switch r.Do {
	case Retry:
		it.state, it.decision, it.alone = Pending, activities.Decision{Who: r.Who, Why: r.Why}, true
	case Force:
		if it.undone.Outcome != activities.Drifted || it.undone.Drift == nil {
			return fmt.Errorf("step %q has not drifted: there is nothing to force; retry, skip or accept", r.Step)
		}
		it.state, it.decision = Pending, activities.Decision{Force: it.undone.Drift.Digest, Who: r.Who, Why: r.Why}
	case Skip:
		it.state = Skipped
	case Accept:
		it.state = Accepted
	default:
		return fmt.Errorf("do: %q is not one of retry, force, skip, accept", r.Do)
	}
	if it.cancel != nil {
		it.cancel()
	}
	note := fmt.Sprintf("%s by %s", r.Do, orSomebody(r.Who))
	if r.Why != "" {
		note += ": " + r.Why
	}
	it.notes = append(it.notes, note)
	return nil
}

func orSomebody(who string) string {
	if who == "" {
		return "somebody"
	}
	return who
}
