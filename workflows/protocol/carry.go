package protocol

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/compensations/inbox"
	"github.com/seed-62bf7108/unwind/workflows/packed"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// CarryVersion is the only format of Carry that this code writes and reads. Formats 1 and 2 were
// never released.
const CarryVersion = 3

// Carry is a task as data: what a run hands to the next one of its chain. Together with what that
// run schedules, it is all that undoing needs. A Carry decoded from another version holds only its
// Version: see WrongVersion.
type Carry struct {
	Version int                  `json:"v"`
	Saga    compensations.Carry  `json:"saga"`
	Began   time.Time            `json:"began"`
	Phase   Phase                `json:"phase"`
	Cause   *compensations.Cause `json:"cause,omitempty"`
	// Compiled holds the steps that are not done, or may be repeated.
	Compiled task.Compiled `json:"compiled"`
	// Order is the order of the file: the ids of all steps, also of those that are over. A session has
	// none.
	Order []string `json:"order,omitempty"`
	// Steps are the states of those that have begun.
	Steps   map[string]StepCarry      `json:"steps,omitempty"`
	Outputs map[string]map[string]any `json:"outputs,omitempty"`
	Redoes  map[string]string         `json:"redoes,omitempty"`
	// Rollbacks are carried out in this order, before anything else is done.
	Rollbacks []RollbackCarry `json:"rollbacks,omitempty"`
	// Past are the ended steps that a report must mention.
	Past []StepView `json:"past,omitempty"`
	// Size is the number of steps in the whole task, Done the number that are done.
	Size int `json:"size,omitempty"`
	Done int `json:"done,omitempty"`
	// Pivot is the sequence number of the last pivot that is done; Committed is how many steps have
	// left the ledger for good.
	Pivot     int `json:"pivot,omitempty"`
	Committed int `json:"committed,omitempty"`
	// Unwound counts how often each step has unwound to its savepoint.
	Unwound map[string]int `json:"unwound,omitempty"`
	// Unknown means that the ledger of the run that the chain was reset from could not be read.
	Unknown bool `json:"unknown,omitempty"`
	// Session is nil for a task that takes no steps while it runs.
	Session *SessionCarry `json:"session,omitempty"`
	// Redoable means that what is undone is kept.
	Redoable bool          `json:"redoable,omitempty"`
	Ignored  inbox.Ignored `json:"ignored,omitzero"`
	Notes    []string      `json:"notes,omitempty"`
	// Alerts are those that nobody was told of yet, and Untold counts others that are not kept.
	Alerts []Alert `json:"alerts,omitempty"`
	Untold int     `json:"untold,omitempty"`

	size int // in bytes, as it was carried over
}

// Bytes is how large c was as it was carried over.
func (c Carry) Bytes() int { return c.size }

// PackedSize is about how large c would be.
func (c Carry) PackedSize() (int, error) { return packed.Size(bareCarry(c)) }

// StepCarry is the state of a step.
type StepCarry struct {
	State      StepState           `json:"state,omitempty"`
	Generation int                 `json:"generation,omitempty"`
	Seq        int                 `json:"seq,omitempty"`
	Openings   int                 `json:"openings,omitempty"`
	Approved   activities.Digest   `json:"approved,omitempty"`
	IsApproved bool                `json:"isApproved,omitempty"`
	Assents    []activities.Assent `json:"assents,omitempty"`
	Gate       *GateCarry          `json:"gate,omitempty"`
	Park       *ParkCarry          `json:"park,omitempty"`
	Corrected  bool                `json:"corrected,omitempty"`
	Edited     string              `json:"edited,omitempty"`
	Notes      []string            `json:"notes,omitempty"`
	Futile     FutileNotes         `json:"futile,omitzero"`
	// Refusals is how often the step's worker has refused standing approvals.
	Refusals int     `json:"refusals,omitempty"`
	Tried    []Tried `json:"tried,omitempty"`
	Error    string  `json:"error,omitempty"`
}

// FutileNotes are those notes of a step that tell of decisions which decided nothing.
type FutileNotes struct {
	// At are the places of the last ones among the notes.
	At []int `json:"at,omitempty"`
	// More is how many came before them, and Told the place of the note that says so.
	More int `json:"more,omitempty"`
	Told int `json:"told,omitempty"`
}

// GateCarry is an open gate. A signal may have decided it at the last moment.
type GateCarry struct {
	View     GateView  `json:"view"`
	Decision *Decision `json:"decision,omitempty"`
	Approved bool      `json:"approved,omitempty"`
}

// ParkCarry is a step that waits for a person. A signal may have decided it at the last moment.
type ParkCarry struct {
	View     ParkView    `json:"view"`
	Decision *Resolution `json:"decision,omitempty"`
}

