package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// RegisterContexts registers ContextsType for a host.
func RegisterContexts(to Registrar, store protocol.ContextStore) {
	to.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		if err := workflow.SetQueryHandler(ctx, protocol.QueryKeep, store.Keep); err != nil {
			return err
		}
		return workflow.SetQueryHandler(ctx, protocol.QueryContext, store.Read)
	}, workflow.RegisterOptions{Name: protocol.ContextsType})
}
