package workflows

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Decision is the payload of the signals approve and reject: {"step": ..., "digest": ..., "who": ..., "why": ...}.
type Decision struct {
	Step string `json:"step"`
	// Digest is that of the gate's present opening: it covers the change, the step's token and the number of the opening.
	Digest activities.Digest `json:"digest"`
	// Who is a claim; a bare signal proves nothing.
	Who string `json:"who,omitempty"`
	Why string `json:"why,omitempty"`
}

// rejection ends a task at a gate.
type rejection struct{ step, text string }

func (r rejection) Error() string { return r.text }

// gates are the steps that wait for a person's approval.
type gates struct {
	schedule   *schedule
	attributes *attributes

	open []*stepRun // in file order
}

// awaitApproval waits at the step's gate: nil when it was approved, a rejection when it was not or nobody came in time.
func (g *gates) awaitApproval(ctx workflow.Context, s *stepRun) error {
	if reset := wasReset(ctx); reset != nil {
		s.gate = nil
		return temporal.NewNonRetryableApplicationError(reset.Text, string(activities.ResetRun), nil)
	}
	gate := s.gate
	g.schedule.setState(s, AtGate)
	g.openGate(ctx, s)
	err := gate.awaitDecision(ctx, s.step)
	g.closeGate(ctx, s)
	if err == nil {
		s.addNotes("approved by " + orSomebody(gate.decision.Who))
	}
	return err
}

func (g *gates) openGate(ctx workflow.Context, s *stepRun) {
	i, _ := slices.BinarySearchFunc(g.open, s, func(a, b *stepRun) int { return cmp.Compare(a.index, b.index) })
	g.open = slices.Insert(g.open, i, s)
	g.publish(ctx)
}

func (g *gates) closeGate(ctx workflow.Context, s *stepRun) {
	s.gate = nil
	g.open = slices.DeleteFunc(g.open, func(o *stepRun) bool { return o == s })
	g.publish(ctx)
}

func (g *gates) publish(ctx workflow.Context) {
	first := ""
	if len(g.open) > 0 {
		first = g.open[0].step.ID
	}
	g.attributes.publishGate(ctx, first)
}

// views are the open gates that nobody has decided.
func (g *gates) views() []GateView {
	var views []GateView
	for _, s := range g.open {
		if s.gate.decision == nil {
			views = append(views, s.gate.view)
		}
	}
	return views
}

// approve handles the payload of SignalApprove, reject that of SignalReject.
func (g *gates) approve(payload []byte) error { return g.decide(payload, true) }

func (g *gates) reject(payload []byte) error { return g.decide(payload, false) }

// decide gives a decision to the gate that it fits.
func (g *gates) decide(payload []byte, approved bool) error {
	var d Decision
	if err := json.Unmarshal(payload, &d); err != nil {
		return fmt.Errorf("the payload is not {step, digest, who, why}: %w", err)
	}
	d.Step, d.Who, d.Why = clip(d.Step, maxName), clip(d.Who, maxName), clip(d.Why, maxWhy)
	s := g.schedule.byID[d.Step]
	switch {
	case s == nil:
		return fmt.Errorf("there is no step %q", d.Step)
	case s.gate == nil:
		return fmt.Errorf("step %q is not at a gate", d.Step)
	case s.gate.decision != nil:
		return fmt.Errorf("the gate of step %q is decided already", d.Step)
	case d.Digest != s.gate.view.Digest:
		return fmt.Errorf("digest %s is not that of the present gate of step %q, %s", d.Digest.Short(), d.Step, s.gate.view.Digest.Short())
	}
	s.gate.decision, s.gate.approved = &d, approved
	return nil
}

// gate is one opening of a step's gate.
type gate struct {
	view     GateView
	decision *Decision // nil: nobody has decided yet
	approved bool
}

func newGate(now time.Time, s *stepRun, entry activities.Entry, change activities.Change, why string) *gate {
	return &gate{view: GateView{
		Step: s.step.ID, Opening: s.openings, Why: why, Change: change, Since: now, Until: now.Add(s.step.Gate.Limit),
		Digest: activities.DigestOf([]byte(change.Digest), []byte(entry.Token), fmt.Appendf(nil, "opening %d", s.openings)),
	}}
}

// awaitDecision returns nil when the gate was approved in time. A cancellation comes before all else, and the limit before a
// late approval: gates fail closed.
func (g *gate) awaitDecision(ctx workflow.Context, step task.Step) error {
	// A timer of its own, and not AwaitWithTimeout, so that the gate is a bar with a name in the Temporal UI.
	timerCtx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	left := max(g.view.Until.Sub(workflow.Now(ctx)), time.Millisecond) // an earlier run may have opened it
	limit := workflow.NewTimerWithOptions(timerCtx, left, workflow.TimerOptions{Summary: "gate: " + step.ID + " waits for approval"})
	if err := workflow.Await(ctx, func() bool { return g.decision != nil || limit.IsReady() }); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case limit.IsReady() && (g.decision == nil || g.approved):
		return rejection{step.ID, fmt.Sprintf("nobody approved step %s within %s", step.ID, step.Gate.Limit)}
	case !g.approved:
		text := fmt.Sprintf("step %s was rejected by %s", step.ID, orSomebody(g.decision.Who))
		if g.decision.Why != "" {
			text += ": " + g.decision.Why
		}
		return rejection{step.ID, text}
	}
	return nil
}

// needsApproval says whether a person must approve a planned change, and why.
func needsApproval(s task.Step, c activities.Change) (why string, asked bool) {
	switch {
	case c.Ask:
		return "this change is always asked", true
	case s.Gate.Mode == task.GateAsk:
		return s.Gate.Why, true
	case s.Gate.Mode == task.GateAuto && c.Risk != activities.Low:
		return "its risk is " + string(c.Risk), true
	}
	return "", false
}

func orSomebody(who string) string {
	if who == "" {
		return "somebody"
	}
	return who
}
