package repair

import (
	"encoding/json"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Rollback undoes a committed task, or a part of it, in such a way that it can be redone: see Redo.
func Rollback(ctx workflow.Context, input, carry converter.RawValue) (compensations.Report, error) {
	var r protocol.RollbackRequest
	calls.DecodeInput("its argument", input, &r)
	t, err := engine.New(ctx, carry,
		engine.Variant{Repairs: true, ContinueAsNew: func(ctx workflow.Context, next json.RawMessage) error {
			return workflow.NewContinueAsNewError(ctx, protocol.RollbackType, r, next)
		}})
	if err != nil {
		return compensations.Report{}, err
	}
	return t.Run(ctx, func(ctx workflow.Context) error {
		ledger, err := calls.ReadLedger(ctx, "read the ledger of the task", r.Ledger())
		if err != nil {
			return err
		}
		if err := t.HoldRecords(ctx, ledger.Entries); err != nil {
			return err
		}
		t.TakeUp(ctx, protocol.Ledger{Redoable: true, Unwind: ledger.Unwind})
		t.Saga.Merge(compensations.Carry{Entries: ledger.Entries, Done: ledger.Done, Results: ledger.Results})
		t.Ending.Cause = &compensations.Cause{Kind: compensations.RolledBack, Step: r.Step, Text: describeRollback(r)}
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
