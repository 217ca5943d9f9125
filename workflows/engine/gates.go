package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// rejection ends a task at a gate.
type rejection struct{ step, text string }

func (r rejection) Error() string { return r.text }

// gates are the steps that wait for a person's approval.
type gates struct {
	schedule   *schedule
	attributes *attributes
	alert      func(workflow.Context, protocol.Alert)
	changed    func()           // an open gate shows something else
	now        func() time.Time // of the workflow
	agent      func() string    // of the task: it approves nothing
	proofs     *proofs

	open []*Step // in file order
}

// ask has a step ask a person about its change, and tells one.
func (g *gates) ask(ctx workflow.Context, s *Step, entry activities.Entry, change activities.Change, why string) {
	s.openings++
	s.Gate = newGate(g.now(), s, entry, change, why)
	s.Gate.view.Waits = change.Policy.Waits(g.agent(), change.Standing)
	s.Gate.view.Edited = s.edited
	g.alert(ctx, protocol.Alert{Step: s.Step.ID, Action: s.Step.Uses, State: protocol.Gated, Reason: why,
		Digest: s.Gate.view.Digest, Summary: payload.Clip(change.Summary, payload.MaxWhy), Risk: change.Risk,
		Groups: change.Policy.Groups(), Until: s.Gate.view.Until})
}

// awaitApproval waits at the step's gate. It returns a rejection if a person rejected the step or
// nobody decided in time.
func (g *gates) awaitApproval(ctx workflow.Context, s *Step) error {
	if reset := wasReset(ctx); reset != nil {
		s.Gate = nil
		return temporal.NewNonRetryableApplicationError(reset.Text, string(activities.ResetRun), nil)
	}
	gate := s.Gate
	g.schedule.setState(s, protocol.AtGate)
	g.openGate(ctx, s)
	began := workflow.Now(ctx)
	err := gate.awaitDecision(ctx, s.Step)
	s.View.Waited += workflow.Now(ctx).Sub(began)
	g.closeGate(ctx, s)
	if err == nil {
		s.AddNotes("approved by " + approvers(gate.view.Change, gate.view.Assents))
	}
	return err
}

func (g *gates) openGate(ctx workflow.Context, s *Step) {
	i, _ := slices.BinarySearchFunc(g.open, s, func(a, b *Step) int { return cmp.Compare(a.index, b.index) })
	g.open = slices.Insert(g.open, i, s)
	g.publish(ctx)
}

func (g *gates) closeGate(ctx workflow.Context, s *Step) {
	s.Gate = nil
	g.open = slices.DeleteFunc(g.open, func(o *Step) bool { return o == s })
	g.publish(ctx)
}

func (g *gates) publish(ctx workflow.Context) {
	first := ""
	if len(g.open) > 0 {
		first = g.open[0].Step.ID
	}
	g.attributes.publishGate(ctx, first)
}

// Views returns the open gates that nobody has decided.
func (g *gates) Views() []protocol.GateView {
	var views []protocol.GateView
	for _, s := range g.open {
		if s.Gate.decision == nil {
			views = append(views, s.Gate.view)
		}
	}
	return views
}

// approve handles the payload of SignalApprove.
func (g *gates) approve(payload []byte) error { return g.decide(payload, true) }

// reject handles the payload of SignalReject.
func (g *gates) reject(payload []byte) error { return g.decide(payload, false) }

// decide records a decision at the gate that it fits.
func (g *gates) decide(payload []byte, approved bool) error {
	var d protocol.Decision
	if err := json.Unmarshal(payload, &d); err != nil {
		return fmt.Errorf("the payload is not {step, digest, who, why}: %w", err)
	}
	d.Key = "" // not for the sender to say
	gate, err := g.findGate(d, approved)
	if err != nil {
		return err
	}
	if !gate.view.Signed {
		g.take(gate, d, approved)
		return nil
	}
	return g.proofs.takeSignal(verdictOf(approved), d.Step, func(ctx workflow.Context) error {
		_, err := g.takeSigned(ctx, d, approved)
		return err
	})
}

