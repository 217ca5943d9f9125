package calls

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

func UpsertAttributes(ctx workflow.Context, updates ...temporal.SearchAttributeUpdate) {
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		workflow.GetLogger(ctx).Warn("search attributes not set", "error", err)
	}
}
