package workflows

import (
	"fmt"
	"reflect"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// A reset run never goes forward. Every forward carries the id of the run that first scheduled it, and the worker refuses it in
// another run (activities.ResetRun). A run also checks for itself before it opens a gate, commits or unwinds, and whenever it waits for
// steps, people or the agent of a session: nothing that they do could change how it ends.

// changeReset is the version of a history in which a run that was reset unwinds as soon as it runs.
const changeReset = "unwind-a-reset-run-at-once"

// isReset reports whether the run is past the point that it was reset to. It adds nothing to the history of any other run.
func isReset(ctx workflow.Context) bool {
	if run := runOfEvents(ctx); run == "" || run == compensations.OriginalRun(ctx) {
		return false
	}
	return workflow.GetVersion(ctx, changeReset, workflow.DefaultVersion, 1) == 1
}

// runOfEvents returns the id of the run that recorded the events that the workflow sees now: that of the original run until the reset
// point, also when another run replays them. The SDK names children after it, but does not export it. It is empty if the SDK no
// longer has it: a run that waits then does not notice its reset, and is still refused every forward.
func runOfEvents(ctx workflow.Context) string {
	run := reflect.ValueOf(workflow.GetInfo(ctx)).Elem().FieldByName("currentRunID")
	if run.Kind() != reflect.String {
		return ""
	}
	return run.String()
}

// wasReset returns the cause to unwind if this run was reset from another; nil if it was not.
func wasReset(ctx workflow.Context) *compensations.Cause {
	// A side effect, because the result recorded before the reset point holds the id of the run that recorded it.
	var own string
	err := workflow.SideEffect(ctx, func(ctx workflow.Context) any {
		return workflow.GetInfo(ctx).WorkflowExecution.RunID
	}).Get(&own)
	original := compensations.OriginalRun(ctx)
	if err == nil && own == original {
		return nil
	}
	return causeOfReset(own, original)
}

func causeOfReset(run, original string) *compensations.Cause {
	return &compensations.Cause{Kind: compensations.WasReset, Text: fmt.Sprintf("run %s was reset from %s; a reset run only unwinds", run, original)}
}

// takeOverLedger adds what the original run had registered after the reset point to the ledger. It returns false if that can
// never be known.
func (t *agentTask) takeOverLedger(ctx workflow.Context, reset *compensations.Cause) bool {
	ledger, err := readLedger(ctx, "read the ledger of the run that was reset", LedgerRequest{
		WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID, RunID: compensations.OriginalRun(ctx),
	})
	if err != nil { // final: its history is gone
		t.notes = append(t.notes, fmt.Sprintf("%s; the ledger of the original could not be read, so steps that it started after the reset point are not undone: %s",
			reset.Text, compensations.Reason(err)))
		return false
	}
	isThere := map[string]bool{}
	for _, e := range ledger.Entries {
		isThere[e.Token] = true
	}
	t.saga.CommitEntries(func(e activities.Entry) bool { return e.Seq <= ledger.Pivot && !isThere[e.Token] })
	t.pivot.committed = max(t.pivot.committed, ledger.Committed)
	t.saga.Merge(ledger.toCarry())
	if ledger.Completed {
		t.holdReset(ctx, ledger)
	}
	return !ledger.Unknown
}

// holdReset holds the records of a task that was reset after it had completed. Where some are released, everything stays as it is.
func (t *agentTask) holdReset(ctx workflow.Context, original Ledger) {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := holdRecords(calm, t.saga.Entries()); isType(err, activities.Refused) && original.isWhole() {
		t.notes = append(t.notes, "everything stays as the task had left it: "+compensations.Reason(err))
		t.pivot.committed += len(t.saga.Entries())
		t.saga.CommitEntries(func(activities.Entry) bool { return true })
	}
}
