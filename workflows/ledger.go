package workflows

import (
	"encoding/json"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/packed"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Ledger is the result of LedgerActivity: the entries that were asked for, and what is known of them. A long one is packed.
type Ledger struct {
	Entries []activities.Entry `json:"entries"`
	// Progress is what is known of entries whose undo has begun, by token; Past what became of those that are undone.
	Progress map[string]compensations.Progress `json:"left,omitempty"`
	Past     compensations.Past                `json:"past,omitzero"`
	// Unknown says that the ledger of a run which it was reset from could not be read.
	Unknown bool `json:"unknown,omitempty"`
	// Redoable says that it is that of a rollback: what its undos take away is kept.
	Redoable bool `json:"redoable,omitempty"`
	// Committed is how many steps stay done because the last pivot that is done stands behind them; Pivot is its place.
	Committed int `json:"kept,omitempty"`
	Pivot     int `json:"pivot,omitempty"`
	// Unwind is the order in which its task wants to be undone.
	Unwind task.UnwindMode `json:"unwind,omitempty"`
}

func (l Ledger) carry() compensations.Carry {
	return compensations.Carry{Entries: l.Entries, Progress: l.Progress, Past: l.Past}
}

type bareLedger Ledger

// MarshalJSON packs a long ledger.
func (l Ledger) MarshalJSON() ([]byte, error) { return packed.Marshal(bareLedger(l)) }

// UnmarshalJSON reads what MarshalJSON has written.
func (l *Ledger) UnmarshalJSON(raw []byte) error { return packed.Unmarshal(raw, (*bareLedger)(l)) }

// RedoInput is the result of RedoableActivity: what a redo must know of the task that was rolled back. A long one is packed.
type RedoInput struct {
	// Document is the task document.
	Document json.RawMessage `json:"document"`
	// Tokens and Places are those of the steps that were undone, by step.
	Tokens map[string]string           `json:"tokens"`
	Places map[string]activities.Place `json:"places"`
	// Outputs are those of the steps that were not undone.
	Outputs map[string]map[string]any `json:"outputs,omitempty"`
}

type bareRedoInput RedoInput

// MarshalJSON packs a long one.
func (r RedoInput) MarshalJSON() ([]byte, error) { return packed.Marshal(bareRedoInput(r)) }

// UnmarshalJSON reads what MarshalJSON has written.
func (r *RedoInput) UnmarshalJSON(raw []byte) error {
	return packed.Unmarshal(raw, (*bareRedoInput)(r))
}

// readLedger reads the ledger of a run that is over. No cancellation reaches it.
func readLedger(ctx workflow.Context, summary string, r LedgerRequest) (Ledger, error) {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	var ledger Ledger
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(calm, activityOptions(summary)), LedgerActivity, r).Get(calm, &ledger)
	return ledger, err
}

// activityOptions are those of activities that belong to no world. They may take long, and they heartbeat, so that the loss of
// a worker shows soon: a dead task waits to be unwound.
func activityOptions(summary string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		StartToCloseTimeout: 5 * time.Minute, HeartbeatTimeout: 30 * time.Second, Summary: summary,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	}
}
