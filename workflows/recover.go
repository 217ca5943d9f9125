package workflows

import (
	"encoding/json"
	"fmt"
	"maps"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// Recover unwinds a run that ended without unwinding: it was terminated, it timed out, or the server ended it. It completes
// with the report that the run would have closed with. Whoever starts it: LedgerActivity hands it nothing of a run that is not
// dead, or that is not its own to recover.
func Recover(ctx workflow.Context, input, carry converter.RawValue) (compensations.Report, error) {
	var r RecoverRequest
	decodeInput("its argument", input, &r)
	t, err := newTask(ctx, carry, variant{repairs: true, continueAsNew: func(ctx workflow.Context, next json.RawMessage) error {
		return workflow.NewContinueAsNewError(ctx, RecoverType, r, next)
	}})
	if err != nil {
		return compensations.Report{}, err
	}
	return t.run(ctx, func(ctx workflow.Context) error {
		ledger, err := readLedger(ctx, "read the ledger of the dead run", LedgerRequest{WorkflowID: r.WorkflowID, RunID: r.RunID})
		if err != nil {
			t.unknown = !isType(err, NotYours) // nobody knows what is left
			return err
		}
		t.redoable, t.unknown, t.pivot.committed, t.compiled.Unwind = ledger.Redoable, ledger.Unknown, ledger.Committed, ledger.Unwind
		t.configure(ctx)
		t.saga.Merge(ledger.carry())
		t.ending.cause = &compensations.Cause{Kind: compensations.Ended, Text: fmt.Sprintf("run %s of %s ended without unwinding: %s", r.RunID, r.WorkflowID, r.Ended)}
		return nil
	})
}

// Rollback undoes a task that has committed, or a part of it, so that it can be done again: see Redo.
func Rollback(ctx workflow.Context, input, carry converter.RawValue) (compensations.Report, error) {
	var r RollbackRequest
	decodeInput("its argument", input, &r)
	t, err := newTask(ctx, carry, variant{repairs: true, continueAsNew: func(ctx workflow.Context, next json.RawMessage) error {
		return workflow.NewContinueAsNewError(ctx, RollbackType, r, next)
	}})
	if err != nil {
		return compensations.Report{}, err
	}
	return t.run(ctx, func(ctx workflow.Context) error {
		ledger, err := readLedger(ctx, "read the ledger of the task", r.Ledger())
		if err != nil {
			return err
		}
		t.redoable, t.compiled.Unwind = true, ledger.Unwind
		t.configure(ctx)
		t.saga.Adopt(ledger.Entries)
		t.ending.cause = &compensations.Cause{Kind: compensations.RolledBack, Step: r.Step, Text: describeRollback(r)}
		return nil
	})
}

func describeRollback(r RollbackRequest) string {
	text := "rolled back by " + orSomebody(r.Who)
	if r.To != "" {
		text += " to savepoint " + r.To
	}
	if r.Why != "" {
		text += ": " + r.Why
	}
	return text
}

// Part is the part of a ledger that a rollback undoes: everything since a savepoint, or a step and all that builds on it; with
// neither, the whole ledger.
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

// Redo does again what a rollback has undone: exactly, from what the worlds have kept, or anew. It is a task like any other: it
// unwinds when it fails, and can be rolled back.
func Redo(ctx workflow.Context, input, carry converter.RawValue) (compensations.Report, error) {
	var r RedoRequest
	decodeInput("its argument", input, &r)
	t, err := newTask(ctx, carry, variant{redoes: true, continueAsNew: func(ctx workflow.Context, next json.RawMessage) error {
		return workflow.NewContinueAsNewError(ctx, RedoType, r, next)
	}})
	if err != nil {
		return compensations.Report{}, err
	}
	return t.run(ctx, func(ctx workflow.Context) error {
		var before RedoInput
		options := activityOptions("read what was rolled back")
		if err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), RedoableActivity, r).Get(ctx, &before); err != nil {
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
				s.Place = before.Places[s.ID] // where what was kept is
				compiled.Steps = append(compiled.Steps, s)
			}
		}
		if len(compiled.Steps) == 0 {
			return refused("rollback %s has undone no step of task %s: there is nothing to redo", r.Rollback.WorkflowID, r.Task.WorkflowID)
		}
		t.runner.redoes = before.Tokens
		maps.Copy(t.runner.outputs, before.Outputs)
		t.adoptSteps(ctx, compiled)
		return nil
	})
}
