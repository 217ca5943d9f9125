package protocol

import (
	"encoding/json"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/packed"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Ledger is the result of LedgerActivity: the requested entries, and what is known of them. A long
// one is packed.
type Ledger struct {
	Entries []activities.Entry `json:"entries"`
	// Progress is what is known of entries whose undo has begun, by token; Past is what became of
	// those that are undone.
	Progress map[string]compensations.Progress `json:"left,omitempty"`
	Past     compensations.Past                `json:"past,omitzero"`
	// Unknown means that the ledger of the run that this one was reset from could not be read.
	Unknown bool `json:"unknown,omitempty"`
	// Redoable means that the ledger is a rollback's: what its undos remove is kept.
	Redoable bool `json:"redoable,omitempty"`
	// Completed means that a run whose steps are on the ledger has completed: retention may have
	// released records of them since.
	Completed bool `json:"completed,omitempty"`
	// Committed is how many steps stay done because a later pivot is done; Pivot is the sequence
	// number of the last such pivot.
	Committed int `json:"kept,omitempty"`
	Pivot     int `json:"pivot,omitempty"`
	// Done are the entries whose forwards are known to have succeeded.
	Done []compensations.DoneRange `json:"done,omitempty"`
	// Results are what is known of their results, where their undos need it.
	Results compensations.Results `json:"results,omitempty"`
	// Unwind is the order in which the task is to be undone.
	Unwind task.UnwindMode `json:"unwind,omitempty"`
}

func (l Ledger) ToCarry() compensations.Carry {
	return compensations.Carry{Entries: l.Entries, Progress: l.Progress, Past: l.Past, Done: l.Done, Results: l.Results}
}

// IsWhole says that no undo of it has begun.
func (l Ledger) IsWhole() bool { return l.Past.Count == 0 && len(l.Progress) == 0 }

type bareLedger Ledger

// MarshalJSON packs a long ledger.
func (l Ledger) MarshalJSON() ([]byte, error) { return packed.Marshal(bareLedger(l)) }

// UnmarshalJSON reads what MarshalJSON has written.
func (l *Ledger) UnmarshalJSON(raw []byte) error { return packed.Unmarshal(raw, (*bareLedger)(l)) }

// RedoInput is the result of RedoableActivity: what a redo must know of the rolled-back task. A
// long one is packed.
type RedoInput struct {
	// Document is the task document.
	Document json.RawMessage `json:"document"`
	// Tokens and Places belong to the steps that were undone, by step.
	Tokens map[string]string           `json:"tokens"`
	Places map[string]activities.Place `json:"places"`
	// Outputs belong to the steps that were not undone, by step.
	Outputs map[string]map[string]any `json:"outputs,omitempty"`
}

type bareRedoInput RedoInput

// MarshalJSON packs a long input.
func (r RedoInput) MarshalJSON() ([]byte, error) { return packed.Marshal(bareRedoInput(r)) }

// UnmarshalJSON reads what MarshalJSON has written.
func (r *RedoInput) UnmarshalJSON(raw []byte) error {
	return packed.Unmarshal(raw, (*bareRedoInput)(r))
}

// Part returns the part of a ledger that a rollback undoes: everything since a savepoint, or a step
// and all that builds on it. If neither is named, it is the whole ledger.
func Part(entries []activities.Entry, savepoint, step string) ([]activities.Entry, error) {
	from, found := 0, savepoint == "" && step == ""
	for _, e := range entries {
		if savepoint != "" && e.Savepoint == savepoint {
			from, found = e.Seq, true
		}
		found = found || step != "" && e.Step == step
	}
	switch {
	case !found && savepoint != "":
		return nil, fmt.Errorf("there is no savepoint %q on the ledger", savepoint)
	case !found:
		return nil, fmt.Errorf("there is no step %q on the ledger", step)
	case step == "":
		var part []activities.Entry
		for _, e := range entries {
			if e.Seq >= from {
				part = append(part, e)
			}
		}
		return part, nil
	}
	return compensations.Closure(entries, func(e activities.Entry) bool { return e.Step == step }), nil
}

// LateSweepRequest is the argument of LateSweep.
type LateSweepRequest struct {
	// Task is the workflow whose undos are checked, Round the number of this check.
	Task     string                  `json:"task"`
	Round    int                     `json:"round"`
	Rechecks []compensations.Recheck `json:"again,omitempty"`
}

type bareLateSweep LateSweepRequest

// MarshalJSON packs a long request.
func (r LateSweepRequest) MarshalJSON() ([]byte, error) { return packed.Marshal(bareLateSweep(r)) }

// UnmarshalJSON reads what MarshalJSON has written.
func (r *LateSweepRequest) UnmarshalJSON(raw []byte) error {
	return packed.Unmarshal(raw, (*bareLateSweep)(r))
}

// Places describe the worlds of a host, by name: the ids of their journals, and why some cannot be
// used.
type Places struct {
	Journals map[string]string `json:"journals"`
	Problems map[string]string `json:"problems,omitempty"`
	// Signed means that the host's worker takes only signed decisions.
	Signed bool `json:"signed,omitempty"`
}
