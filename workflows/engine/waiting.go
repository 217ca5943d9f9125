package engine

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// markWaiting shows that no worker serves the place of a step that is to run, and alerts the first
// time. A worker that comes back takes the step without being asked.
func (t *Task) markWaiting(ctx workflow.Context, step task.Step) {
	s := t.Schedule.ByID[step.ID]
	first := s.View.Waiting == ""
	s.View.Waiting = "waiting for " + compensations.DescribePlace(step.Place)
	t.Schedule.setState(s, s.View.State)
	if !first {
		return
	}
	workflow.GetMetricsHandler(ctx).WithTags(map[string]string{"action": step.Uses}).Counter(metricWaiting).Inc(1)
	t.SendAlert(ctx,
		compensations.StepReport{Step: step.ID, Action: step.Uses, State: string(compensations.Waiting),
			Reason: s.View.Waiting})
}

// markDeferred shows what a step waits for that it is too early for.
func (t *Task) markDeferred(step task.Step, why string) {
	s := t.Schedule.ByID[step.ID]
	s.View.Waiting = why
	t.Schedule.setState(s, s.View.State)
}

// markServed ends the waiting of a step.
func (t *Task) markServed(step task.Step) {
	if s := t.Schedule.ByID[step.ID]; s.View.Waiting != "" {
		s.View.Waiting = ""
		t.Schedule.setState(s, s.View.State)
	}
}

// metricWaiting counts forwards that wait for a worker.
const metricWaiting = "unwind_step_waiting"
