package engine

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// attributes are the search attributes of a task, which are hints for lists and sweeps. Each upsert
// is an event, so they change only when a task opens, waits at a gate, unwinds or closes, and never
// per step.
type attributes struct {
	gate   string // the step at a gate; empty: none
	parked string // the step whose undo is parked; empty: none

	failing string // the first of what fails; empty: nothing does
}

// publishOpen sets the status if the client that started the task did not.
func (a *attributes) publishOpen(ctx workflow.Context) {
	a.gate, _ = workflow.GetTypedSearchAttributes(ctx).GetKeyword(protocol.AttributeGate)
	a.parked, _ = workflow.GetTypedSearchAttributes(ctx).GetKeyword(protocol.AttributeParked)
	a.failing, _ = workflow.GetTypedSearchAttributes(ctx).GetKeyword(protocol.AttributeFailing)
	if _, set := workflow.GetTypedSearchAttributes(ctx).GetKeyword(protocol.AttributeStatus); !set {
		calls.UpsertAttributes(ctx, protocol.AttributeStatus.ValueSet(string(compensations.Open)))
	}
}

func (a *attributes) publishAgent(ctx workflow.Context, agent string) {
	if _, set := workflow.GetTypedSearchAttributes(ctx).GetKeyword(protocol.AttributeAgent); !set && agent != "" {
		calls.UpsertAttributes(ctx, protocol.AttributeAgent.ValueSet(agent))
	}
}

// publishGate names the first step that waits at a gate; an empty step means none.
func (a *attributes) publishGate(ctx workflow.Context, step string) {
	switch step {
	case a.gate:
		return
	case "":
		calls.UpsertAttributes(ctx, protocol.AttributeGate.ValueUnset())
	default:
		calls.UpsertAttributes(ctx, protocol.AttributeGate.ValueSet(step))
	}
	a.gate = step
}

// publishParked names the first step whose undo waits for a person; empty: none does.
func (a *attributes) publishParked(ctx workflow.Context, step string) {
	switch step {
	case a.parked:
		return
	case "":
		calls.UpsertAttributes(ctx, protocol.AttributeParked.ValueUnset())
	default:
		calls.UpsertAttributes(ctx, protocol.AttributeParked.ValueSet(step))
	}
	a.parked = step
}

// publishFailing names the first of what fails. The details have the reason.
func (a *attributes) publishFailing(ctx workflow.Context, all []protocol.Trouble) {
	what := ""
	if len(all) > 0 {
		what = payload.Clip(all[0].What, payload.MaxName)
	}
	switch what {
	case a.failing:
		return
	case "":
		calls.UpsertAttributes(ctx, protocol.AttributeFailing.ValueUnset())
	default:
		calls.UpsertAttributes(ctx, protocol.AttributeFailing.ValueSet(what))
	}
	a.failing = what
}

func (a *attributes) publishPending(ctx workflow.Context, pending int) {
	calls.UpsertAttributes(ctx, protocol.AttributePending.ValueSet(int64(pending)))
}

func (a *attributes) publishClosed(ctx workflow.Context, status compensations.Status) {
	calls.UpsertAttributes(ctx, protocol.AttributeStatus.ValueSet(string(status)), protocol.AttributePending.ValueSet(0))
}
