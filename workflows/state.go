package workflows

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// maxViewed bounds the steps in the answer to a query.
const maxViewed = 1000

func (t *agentTask) state(ctx workflow.Context) protocol.State {
	s := protocol.State{
		Task: workflow.GetInfo(ctx).WorkflowExecution.ID, Name: t.compiled.Name, Agent: t.compiled.Agent,
		Phase: t.phase, Cause: t.ending.cause, Ignored: t.inbox.Ignored().Reasons, Report: t.report,
		Gates: t.gates.views(), Parks: t.parks.views(), Troubles: t.shownTroubles(), Done: t.schedule.done, Total: t.schedule.size,
		Stuck: t.executor.stuck,
	}
	s.Steps = append(s.Steps, t.schedule.past[max(0, len(t.schedule.past)-maxViewed/2):]...)
	from, to := window(len(t.schedule.steps), t.schedule.latest, maxViewed)
	for _, step := range t.schedule.steps[from:to] {
		s.Steps = append(s.Steps, step.view)
	}
	protocol.ShowOutputs(s.Steps, t.runner.outputs)
	if t.session != nil && t.phase != protocol.Compiling {
		s.Session = &protocol.SessionView{
			Open: t.schedule.open, Savepoints: t.savepoints.names(), Heard: t.executor.silence.heard, AgentGone: t.executor.silence.asked,
			Contexts: t.session.contexts, Since: t.sinceContext(), Notes: t.session.notes, TakenBack: t.takenBack(),
		}
	}
	if t.phase == protocol.Unwinding {
		s.PendingUndos, _ = t.saga.Pending()
	}
	if t.report == nil && t.saga.Unwinding() {
		r := t.saga.Report()
		r.Task = s.Task
		s.Report = &r
	}
	s.Fit()
	return s
}

// stepNow handles QueryStep.
func (t *agentTask) stepNow(id string) (protocol.StepNow, error) {
	var now protocol.StepNow
	if s := t.schedule.byID[id]; s != nil {
		now.Step = s.view
		now.Gate, now.Park = s.gateView(), s.parkView()
	} else if i := slices.IndexFunc(t.schedule.past, func(v protocol.StepView) bool { return v.ID == id }); i >= 0 {
		now.Step = t.schedule.past[i]
	}
	if undo, begun := t.saga.UndoOf(id); begun {
		now.Undo = &undo
	}
	if now.Step.ID == "" && now.Undo == nil {
		return now, fmt.Errorf("this run of the task has no step %q", payload.Clip(id, payload.MaxName))
	}
	now.Step.ID, now.Step.Outputs = id, t.runner.outputs[id]
	if now.Step.State != protocol.Done {
		now.Step.Outputs = nil
	}
	now.Fit()
	return now, nil
}

// gateView is the gate at which a step waits; nil if it waits at none.
func (s *stepRun) gateView() *protocol.GateView {
	if s.gate == nil || s.gate.decision != nil {
		return nil
	}
	view := s.gate.view
	return &view
}

// parkView is why a step waits after it has failed; nil if it does not wait.
func (s *stepRun) parkView() *protocol.ParkView {
	if s.park == nil || s.park.decision != nil {
		return nil
	}
	view := s.park.view
	view.With = s.step.With
	return &view
}
