package workflows

import (
	"encoding/json"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/packed"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// A reset never goes forward. Every forward carries the id of the run that first scheduled it, and the worker refuses it
// in another run (activities.ResetRun). Before it opens a gate, commits or unwinds, a run looks for itself.

// wasReset is the cause where this run was reset from another.
func wasReset(ctx workflow.Context) *compensations.Cause {
	// A side effect, since what was recorded before the reset point holds the id of the run that recorded it.
	var own string
	err := workflow.SideEffect(ctx, func(ctx workflow.Context) any {
		return workflow.GetInfo(ctx).WorkflowExecution.RunID
	}).Get(&own)
	original := compensations.OriginalRun(ctx)
	if err == nil && own == original {
		return nil
	}
	return &compensations.Cause{Kind: compensations.WasReset, Text: fmt.Sprintf("run %s was reset from %s; a reset run only unwinds", own, original)}
}

// takeOver adds to the ledger what the original run had registered after the reset point. It is false where that can
// never be known.
func (t *agentTask) takeOver(ctx workflow.Context, reset *compensations.Cause) bool {
	ledger, err := readLedger(ctx, "read the ledger of the run that was reset", LedgerRequest{
		WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID, RunID: compensations.OriginalRun(ctx),
	})
	if err != nil { // final: its history is gone
		t.notes = append(t.notes, fmt.Sprintf("%s; the ledger of the original could not be read, so steps that it started after the reset point are not undone: %s",
			reset.Text, compensations.Reason(err)))
		return false
	}
	there := map[string]bool{}
	for _, e := range ledger.Entries {
		there[e.Token] = true
	}
	t.saga.Keep(func(e activities.Entry) bool { return e.Seq <= ledger.Pivot && !there[e.Token] })
	t.kept = max(t.kept, ledger.Kept)
	t.saga.TakeUp(ledger.carried())
	return !ledger.Unknown
}

// Ledger is the result of LedgerActivity. A long one is packed.
type Ledger struct {
	Entries []activities.Entry `json:"entries"`
	// Cut says that Entries are the part that was asked for. A worker that knows no parts hands over the whole.
	Cut bool `json:"cut,omitempty"`
	// Left is what is known of entries whose undo has begun, by token; Past what became of those that are undone.
	Left map[string]compensations.Left `json:"left,omitempty"`
	Past compensations.Past            `json:"past,omitzero"`
	// Unknown says that the ledger of a run which it was reset from could not be read.
	Unknown bool `json:"unknown,omitempty"`
	// Redoable says that it is that of a rollback: what its undos take away is kept.
	Redoable bool `json:"redoable,omitempty"`
	// Kept is how many steps stay done, for they are not behind the last pivot that is done; Pivot is its place.
	Kept  int `json:"kept,omitempty"`
	Pivot int `json:"pivot,omitempty"`
	// Unwind is the order in which its task wants to be undone.
	Unwind task.UnwindMode `json:"unwind,omitempty"`
}

func (l Ledger) carried() compensations.Carried {
	return compensations.Carried{Entries: l.Entries, Left: l.Left, Past: l.Past}
}

type bareLedger Ledger

// MarshalJSON packs a long ledger.
func (l Ledger) MarshalJSON() ([]byte, error) { return packed.Marshal(bareLedger(l)) }

// UnmarshalJSON reads what MarshalJSON has written.
func (l *Ledger) UnmarshalJSON(raw []byte) error { return packed.Unmarshal(raw, (*bareLedger)(l)) }

// Redoable is the result of RedoableActivity: what a rolled back task was. A long one is packed.
type Redoable struct {
	// Document is the task document.
	Document json.RawMessage `json:"document"`
	// Tokens and Places are those of the steps that were undone, by step.
	Tokens map[string]string           `json:"tokens"`
	Places map[string]activities.Place `json:"places"`
	// Outputs are those of the steps that were not.
	Outputs map[string]map[string]any `json:"outputs,omitempty"`
}

type bareRedoable Redoable

// MarshalJSON packs a long one.
func (r Redoable) MarshalJSON() ([]byte, error) { return packed.Marshal(bareRedoable(r)) }

// UnmarshalJSON reads what MarshalJSON has written.
func (r *Redoable) UnmarshalJSON(raw []byte) error { return packed.Unmarshal(raw, (*bareRedoable)(r)) }
