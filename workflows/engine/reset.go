package engine

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
)

// A reset run never goes forward. Every forward carries the id of the run that first scheduled it,
// and the worker refuses it in another run (activities.ResetRun). A run also checks for itself
// before it opens a gate, commits or unwinds, and whenever it waits for steps, people or the agent
// of a session: nothing that they do could change how it ends.

// pastReset begins the ids of the changes by which a reset run notices that it is past the point
// that it was reset to.
const pastReset = "unwind-past-the-reset-at-"

// isReset reports whether the run is past the point that it was reset to. Until there it has to do
// what the original run did, and nothing that a workflow sees says where that ends. So a reset run
// asks for the version of a change, by another id in each workflow task: what is replayed without a
// version of it has none, and what is not replayed is past that point and gets one, which later
// replays find. A run that was not reset asks for none.
func isReset(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	if info.WorkflowExecution.RunID == compensations.OriginalRun(ctx) {
		return false
	}
	change := fmt.Sprint(pastReset, info.GetCurrentHistoryLength())
	return workflow.GetVersion(ctx, change, workflow.DefaultVersion, 1) == 1
}

// wasReset returns the cause to unwind if this run was reset from another; nil if it was not.
func wasReset(ctx workflow.Context) *compensations.Cause {
	if !isReset(ctx) {
		return nil
	}
	return &compensations.Cause{Kind: compensations.WasReset,
		Text: fmt.Sprintf("run %s was reset from %s; a reset run only unwinds",
			workflow.GetInfo(ctx).WorkflowExecution.RunID, compensations.OriginalRun(ctx))}
}
