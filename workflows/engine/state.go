package engine

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// maxViewed bounds the steps in the answer to a query.
const maxViewed = 1000

func (t *Task) state(ctx workflow.Context) protocol.State {
	s := protocol.State{
		Task: workflow.GetInfo(ctx).WorkflowExecution.ID, Name: t.Compiled.Name, Agent: t.Compiled.Agent,
		Phase: t.Phase, Cause: t.Ending.Cause, Ignored: t.Inbox.Ignored().Reasons, Report: t.Report,
		Gates: t.Gates.Views(), Parks: t.Parks.Views(), Troubles: t.shownTroubles(), Done: t.Schedule.done,
		Total: t.Schedule.Size,
		Stuck: t.executor.stuck,
	}
	s.Steps = append(s.Steps, t.Schedule.past[max(0, len(t.Schedule.past)-maxViewed/2):]...)
	from, to := window(len(t.Schedule.Steps), t.Schedule.latest, maxViewed)
	for _, step := range t.Schedule.Steps[from:to] {
		s.Steps = append(s.Steps, step.View)
	}
	protocol.ShowOutputs(s.Steps, t.Outputs)
	if t.Phase != protocol.Compiling {
		s.Session = t.extension.View()
	}
	if t.Phase == protocol.Unwinding {
		s.PendingUndos, _ = t.Saga.Pending()
	}
	if t.Report == nil && t.Saga.Unwinding() {
		r := t.Saga.Report()
		r.Task = s.Task
		s.Report = &r
	}
	s.Fit()
	return s
}

// stepNow handles QueryStep.
func (t *Task) stepNow(id string) (protocol.StepNow, error) {
	var now protocol.StepNow
	if s := t.Schedule.ByID[id]; s != nil {
		now.Step = s.View
		now.Gate, now.Park = s.GateView(), s.ParkView()
		if now.Gate != nil {
			now.With = s.Step.With
		}
	} else if i := slices.IndexFunc(t.Schedule.past, func(v protocol.StepView) bool { return v.ID == id }); i >= 0 {
		now.Step = t.Schedule.past[i]
	}
	if undo, begun := t.Saga.UndoOf(id); begun {
		now.Undo = &undo
	}
	if now.Step.ID == "" && now.Undo == nil {
		return now, fmt.Errorf("this run of the task has no step %q", payload.Clip(id, payload.MaxName))
	}
	now.Step.ID, now.Step.Outputs = id, t.Outputs[id]
	if now.Step.State != protocol.Done {
		now.Step.Outputs = nil
	}
	now.Fit()
	return now, nil
}