// takeSigned has a gate decided by a signed decision once it is proved, if it still fits then. It is
// called when it is the turn of the decision.
func (g *gates) takeSigned(ctx workflow.Context, d protocol.Decision, approved bool) (*gate, error) {
	gate, err := g.findGate(d, approved)
	if err != nil {
		return nil, err
	}
	d.Key, err = g.proofs.verify(ctx, gate.view.Statement(g.proofs.task, verdictOf(approved), d), d.Signature)
	if err != nil {
		return nil, err
	}
	if gate, err = g.findGate(d, approved); err == nil {
		g.take(gate, d, approved)
	}
	return gate, err
}

func verdictOf(approved bool) string {
	if approved {
		return activities.Approve
	}
	return activities.Reject
}

// take has a gate decided, or notes an approval that others have to follow.
func (g *gates) take(gate *gate, d protocol.Decision, approved bool) {
	d = clipDecision(d)
	if approved {
		gate.view.Assents = append(gate.view.Assents, gate.assentOf(d, g.now()))
		gate.view.Waits = gate.view.Change.Policy.Waits(g.agent(), gate.view.Assents)
		g.changed()
	}
	if gate.view.Waits == "" || !approved {
		gate.settle(d, approved)
	}
}

// findGate returns the open gate that a decision fits. An approval fits only if it counts.
func (g *gates) findGate(d protocol.Decision, approved bool) (*gate, error) {
	s := g.schedule.ByID[d.Step]
	switch {
	case s == nil:
		return nil, fmt.Errorf("there is no step %q", payload.Clip(d.Step, payload.MaxName))
	case s.Gate == nil:
		return nil, fmt.Errorf("step %q is not at a gate", d.Step)
	case s.Gate.decision != nil:
		return nil, fmt.Errorf("the gate of step %q is decided already", d.Step)
	case d.Digest != s.Gate.view.Digest:
		return nil, fmt.Errorf("digest %s is not that of the present gate of step %q, %s", d.Digest.Short(), d.Step,
			s.Gate.view.Digest.Short())
	case s.Gate.view.Signed && d.Signature == "":
		return nil, fmt.Errorf("step %q: %w", d.Step, errUnsigned)
	case len(d.Signature) > activities.MaxSignature:
		return nil, fmt.Errorf("step %q: the signature has %s, more than %d", d.Step,
			activities.CountOf(len(d.Signature), "byte"), activities.MaxSignature)
	case d.Signature != "" && (clipDecision(d).Who != d.Who || clipDecision(d).Why != d.Why):
		return nil, fmt.Errorf("step %q: who or why is too long to be kept: give at most %s and %s, and sign that", d.Step,
			activities.CountOf(payload.MaxName, "byte"), activities.CountOf(payload.MaxWhy, "byte"))
	case approved:
		view := s.Gate.view
		if err := view.Change.Policy.Counts(g.agent(), view.Assents, s.Gate.assentOf(clipDecision(d), g.now())); err != nil {
			return nil, fmt.Errorf("step %q: %w", d.Step, err)
		}
	}
	return s.Gate, nil
}

func newGate(now time.Time, s *Step, entry activities.Entry, change activities.Change, why string) *gate {
	view := protocol.GateView{
		Step: s.Step.ID, Opening: s.openings, Why: why, Change: change, Assents: change.Standing,
		Since: now, Until: now.Add(patienceOf(s.Step, change)),
		Digest: activities.DigestOf([]byte(change.Digest), []byte(entry.Token), fmt.Appendf(nil, "opening %d", s.openings)),
		Signed: s.Step.Place.Signed, Token: entry.Token, Action: entry.Action, Undo: change.UndoDigest(),
	}
	return &gate{view: view}
}

