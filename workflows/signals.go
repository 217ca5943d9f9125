package workflows

import (
	"encoding/json"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// Decision is the payload of the signals approve and reject: {"step": ..., "digest": ..., "who": ..., "why": ...}.
type Decision struct {
	Step string `json:"step"`
	// Digest is that of the gate's present opening: it covers the change, the step's token and the number of the opening.
	Digest activities.Digest `json:"digest"`
	// Who is a claim; a bare signal proves nothing.
	Who string `json:"who,omitempty"`
	Why string `json:"why,omitempty"`
}

// decide gives a decision to the gate that it fits.
func (t *agentTask) decide(raw []byte, approved bool) error {
	var d Decision
	if err := json.Unmarshal(raw, &d); err != nil {
		return fmt.Errorf("the payload is not {step, digest, who, why}: %w", err)
	}
	d.Step, d.Who, d.Why = clip(d.Step, maxName), clip(d.Who, maxName), clip(d.Why, maxWhy)
	step := t.step(d.Step)
	switch {
	case step == nil:
		return fmt.Errorf("there is no step %q", d.Step)
	case step.gate == nil:
		return fmt.Errorf("step %q is not at a gate", d.Step)
	case step.gate.decision != nil:
		return fmt.Errorf("the gate of step %q is decided already", d.Step)
	case d.Digest != step.gate.view.Digest:
		return fmt.Errorf("digest %s is not that of the present gate of step %q, %s", d.Digest.Short(), d.Step, step.gate.view.Digest.Short())
	}
	step.gate.decision, step.gate.approved = &d, approved
	return nil
}

func (t *agentTask) resolve(raw []byte) error {
	r, err := compensations.ParseResolution(raw)
	if err != nil {
		return err
	}
	return t.saga.Resolve(r)
}

// Bounds on what signals can put into the history, the details and the report.
const (
	maxIgnored = 50
	maxName    = 200
	maxWhy     = 1000
)

func (t *agentTask) ignore(why string) {
	if len(t.ignored) >= maxIgnored {
		t.more++
		return
	}
	t.ignored = append(t.ignored, clip(why, maxWhy))
}
