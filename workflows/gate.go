package workflows

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// gate is one opening of a step's gate.
type gate struct {
	view     GateView
	decision *Decision
	approved bool
}

// rejection ends a task at a gate.
type rejection struct{ step, text string }

func (r rejection) Error() string { return r.text }

// asks says whether a planned change needs a person, and why.
func asks(s task.Step, c activities.Change) (why string, yes bool) {
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

// openGate makes a gate for a change.
func openGate(now time.Time, s *stepRun, entry activities.Entry, change activities.Change, why string) *gate {
	return &gate{view: GateView{
		Step: s.step.ID, Opening: s.openings, Why: why, Change: change, Since: now, Until: now.Add(s.step.Gate.Limit),
		Digest: activities.DigestOf([]byte(change.Digest), []byte(entry.Token), fmt.Appendf(nil, "opening %d", s.openings)),
	}}
}

// await waits at the step's gate: nil when it was approved, a rejection when it was not or nobody came in time.
func (t *agentTask) await(ctx workflow.Context, s *stepRun) error {
	if reset := wasReset(ctx); reset != nil {
		s.gate = nil
		return temporal.NewNonRetryableApplicationError(reset.Text, string(activities.ResetRun), nil)
	}
	g := s.gate
	t.enter(s, AtGate)
	t.open(ctx, s)
	err := g.wait(ctx, s.step)
	t.shut(ctx, s)
	if err == nil {
		s.note("approved by " + orSomebody(g.decision.Who))
	}
	return err
}

// open puts a step among those that wait for a person, in file order.
func (t *agentTask) open(ctx workflow.Context, s *stepRun) {
	i, _ := slices.BinarySearchFunc(t.gates, s, func(a, b *stepRun) int { return cmp.Compare(a.index, b.index) })
	t.gates = slices.Insert(t.gates, i, s)
	t.publishGate(ctx)
}

func (t *agentTask) shut(ctx workflow.Context, s *stepRun) {
	s.gate = nil
	t.gates = slices.DeleteFunc(t.gates, func(o *stepRun) bool { return o == s })
	t.publishGate(ctx)
}

// wait returns nil when the gate was approved in time. A cancellation comes before all else, and the limit before a late
// approval: gates fail closed.
func (g *gate) wait(ctx workflow.Context, step task.Step) error {
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

func orSomebody(who string) string {
	if who == "" {
		return "somebody"
	}
	return who
}
