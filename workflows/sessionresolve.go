package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
)

// resolution is the decision as one of the agent's.
func (r StepResolution) resolution() Resolution {
	return Resolution{Resolution: compensations.Resolution{Step: r.Step, Digest: r.Digest, Do: r.Do, Who: "the agent", Why: r.Why}, With: r.With}
}

// checkNoUndo refuses a decision about an undo: it is a person's.
func (t *agentTask) checkNoUndo(step string) error {
	if undo := t.saga.UndoState(step); undo != compensations.Parked && undo != compensations.Waiting {
		return nil
	}
	return refuseRequestf(PersonDecides, "step: the undo of %q waits, and how it goes on is for a person to decide, with `starter resolve`", clip(step, maxName))
}

// checkAgentDecides refuses what is no decision of the agent's: it decides about steps that have failed, where the session lets it.
func (t *agentTask) checkAgentDecides(r StepResolution) error {
	s, name := t.schedule.byID[r.Step], clip(r.Step, maxName)
	switch {
	case s != nil && s.gate != nil:
		return refuseRequestf(PersonDecides, "step: %q waits at a gate, which is for a person to decide, with `starter approve` or `starter reject`", name)
	case !t.parks.holds(r.Step) && s != nil:
		return refuseRequestf(NothingDecided, "step: %q waits for no decision; it is %s", name, s.view.State)
	case !t.parks.holds(r.Step):
		return refuseRequestf(NothingDecided, "step: %q waits for no decision", name)
	case !t.parks.agentDecides:
		return refuseRequestf(PersonDecides,
			"step: a person decides about %q, with `starter resolve`: the document of the session does not say failures: agent", name)
	case r.resolution().hasWith() && s.step.Reserved != "":
		return refuseRequestf(PersonDecides, "with: the file of the session says %q of %q, for the parameters that are written there; retry it as it is, "+
			"or have a person correct it", s.step.Reserved, name)
	}
	return nil
}

// checkStepResolution refuses a decision of the agent's that would decide nothing.
func (t *agentTask) checkStepResolution(r StepResolution) error {
	return first(func() error { return t.checkNoUndo(r.Step) }, t.checkTakes, func() error { return t.checkAgentDecides(r) },
		func() error { return refuseDecision(t.checkResolution(r.resolution())) })
}

func (t *agentTask) handleResolveStep(ctx workflow.Context, r StepResolution) (Answer, error) {
	return t.serve(ctx, r, func() error { return t.checkStepResolution(r) }, func(ctx workflow.Context, q *request) error {
		t.inbox.HandleSignals() // a decision that came before this one counts
		d, err := t.parks.decide(r.resolution())
		if err != nil {
			return refuseDecision(err)
		}
		q.steps, q.ends = []string{r.Step}, r.Do == DoUnwind
		t.awaitDecision(ctx, t.schedule.byID[r.Step], d)
		if d.refusal != nil {
			return refuseDecision(d.refusal)
		}
		return nil
	})
}

func (t *agentTask) validateResolveStep(ctx workflow.Context, r StepResolution) error {
	isKnown, err := t.checkRequest(ctx, r)
	if isKnown || err != nil {
		return err
	}
	return t.checkStepResolution(r)
}
