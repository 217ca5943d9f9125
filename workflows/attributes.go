package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
)

// OpenAttributes are what a client starts a task with: it is open from its first event on.
func OpenAttributes(agent string) temporal.SearchAttributes {
	updates := []temporal.SearchAttributeUpdate{AttributeStatus.ValueSet(string(compensations.Open))}
	if agent != "" {
		updates = append(updates, AttributeAgent.ValueSet(agent))
	}
	return temporal.NewSearchAttributes(updates...)
}

// attributes are the search attributes of a task: hints for lists and sweeps. Each upsert is an event, so they change when a
// task opens, waits at a gate, unwinds and closes, never per step.
type attributes struct {
	gate string // the step at a gate; empty: none
}

// publishOpen sets the status where the client that started the task did not.
func (a *attributes) publishOpen(ctx workflow.Context) {
	a.gate, _ = workflow.GetTypedSearchAttributes(ctx).GetKeyword(AttributeGate)
	if _, set := workflow.GetTypedSearchAttributes(ctx).GetKeyword(AttributeStatus); !set {
		upsert(ctx, AttributeStatus.ValueSet(string(compensations.Open)))
	}
}

func (a *attributes) publishAgent(ctx workflow.Context, agent string) {
	if _, set := workflow.GetTypedSearchAttributes(ctx).GetKeyword(AttributeAgent); !set && agent != "" {
		upsert(ctx, AttributeAgent.ValueSet(agent))
	}
}

// publishGate names the first step that waits at a gate; empty: none does.
func (a *attributes) publishGate(ctx workflow.Context, step string) {
	switch step {
	case a.gate:
		return
	case "":
		upsert(ctx, AttributeGate.ValueUnset())
	default:
		upsert(ctx, AttributeGate.ValueSet(step))
	}
	a.gate = step
}

func (a *attributes) publishPending(ctx workflow.Context, pending int) {
	upsert(ctx, AttributePending.ValueSet(int64(pending)))
}

func (a *attributes) publishClosed(ctx workflow.Context, status compensations.Status) {
	upsert(ctx, AttributeStatus.ValueSet(string(status)), AttributePending.ValueSet(0))
}

func upsert(ctx workflow.Context, updates ...temporal.SearchAttributeUpdate) {
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		workflow.GetLogger(ctx).Warn("search attributes not set", "error", err)
	}
}
