package workflows

import "go.temporal.io/sdk/workflow"

// Registrar is the part of a Temporal worker that Register needs.
type Registrar interface {
	RegisterWorkflowWithOptions(w any, options workflow.RegisterOptions)
}

// Register registers every workflow with a worker.
func Register(to Registrar) {
	for name, w := range map[string]any{
		AgentTaskType: AgentTask, PlanTaskType: PlanTask, RecoverType: Recover, RollbackType: Rollback, RedoType: Redo,
		LateSweepType: LateSweep, SweepType: Sweep, RetainType: Retain,
	} {
		to.RegisterWorkflowWithOptions(w, workflow.RegisterOptions{Name: name})
	}
}
