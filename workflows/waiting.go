package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// markWaiting shows that no worker serves the place of a step that is to run, and alerts the first time. A worker that comes back
// takes the step without being asked.
func (t *agentTask) markWaiting(ctx workflow.Context, step task.Step) {
	s := t.schedule.byID[step.ID]
	first := s.view.Waiting == ""
	s.view.Waiting = "waiting for " + compensations.DescribePlace(step.Place)
	t.schedule.setState(s, s.view.State)
	if !first {
		return
	}
	workflow.GetMetricsHandler(ctx).WithTags(map[string]string{"action": step.Uses}).Counter(metricWaiting).Inc(1)
	t.sendAlert(ctx, compensations.StepReport{Step: step.ID, Action: step.Uses, State: string(compensations.Waiting), Reason: s.view.Waiting})
}

// markServed ends the waiting of a step.
func (t *agentTask) markServed(step task.Step) {
	if s := t.schedule.byID[step.ID]; s.view.Waiting != "" {
		s.view.Waiting = ""
		t.schedule.setState(s, s.view.State)
	}
}

// metricWaiting counts forwards that wait for a worker.
const metricWaiting = "unwind_step_waiting"
