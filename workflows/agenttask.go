package workflows

import (
	"encoding/json"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/sessions"
)

// AgentTask runs one task. Its argument is the task document as people write it, as JSON. It
// completes with a Report if every step succeeds; otherwise it unwinds and closes as Failed or
// Canceled, with the Report in the error's details. A long task continues as new and passes its
// Carry as the second argument.
func AgentTask(ctx workflow.Context, input, carry converter.RawValue) (compensations.Report, error) {
	return runAgentTask(ctx, input, carry, nil)
}

func runAgentTask(ctx workflow.Context, input, carry converter.RawValue, check engine.StepCheck) (compensations.Report,
	error) {
	var doc json.RawMessage
	unreadable := calls.ReadInput(input, &doc)
	t, err := engine.New(ctx, carry,
		engine.Variant{Extend: sessions.Of(doc, check), Check: check,
			ContinueAsNew: func(ctx workflow.Context, next json.RawMessage) error {
				return workflow.NewContinueAsNewError(ctx, protocol.AgentTaskType, json.RawMessage(nil), next)
			}})
	if err != nil {
		return compensations.Report{}, err
	}
	return t.Run(ctx, func(ctx workflow.Context) error {
		if unreadable != nil {
			return protocol.Refusef("the task document cannot be read: %v", unreadable)
		}
		compiled, err := calls.Compile(ctx, doc)
		if err != nil {
			return err
		}
		seen, err := calls.Preflight(ctx, compiled)
		if err == nil {
			err = seen.Refusal()
		}
		if err != nil {
			return err
		}
		for _, note := range seen.Unseen {
			t.AddNote(note)
		}
		compiled.FollowTouched(seen.Touched)
		t.AdoptSteps(ctx, compiled)
		return nil
	})
}
