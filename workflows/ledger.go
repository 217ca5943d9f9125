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

// Ledger is the result of LedgerActivity: the requested entries, and what is known of them. A long one is packed.
type Ledger struct {
	Entries []activities.Entry `json:"entries"`
	// Progress is what is known of entries whose undo has begun, by token; Past is what became of those that are undone.
	Progress map[string]compensations.Progress `json:"left,omitempty"`
	Past     compensations.Past                `json:"past,omitzero"`
	// Unknown means that the ledger of the run that this one was reset from could not be read.
	Unknown bool `json:"unknown,omitempty"`
	// Redoable means that the ledger is a rollback's: what its undos remove is kept.
	Redoable bool `json:"redoable,omitempty"`
	// Completed means that a run whose steps are on the ledger has completed: retention may have released records of them since.
	Completed bool `json:"completed,omitempty"`
	// Committed is how many steps stay done because a later pivot is done; Pivot is the sequence number of the last such pivot.
	Committed int `json:"kept,omitempty"`
	Pivot     int `json:"pivot,omitempty"`
	// Done are the entries whose forwards are known to have succeeded.
	Done []compensations.DoneRange `json:"done,omitempty"`
	// Results are what is known of their results, where their undos need it.
	Results compensations.Results `json:"results,omitempty"`
	// Unwind is the order in which the task is to be undone.
	Unwind task.UnwindMode `json:"unwind,omitempty"`
}

func (l Ledger) toCarry() compensations.Carry {
	return compensations.Carry{Entries: l.Entries, Progress: l.Progress, Past: l.Past, Done: l.Done, Results: l.Results}
}

// isWhole says that no undo of it has begun.
func (l Ledger) isWhole() bool { return l.Past.Count == 0 && len(l.Progress) == 0 }

type bareLedger Ledger

// MarshalJSON packs a long ledger.
func (l Ledger) MarshalJSON() ([]byte, error) { return packed.Marshal(bareLedger(l)) }

// UnmarshalJSON reads what MarshalJSON has written.
func (l *Ledger) UnmarshalJSON(raw []byte) error { return packed.Unmarshal(raw, (*bareLedger)(l)) }

// RedoInput is the result of RedoableActivity: what a redo must know of the rolled-back task. A long one is packed.
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

// readLedger reads the ledger of a closed run. Cancelling ctx does not stop it.
func readLedger(ctx workflow.Context, summary string, r LedgerRequest) (Ledger, error) {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	var ledger Ledger
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(calm, activityOptions(summary)), LedgerActivity, r).Get(calm, &ledger)
	return ledger, err
}

// activityOptions are the options of activities that belong to no world. These may take long, and they heartbeat, so that the
// loss of a worker shows soon: a dead task waits to be unwound.
func activityOptions(summary string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		StartToCloseTimeout: 5 * time.Minute, HeartbeatTimeout: 30 * time.Second, Summary: summary,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	}
}
