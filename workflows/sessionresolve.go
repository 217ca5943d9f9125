package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// checkNoUndo refuses a decision about an undo: it is a person's.
func (t *agentTask) checkNoUndo(step string) error {
	if undo := t.saga.UndoState(step); undo != compensations.Parked && undo != compensations.Waiting {
		return nil
	}
	return protocol.RefuseRequestf(protocol.PersonDecides, "step: the undo of %q waits, and how it goes on is for a person to decide, with `starter resolve`", payload.Clip(step, payload.MaxName))
}

// checkAgentDecides refuses what is no decision of the agent's: it decides about steps that have failed, where the session lets it.
func (t *agentTask) checkAgentDecides(r protocol.StepResolution) error {
	s, name := t.schedule.byID[r.Step], payload.Clip(r.Step, payload.MaxName)
	switch {
	case s != nil && s.gate != nil:
		return protocol.RefuseRequestf(protocol.PersonDecides, "step: %q waits at a gate, which is for a person to decide, with `starter approve` or `starter reject`", name)
	case !t.parks.holds(r.Step) && s != nil:
		return protocol.RefuseRequestf(protocol.NothingDecided, "step: %q waits for no decision; it is %s", name, s.view.State)
	case !t.parks.holds(r.Step):
		return protocol.RefuseRequestf(protocol.NothingDecided, "step: %q waits for no decision", name)
	case !t.parks.agentDecides:
		return protocol.RefuseRequestf(protocol.PersonDecides,
			"step: a person decides about %q, with `starter resolve`: the document of the session does not say failures: agent", name)
	case r.Resolution().HasWith() && s.step.Reserved != "":
		return protocol.RefuseRequestf(protocol.PersonDecides, "with: the file of the session says %q of %q, for the parameters that are written there; retry it as it is, "+
			"or have a person correct it", s.step.Reserved, name)
	}
	return nil
}

// checkStepResolution refuses a decision of the agent's that would decide nothing.
func (t *agentTask) checkStepResolution(r protocol.StepResolution) error {
	return first(func() error { return t.checkNoUndo(r.Step) }, t.checkTakes, func() error { return t.checkAgentDecides(r) },
		func() error { return protocol.RefuseDecision(t.checkResolution(r.Resolution())) })
}

func (t *agentTask) handleResolveStep(ctx workflow.Context, r protocol.StepResolution) (protocol.Answer, error) {
	return t.serve(ctx, r, func() error { return t.checkStepResolution(r) }, func(ctx workflow.Context, q *request) error {
		t.inbox.HandleSignals() // a decision that came before this one counts
		d, err := t.parks.decide(r.Resolution())
		if err != nil {
			return protocol.RefuseDecision(err)
		}
		q.steps, q.ends = []string{r.Step}, r.Do == protocol.DoUnwind
		t.awaitDecision(ctx, t.schedule.byID[r.Step], d)
		if d.refusal != nil {
			return protocol.RefuseDecision(d.refusal)
		}
		return nil
	})
}

func (t *agentTask) validateResolveStep(ctx workflow.Context, r protocol.StepResolution) error {
	isKnown, err := t.checkRequest(ctx, r)
	if isKnown || err != nil {
		return err
	}
	return t.checkStepResolution(r)
}
