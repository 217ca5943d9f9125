package workflows

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Recover unwinds a run that ended without unwinding: it was terminated, it timed out, or the server ended it. It completes with
// the report that the run would have closed with. LedgerActivity refuses it a run that is not dead, or not its own to recover,
// so anybody may start it.
func Recover(ctx workflow.Context, input, carry converter.RawValue) (compensations.Report, error) {
	var r protocol.RecoverRequest
	decodeInput("its argument", input, &r)
	t, err := newTask(ctx, carry, variant{repairs: true, continueAsNew: func(ctx workflow.Context, next json.RawMessage) error {
		return workflow.NewContinueAsNewError(ctx, protocol.RecoverType, r, next)
	}})
	if err != nil {
		return compensations.Report{}, err
	}
	return t.run(ctx, func(ctx workflow.Context) error {
		ledger, err := readLedger(ctx, "read the ledger of the dead run", protocol.LedgerRequest{WorkflowID: r.WorkflowID, RunID: r.RunID})
		if err != nil {
			t.unknown = !isType(err, protocol.NotYours) // nobody knows what is left
			return err
		}
		t.redoable, t.unknown, t.pivot.committed, t.compiled.Unwind = ledger.Redoable, ledger.Unknown, ledger.Committed, ledger.Unwind
		t.configure(ctx)
		t.ending.cause = &compensations.Cause{Kind: compensations.Ended, Text: fmt.Sprintf("run %s of %s ended without unwinding: %s", r.RunID, r.WorkflowID, r.Ended)}
		if ledger.Redoable || ledger.Completed { // the task had ended before: what unwound it may have died before it held the records
			calm, done := workflow.NewDisconnectedContext(ctx)
			defer done()
			if err := t.troubles.holdRecords(calm, ledger.Entries); isType(err, activities.Refused) && ledger.IsWhole() {
				t.ending.cause.Text += "; " + compensations.Reason(err)
				return nil
			}
		}
		t.saga.Merge(ledger.ToCarry())
		return nil
	})
}

// Rollback undoes a committed task, or a part of it, in such a way that it can be redone: see Redo.
func Rollback(ctx workflow.Context, input, carry converter.RawValue) (compensations.Report, error) {
	var r protocol.RollbackRequest
	decodeInput("its argument", input, &r)
	t, err := newTask(ctx, carry, variant{repairs: true, continueAsNew: func(ctx workflow.Context, next json.RawMessage) error {
		return workflow.NewContinueAsNewError(ctx, protocol.RollbackType, r, next)
	}})
	if err != nil {
		return compensations.Report{}, err
	}
	return t.run(ctx, func(ctx workflow.Context) error {
		ledger, err := readLedger(ctx, "read the ledger of the task", r.Ledger())
		if err != nil {
			return err
		}
		if err := t.troubles.holdRecords(ctx, ledger.Entries); err != nil {
			return err
		}
		t.redoable, t.compiled.Unwind = true, ledger.Unwind
		t.configure(ctx)
		t.saga.Merge(compensations.Carry{Entries: ledger.Entries, Done: ledger.Done, Results: ledger.Results})
		t.ending.cause = &compensations.Cause{Kind: compensations.RolledBack, Step: r.Step, Text: describeRollback(r)}
		return nil
	})
}

func describeRollback(r protocol.RollbackRequest) string {
	text := "rolled back by " + protocol.OrSomebody(r.Who)
	if r.To != "" {
		text += " to savepoint " + r.To
	}
	if r.Why != "" {
		text += ": " + r.Why
	}
	return text
}

// Redo repeats what a rollback has undone: exactly, from what the worlds have kept, or by running the steps again. It is a task
// like any other: it unwinds when it fails, and can be rolled back.
func Redo(ctx workflow.Context, input, carry converter.RawValue) (compensations.Report, error) {
	var r protocol.RedoRequest
	decodeInput("its argument", input, &r)
	t, err := newTask(ctx, carry, variant{redoes: true, continueAsNew: func(ctx workflow.Context, next json.RawMessage) error {
		return workflow.NewContinueAsNewError(ctx, protocol.RedoType, r, next)
	}})
	if err != nil {
		return compensations.Report{}, err
	}
	return t.run(ctx, func(ctx workflow.Context) error {
		var before protocol.RedoInput
		options := activityOptions("read what was rolled back")
		if err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), protocol.RedoableActivity, r).Get(ctx, &before); err != nil {
			return err
		}
		compiled, err := compile(ctx, before.Document)
		if err != nil {
			return err
		}
		steps := compiled.Steps
		compiled.Steps = nil
		for _, s := range steps {
			if _, again := before.Tokens[s.ID]; again {
				s.Place = before.Places[s.ID] // where its world has kept what it needs
				compiled.Steps = append(compiled.Steps, s)
			}
		}
		if compiled.Session != nil {
			return protocol.Refusef("task %s is a session: its steps came from its agent, which may take them again in another one", r.Task.WorkflowID)
		}
		if len(compiled.Steps) == 0 {
			return protocol.Refusef("rollback %s has undone no step of task %s: there is nothing to redo", r.Rollback.WorkflowID, r.Task.WorkflowID)
		}
		if slices.ContainsFunc(compiled.Steps, func(s task.Step) bool { return s.Preflights }) {
			seen, err := preflight(ctx, compiled) // what it would refuse may be what the worlds have kept
			if err != nil {
				return err
			}
			compiled.FollowTouched(seen.Touched)
		}
		t.runner.redoes = before.Tokens
		maps.Copy(t.runner.outputs, before.Outputs)
		t.adoptSteps(ctx, compiled)
		return nil
	})
}