// RollbackCarry is the rollback of a failed step.
type RollbackCarry struct {
	Step  string              `json:"step"`
	Cause compensations.Cause `json:"cause"`
	// Begun means that From is decided, and that some of it may be undone already.
	Begun bool `json:"begun,omitempty"`
	// From is the first sequence number that is undone.
	From int `json:"from"`
	// Request is the update of a session that asks for it; Undone is what became of the steps that it
	// has undone so far.
	Request string                     `json:"request,omitempty"`
	Undone  []compensations.StepReport `json:"undone,omitempty"`
	// To is the savepoint that it goes back to, Taken what it has taken back so far, Unfinished the
	// steps that it has kept from ending.
	To         string      `json:"to,omitempty"`
	Branch     *Branch     `json:"branch,omitempty"`
	Taken      []TakenStep `json:"taken,omitempty"`
	Unfinished []string    `json:"unfinished,omitempty"`
	// Then are the steps that a session does once all that is undone.
	Then []task.Step `json:"then,omitempty"`
	// Edited says that a person has edited the step, which then begins again.
	Edited bool `json:"edited,omitempty"`
}

type bareCarry Carry

// MarshalJSON packs a long carry.
func (c Carry) MarshalJSON() ([]byte, error) { return packed.Marshal(bareCarry(c)) }

// UnmarshalJSON reads what MarshalJSON has written. Of another version it reads only the version,
// so that the run waits for a worker of that version: an argument that cannot be decoded would end
// it with nothing undone.
func (c *Carry) UnmarshalJSON(raw []byte) error {
	*c = Carry{}
	err := packed.Unmarshal(raw, (*bareCarry)(c))
	if err == nil && c.Version == CarryVersion {
		c.size = len(raw)
		return nil
	}
	var header struct {
		Version int `json:"v"`
	}
	if err := packed.Unmarshal(raw, &header); err != nil {
		return err
	}
	if header.Version == CarryVersion {
		return err
	}
	*c = Carry{Version: header.Version}
	return nil
}

// WrongVersion says why this code cannot continue a run that was handed c, and the way out. It is
// empty if it can.
func (c Carry) WrongVersion() string {
	if c.Version == CarryVersion {
		return ""
	}
	wayOut := "run workers of the version that recorded it until its task is over"
	if c.Version > CarryVersion {
		wayOut = "upgrade this one"
	}
	return fmt.Sprintf(
		"recorded by a version that this one cannot undo: the run before handed it format %d, and this one knows %d; %s",
		c.Version, CarryVersion, wayOut)
}

// SessionCarry is the state of a session besides its steps, as data.
type SessionCarry struct {
	// Document is the document that opened the session, without steps.
	Document json.RawMessage   `json:"document"`
	Open     bool              `json:"open,omitempty"`
	Places   map[string]Places `json:"places,omitempty"`
	// Named counts the steps that were given an id; Used are the ids of all steps, and Seen those of
	// the last requests, 8 bytes of each.
	Named int    `json:"named,omitempty"`
	Used  []byte `json:"used,omitempty"`
	Seen  []byte `json:"seen,omitempty"`
	// Savepoints are the places by name; Bare is one that no entry bears yet.
	Savepoints map[string]int `json:"savepoints,omitempty"`
	Bare       string         `json:"bare,omitempty"`
	// Checkpoints are the steps that have taken the checkpoints of savepoints, by their names.
	Checkpoints map[string]string `json:"checkpoints,omitempty"`
	// Requests are those that are not over, Answers those to the last ones that are.
	Requests []RequestCarry `json:"requests,omitempty"`
	Answers  []Answer       `json:"answers,omitempty"`
	// Outputs are the ids of the steps whose outputs are kept, the oldest first.
	Outputs []string  `json:"outputs,omitempty"`
	Heard   time.Time `json:"heard"`
	Asked   bool      `json:"asked,omitempty"`
	// Dropped counts steps that a report leaves out.
	Dropped int `json:"dropped,omitempty"`
	// TakenBack is what can be redone, and Written are steps as they were written, by id. Released
	// says that some are no longer kept.
	Contexts  []Context                  `json:"contexts,omitempty"`
	Notes     []Note                     `json:"notes,omitempty"`
	Forgotten []Context                  `json:"forgotten,omitempty"` // that their hosts may still have
	TakenBack []TakenBack                `json:"takenBack,omitempty"`
	Written   map[string]json.RawMessage `json:"written,omitempty"`
	Released  bool                       `json:"released,omitempty"`
}

// RequestCarry is a request that is not over. Its rollback is in the RollbackCarry that names it.
type RequestCarry struct {
	ID     string                `json:"id"`
	Digest activities.Digest     `json:"digest"`
	Steps  []string              `json:"steps,omitempty"`
	Over   map[string]StepAnswer `json:"over,omitempty"`
	Ends   bool                  `json:"ends,omitempty"`
	Undoes bool                  `json:"undoes,omitempty"`
	// Context is that of the savepoint that it goes back to, Savepoint the one that it makes.
	Context   *Context `json:"context,omitempty"`
	Savepoint string   `json:"savepoint,omitempty"`
}