// patienceOf is how long a gate waits: as long as the step says, or less if the rules say so.
func patienceOf(step task.Step, change activities.Change) time.Duration {
	patience := step.Gate.Patience()
	if r := change.Policy; r != nil && r.Within > 0 {
		return min(patience, r.Within)
	}
	return patience
}

func clipDecision(d protocol.Decision) protocol.Decision {
	d.Who, d.Why = payload.Clip(d.Who, payload.MaxName), payload.Clip(d.Why, payload.MaxWhy)
	return d
}

// assentOf is an approval of the gate. Where no rule asks for a name, nobody has to give one.
func (g *gate) assentOf(d protocol.Decision, now time.Time) activities.Assent {
	if !g.view.Change.Policy.Asks() {
		d.Who = protocol.OrSomebody(d.Who)
	}
	a := activities.Assent{Who: d.Who, Why: d.Why, At: now}
	if d.Signature != "" {
		a.At, a.Opening, a.Signature, a.Key = d.At, g.view.Digest, d.Signature, d.Key
	}
	return a
}

func (g *gate) settle(d protocol.Decision, approved bool) {
	g.decision, g.approved, g.by = &d, approved, activities.Signer(protocol.OrSomebody(d.Who), d.Key)
	if d.Why != "" {
		g.by += ": " + d.Why
	}
}

// approvers says who has approved a change, and by which rules they were asked.
func approvers(change activities.Change, assents []activities.Assent) string {
	names := make([]string, len(assents))
	for i, a := range assents {
		names[i] = a.String()
	}
	text := strings.Join(names, ", ")
	if rules := change.Policy; rules.Asks() {
		text += "; " + rules.Name()
	}
	return text
}

// awaitDecision returns nil if the gate was approved in time. A cancellation takes precedence over
// everything else, and the time limit over a late approval: gates fail closed.
func (g *gate) awaitDecision(ctx workflow.Context, step task.Step) error {
	inTime, err := g.awaitLimit(ctx, step)
	for err == nil && !inTime && !g.isRejected() && g.putOff(ctx, step) {
		inTime, err = g.awaitLimit(ctx, step)
	}
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case !inTime && !g.isRejected():
		return rejection{step.ID, protocol.Lapse(g.whoHas(), step.ID, patienceOf(step, g.view.Change))}
	case g.isRejected():
		return rejection{step.ID, fmt.Sprintf("step %s was rejected by %s", step.ID, g.by)}
	case g.edited != nil:
		return *g.edited
	}
	return nil
}

// whoHas begins a sentence about too few approvals.
func (g *gate) whoHas() string {
	if len(g.view.Assents) == 0 {
		return "nobody"
	}
	return "not enough persons (" + g.view.Waits + ")"
}

func (g *gate) isRejected() bool { return g.decision != nil && !g.approved && g.edited == nil }

// awaitLimit waits until the gate is decided or its limit has passed, and reports whether it was
// decided before.
func (g *gate) awaitLimit(ctx workflow.Context, step task.Step) (inTime bool, err error) {
	// An explicit timer instead of AwaitWithTimeout, so that the gate is a bar with a name in the
	// Temporal UI.
	timerCtx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	left := max(g.view.Until.Sub(workflow.Now(ctx)), time.Millisecond) // an earlier run may have opened the gate
	limit := workflow.NewTimerWithOptions(timerCtx, left, workflow.TimerOptions{Summary: protocol.GateTimer(step.ID)})
	if err := workflow.Await(ctx, func() bool { return g.decision != nil || limit.IsReady() }); err != nil {
		return false, err
	}
	return !limit.IsReady(), ctx.Err() // a cancellation makes the timer ready too
}

// putOff puts the limit off by the time that the task was paused since the gate was opened. It
// reports whether any is left.
func (g *gate) putOff(ctx workflow.Context, step task.Step) bool {
	g.view.Until = g.view.Since.Add(patienceOf(step, g.view.Change) + calls.PausedSince(ctx, g.view.Since))
	return g.view.Until.After(workflow.Now(ctx))
}
