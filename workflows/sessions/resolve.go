package sessions

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// checkNoUndo refuses a decision about an undo: it is a person's.
func (t *session) checkNoUndo(step string) error {
	if undo := t.Saga.UndoState(step); undo != compensations.Parked && undo != compensations.Waiting {
		return nil
	}
	return protocol.RefuseRequestf(protocol.PersonDecides,
		"step: the undo of %q waits, and how it goes on is for a person to decide, with `starter resolve`",
		payload.Clip(step, payload.MaxName))
}

// checkAgentDecides refuses what is no decision of the agent's: it decides about steps that have
// failed, where the session lets it.
func (t *session) checkAgentDecides(r protocol.StepResolution) error {
	s, name := t.Schedule.ByID[r.Step], payload.Clip(r.Step, payload.MaxName)
	switch {
	case s != nil && s.Gate != nil:
		return protocol.RefuseRequestf(protocol.PersonDecides,
			"step: %q waits at a gate, which is for a person to decide, with `starter approve` or `starter reject`", name)
	case !t.Parks.Holds(r.Step) && s != nil:
		return protocol.RefuseRequestf(protocol.NothingDecided, "step: %q waits for no decision; it is %s", name,
			s.View.State)
	case !t.Parks.Holds(r.Step):
		return protocol.RefuseRequestf(protocol.NothingDecided, "step: %q waits for no decision", name)
	case !t.Parks.AgentDecides:
		return protocol.RefuseRequestf(protocol.PersonDecides,
			"step: a person decides about %q, with `starter resolve`: the document of the session does not say failures: agent",
			name)
	case r.Resolution().HasWith() && s.Step.Reserved != "":
		return protocol.RefuseRequestf(protocol.PersonDecides,
			"with: the file of the session says %q of %q, for the parameters that are written there; retry it as it is, "+
				"or have a person correct it", s.Step.Reserved, name)
	}
	return nil
}

// checkStepResolution refuses a decision of the agent's that would decide nothing.
func (t *session) checkStepResolution(r protocol.StepResolution) error {
	return first(func() error { return t.checkNoUndo(r.Step) }, t.checkTakes,
		func() error { return t.checkAgentDecides(r) },
		func() error { return protocol.RefuseDecision(t.CheckResolution(r.Resolution())) })
}

// resolveStep has the agent decide about a step that has failed.
var resolveStep = ask[protocol.StepResolution]{check: (*session).checkStepResolution,
	carryOut: (*session).resolveStep}.as(protocol.UpdateResolveStep)

func (t *session) resolveStep(ctx workflow.Context, q *request, r protocol.StepResolution) error {
	t.Inbox.HandleSignals() // a decision that came before this one counts
	d, err := t.Parks.Decide(r.Resolution())
	if err != nil {
		return protocol.RefuseDecision(err)
	}
	q.steps, q.ends = []string{r.Step}, r.Do == protocol.DoUnwind
	t.AwaitDecision(ctx, t.Schedule.ByID[r.Step], d)
	return protocol.RefuseDecision(d.Refusal)
}
