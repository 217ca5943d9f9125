package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
)

// Search attributes are hints for lists and sweeps. Each upsert is an event, so they change when a task opens, waits at a
// gate, unwinds and closes: never per step.

// OpenAttributes are what a client starts a task with: it is open from its first event on.
func OpenAttributes(agent string) temporal.SearchAttributes {
	updates := []temporal.SearchAttributeUpdate{AttributeStatus.ValueSet(string(compensations.Open))}
	if agent != "" {
		updates = append(updates, AttributeAgent.ValueSet(agent))
	}
	return temporal.NewSearchAttributes(updates...)
}

// publishOpen sets the status where the client that started the task did not.
func (t *agentTask) publishOpen(ctx workflow.Context) {
	t.shownGate, _ = workflow.GetTypedSearchAttributes(ctx).GetKeyword(AttributeGate)
	if _, set := workflow.GetTypedSearchAttributes(ctx).GetKeyword(AttributeStatus); !set {
		t.upsert(ctx, AttributeStatus.ValueSet(string(compensations.Open)))
	}
}

func (t *agentTask) publishAgent(ctx workflow.Context) {
	if _, set := workflow.GetTypedSearchAttributes(ctx).GetKeyword(AttributeAgent); !set && t.compiled.Agent != "" {
		t.upsert(ctx, AttributeAgent.ValueSet(t.compiled.Agent))
	}
}

// publishGate names the first step that waits at a gate, in file order.
func (t *agentTask) publishGate(ctx workflow.Context) {
	waits := ""
	if len(t.gates) > 0 {
		waits = t.gates[0].step.ID
	}
	switch waits {
	case t.shownGate:
		return
	case "":
		t.upsert(ctx, AttributeGate.ValueUnset())
	default:
		t.upsert(ctx, AttributeGate.ValueSet(waits))
	}
	t.shownGate = waits
}

func (t *agentTask) publishPending(ctx workflow.Context) {
	pending, _ := t.saga.Pending()
	t.upsert(ctx, AttributePending.ValueSet(int64(pending)))
}

func (t *agentTask) publishClosed(ctx workflow.Context, status compensations.Status) {
	t.upsert(ctx, AttributeStatus.ValueSet(string(status)), AttributePending.ValueSet(0))
}

func (t *agentTask) upsert(ctx workflow.Context, updates ...temporal.SearchAttributeUpdate) {
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		workflow.GetLogger(ctx).Warn("search attributes not set", "error", err)
	}
}
