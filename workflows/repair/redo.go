package repair

import (
	"encoding/json"
	"slices"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Redo repeats what a rollback has undone: exactly, from what the worlds have kept, or by running
// the steps again. It is a task like any other: it unwinds when it fails, and can be rolled back.
func Redo(ctx workflow.Context, input, carry converter.RawValue) (compensations.Report, error) {
	var r protocol.RedoRequest
	calls.DecodeInput("its argument", input, &r)
	t, err := engine.New(ctx, carry,
		engine.Variant{Redoes: true, ContinueAsNew: func(ctx workflow.Context, next json.RawMessage) error {
			return workflow.NewContinueAsNewError(ctx, protocol.RedoType, r, next)
		}})
	if err != nil {
		return compensations.Report{}, err
	}
	return t.Run(ctx, func(ctx workflow.Context) error {
		var before protocol.RedoInput
		options := calls.Options("read what was rolled back")
		if err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), protocol.RedoableActivity, r).Get(ctx,
			&before); err != nil {
			return err
		}
		compiled, err := calls.Compile(ctx, before.Document)
		if err != nil {
			return err
		}
		steps := compiled.Steps
		compiled.Steps = nil
		for _, s := range steps {
			if _, again := before.Tokens[s.ID]; again {
				place := before.Places[s.ID] // where its world has kept what it needs
				place.Signed = s.Place.Signed
				s.Place = place
				compiled.Steps = append(compiled.Steps, s)
			}
		}
		if compiled.Session != nil {
			return protocol.Refusef(
				"task %s is a session: its steps came from its agent, which may take them again in another one", r.Task.WorkflowID)
		}
		if len(compiled.Steps) == 0 {
			return protocol.Refusef("rollback %s has undone no step of task %s: there is nothing to redo", r.Rollback.WorkflowID,
				r.Task.WorkflowID)
		}
		if slices.ContainsFunc(compiled.Steps, func(s task.Step) bool { return s.Preflights }) {
			seen, err := calls.Preflight(ctx, compiled) // what it would refuse may be what the worlds have kept
			if err != nil {
				return err
			}
			compiled.FollowTouched(seen.Touched)
		}
		t.RepeatSteps(ctx, compiled, before)
		return nil
	})
}
