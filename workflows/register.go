package workflows

import (
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/allowances"
	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/environments"
	"github.com/seed-62bf7108/unwind/workflows/notices"
	"github.com/seed-62bf7108/unwind/workflows/planning"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/repair"
)

// Registrar is the part of a Temporal worker that Register needs.
type Registrar interface {
	RegisterWorkflowWithOptions(w any, options workflow.RegisterOptions)
}

// Register registers every workflow with a worker. check is for the steps that sessions are to
// take; without one they are only checked once they are accepted.
func Register(to Registrar, check engine.StepCheck) {
	agentTask := func(ctx workflow.Context, input, carry converter.RawValue) (compensations.Report, error) {
		return runAgentTask(ctx, input, carry, check)
	}
	for name, w := range map[string]any{
		protocol.AgentTaskType: agentTask,
		protocol.PlanTaskType:  planning.PlanTask, protocol.ClearPlanType: planning.ClearPlan,
		protocol.ValidateTaskType: planning.ValidateTask,
		protocol.RecoverType:      repair.Recover, protocol.RollbackType: repair.Rollback, protocol.RedoType: repair.Redo,
		protocol.LateSweepType: repair.LateSweep,
		protocol.SweepType:     repair.Sweep, protocol.RetainType: repair.Retain, protocol.OrphansType: repair.Orphans,
		protocol.NoticesType:     notices.Notices,
		protocol.AllowancesType:  allowances.Allowances,
		environment.WorkflowType: environments.Environment,
	} {
		to.RegisterWorkflowWithOptions(w, workflow.RegisterOptions{Name: name})
	}
}
