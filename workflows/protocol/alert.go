package protocol

import (
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// Alert describes what needs a person: a step at its gate, an undo that is parked or waits for its
// host.
type Alert struct {
	Task   string                  `json:"task"`
	Run    string                  `json:"run"`
	Step   string                  `json:"step"`
	Action string                  `json:"action"`
	State  compensations.UndoState `json:"state"`
	Reason string                  `json:"reason"`
	Digest activities.Digest       `json:"digest,omitempty"`
	// At is when it began to wait.
	At time.Time `json:"at"`
	// Summary, Risk, Groups (whose approval the rules ask for) and Until are those of a gate.
	Summary string          `json:"summary,omitempty"`
	Risk    activities.Risk `json:"risk,omitempty"`
	Groups  []string        `json:"groups,omitempty"`
	Until   time.Time       `json:"until,omitzero"`
}

// ID is the same each time that people are told of the same.
func (a Alert) ID() string {
	digest := activities.DigestOf([]byte(a.Task), []byte(a.Step), []byte(a.State), []byte(a.Digest))
	if a.Digest == "" {
		digest = activities.DigestOf([]byte(digest), []byte(a.At.UTC().Format(time.RFC3339Nano)))
	}
	return digest.Short()
}

// Gated is the state in an Alert about a step that waits for approval.
const Gated compensations.UndoState = "at-gate"

// Failing is the state in an Alert about a Trouble.
const Failing compensations.UndoState = "failing"

// A run that is long hands the task to the next one. Where it cannot, because that would be too
// large for a payload even with short texts, it is stuck: it stays, starts no step, and says why. A
// person is alerted. What makes it smaller goes on, and it tries again after that: a session can
// roll back a part. It can be canceled, aborted or finished, and unwinds in this run, as far as it
// has to.

// Stuck is the state in an Alert of a task that cannot go on.
const Stuck compensations.UndoState = "stuck"

// AgentGone is the state in an Alert of a session whose agent is gone.
const AgentGone compensations.UndoState = "agent-gone"
