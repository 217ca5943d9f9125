package protocol

import (
	"fmt"
	"time"

	"github.com/seed-62bf7108/unwind/workflows/payload"
)

// SessionView is a session in the answer to the query "state".
type SessionView struct {
	// Open says that it takes steps.
	Open       bool      `json:"open"`
	Savepoints []string  `json:"savepoints,omitempty"`
	Heard      time.Time `json:"heard"`
	// AgentGone: a person was asked because the agent is gone.
	AgentGone bool `json:"agentGone,omitempty"`
	// Contexts are those that the agent has given, the oldest first. Since are the last steps on the
	// ledger that came after the last one.
	Contexts []Context `json:"contexts,omitempty"`
	Since    []string  `json:"since,omitempty"`
	// Notes are the last ones that the agent has made, the oldest first.
	Notes []Note `json:"notes,omitempty"`
	// TakenBack is what was rolled back and can be redone, the oldest first.
	TakenBack []TakenBack `json:"takenBack,omitempty"`
}

// Note is what the agent of a session has noted for the people who look at it.
type Note struct {
	Text string `json:"text"`
	// After is the last step that was on the ledger; empty if there was none.
	After string    `json:"after,omitempty"`
	At    time.Time `json:"at"`
}

func (n Note) String() string {
	if n.After == "" {
		return "the agent noted: " + n.Text
	}
	return fmt.Sprintf("the agent noted after step %s: %s", n.After, n.Text)
}

// An agent that tries several ways from one savepoint puts each aside as a branch: a rollback that
// keeps what it takes back under a name, with what the agent thought of it. It compares them, and
// redoes the one that it chooses.

// Branch is the name of what a rollback has taken back, and what its agent thought of it.
type Branch struct {
	Name string `json:"name"`
	// Score is the agent's own, to compare branches by.
	Score *float64 `json:"score,omitempty"`
	Note  string   `json:"note,omitempty"`
}

func (b *Branch) IsNamed(name string) bool { return b != nil && b.Name == name }

// TakenBack is what a rollback of a session has taken back: UpdateRedo runs it again.
type TakenBack struct {
	// Request is the update that asked for the rollback; To and Step are what it named.
	Request string `json:"request"`
	To      string `json:"to,omitempty"`
	Step    string `json:"step,omitempty"`
	// Branch is the name that the rollback has given to it; nil for none. Chosen says that it was
	// redone, at least in part.
	Branch *Branch `json:"branch,omitempty"`
	Chosen bool    `json:"chosen,omitempty"`
	// Context is the last one that the agent had given in it.
	Context *Context `json:"context,omitempty"`
	// Steps are in the order in which they began. Those that had not begun are the last.
	Steps []TakenStep `json:"steps"`
}

// TakenStep is a step that was taken back.
type TakenStep struct {
	ID string `json:"id"`
	// Seq is that of its entry; 0 if it had none.
	Seq        int `json:"seq,omitempty"`
	Generation int `json:"generation,omitempty"`
	// Savepoint is the one that its entry bore.
	Savepoint string `json:"savepoint,omitempty"`
	// Marks is the one that it had made, of a session that has an environment.
	Marks string `json:"marks,omitempty"`
}

func (p TakenBack) Name() string {
	if p.Branch != nil {
		return NameRollback(p.Branch.Name, "", "")
	}
	return NameRollback("", p.To, p.Step)
}

func NameRollback(branch, to, step string) string {
	switch {
	case branch != "":
		return "of branch " + payload.Clip(branch, payload.MaxName)
	case to != "":
		return "to savepoint " + payload.Clip(to, payload.MaxName)
	}
	return "of step " + payload.Clip(step, payload.MaxName)
}
