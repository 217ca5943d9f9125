package engine

import (
	"encoding/json"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// plain is the extension of a task that takes no steps while it runs. It refuses what only a
// session takes.
type plain struct{ *Task }

func (p plain) Attend(ctx workflow.Context) error {
	refuse := func(workflow.Context, converter.RawValue) error { return p.refuse() }
	for _, name := range protocol.SessionUpdates {
		if err := workflow.SetUpdateHandlerWithOptions(ctx, name, refuse,
			workflow.UpdateHandlerOptions{Validator: refuse}); err != nil {
			return err
		}
	}
	return workflow.SetQueryHandler(ctx, protocol.QueryAnswer,
		func(string) (protocol.Answer, error) { return protocol.Answer{}, p.refuse() })
}

func (p plain) refuse() error {
	return protocol.RefuseRequestf(protocol.NotASession,
		"task %q takes no steps while it runs: it has no session: in its document", p.Compiled.Name)
}

func (plain) Begin(workflow.Context) {}

func (plain) Carry(*protocol.Carry) {}

func (plain) Resume(workflow.Context, protocol.SessionCarry) {}

func (plain) Correct(string, json.RawMessage) {}

func (plain) TakeBack(*Rollback) {}

func (plain) View() *protocol.SessionView { return nil }

func (plain) Remarks() []string { return nil }
