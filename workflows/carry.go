package workflows

import (
	"encoding/json"
	"fmt"
	"maps"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// carryOver returns what the next run of the chain is handed. No activity is pending. Signals are handled first, and the run ends with no
// yield after that, so that none is lost. The error says why the next run cannot be handed so much: then this one goes on.
func (t *agentTask) carryOver() (json.RawMessage, error) {
	t.inbox.HandleSignals()
	c := t.takeCarry()
	c.Saga = t.saga.Carry()
	return c.Fit()
}

// measureCarry returns the approximate compressed size of the carry.
func (t *agentTask) measureCarry() (int, error) {
	c := t.takeCarry()
	c.Saga.Entries, c.Saga.Results = t.saga.Entries(), t.saga.Known()
	if c.Session != nil {
		c.Session.ForgetSteps() // there need be no room for them
	}
	return c.PackedSize()
}

// takeCarry returns the present state of the task, without its saga.
func (t *agentTask) takeCarry() protocol.Carry {
	c := protocol.Carry{
		Version: protocol.CarryVersion, Began: t.began, Phase: t.phase, Cause: t.ending.cause,
		Outputs: map[string]map[string]any{}, Steps: map[string]protocol.StepCarry{}, Redoes: map[string]string{},
		Size: t.schedule.size, Done: t.schedule.done, Pivot: t.pivot.seq, Committed: t.pivot.committed, Unwound: t.rollbacks.unwound,
		Unknown: t.unknown, Redoable: t.redoable, Ignored: t.inbox.Ignored(), Notes: t.notes,
		Order: t.schedule.order,
	}
	if t.phase == protocol.Forward {
		c.Rollbacks = t.rollbacks.toCarry()
	}
	c.Compiled = t.compiled
	c.Compiled.Steps = nil
	c.Past = append(c.Past, t.schedule.past...)
	first := t.rollbacks.firstReachable()
	for _, s := range t.schedule.steps {
		if t.phase == protocol.Forward && (!s.isOver() || s.seq >= first) {
			c.Compiled.Steps = append(c.Compiled.Steps, s.step)
			t.runner.carryStep(&c, s)
		} else if s.isNotable() {
			c.Past = append(c.Past, s.view)
		}
	}
	c.Alerts, c.Untold = t.alerts.toCarry()
	t.carrySession(&c)
	return c
}

// carryStep adds to c a step that goes on in the next run, or may be repeated.
func (r *stepRunner) carryStep(c *protocol.Carry, s *stepRun) {
	for _, id := range append(s.step.References(), s.step.ID) {
		if outputs, known := r.outputs[id]; known {
			c.Outputs[id] = outputs
		}
	}
	if token, redoes := r.redoes[s.step.ID]; redoes {
		c.Redoes[s.step.ID] = token
	}
	if carry, begun := s.toCarry(); begun {
		c.Steps[s.step.ID] = carry
	}
}

// toCarry returns the state of the step, and whether it has begun.
func (s *stepRun) toCarry() (c protocol.StepCarry, begun bool) {
	c = protocol.StepCarry{
		Generation: s.generation, Seq: s.seq, Openings: s.openings, Approved: s.approved, IsApproved: s.isApproved, Notes: s.view.Notes, Tried: s.view.Tried,
		Error: s.view.Error, Corrected: s.corrected,
	}
	if s.isOver() {
		c.State = s.view.State
	}
	if s.gate != nil {
		c.Gate = &protocol.GateCarry{View: s.gate.view, Decision: s.gate.decision, Approved: s.gate.approved}
	}
	if s.park != nil {
		c.Park = &protocol.ParkCarry{View: s.park.view}
		if d := s.park.decision; d != nil {
			c.Park.Decision = &d.Resolution
		}
	}
	return c, c.State != "" || s.generation > 1 || s.seq > 0 || s.rollback != nil || s.park != nil
}

func (s *stepRun) resume(c protocol.StepCarry) {
	s.generation, s.seq, s.openings, s.approved, s.isApproved = c.Generation, c.Seq, c.Openings, c.Approved, c.IsApproved
	s.view.Notes, s.view.Tried, s.view.Error, s.corrected = c.Notes, c.Tried, c.Error, c.Corrected
	if c.Generation > 1 {
		s.view.Try = c.Generation
	}
	if c.State != "" {
		s.view.State = c.State
	}
	if g := c.Gate; g != nil {
		s.gate = &gate{view: g.View, decision: g.Decision, approved: g.Approved}
	}
	if p := c.Park; p != nil {
		s.park = &park{view: p.View}
		if p.Decision != nil {
			s.park.decision = &parkDecision{Resolution: *p.Decision}
		}
	}
}

func (b *rollbacks) toCarry() []protocol.RollbackCarry {
	var carries []protocol.RollbackCarry
	for _, r := range b.due {
		if r.step == nil || r.step.rollback == r { // otherwise another rollback has restarted the step
			carries = append(carries, protocol.RollbackCarry{
				Step: r.only, Cause: r.cause, Begun: r.begun, From: r.from, Request: r.request, Undone: r.undone, To: r.to, Branch: r.branch, Taken: r.taken,
				Unfinished: r.unfinished,
			})
		}
	}
	return carries
}

func (b *rollbacks) resume(carries []protocol.RollbackCarry) {
	for _, c := range carries {
		r := &rollback{
			cause: c.Cause, begun: c.Begun, from: c.From, only: c.Step, request: c.Request, undone: c.Undone, to: c.To, branch: c.Branch, taken: c.Taken,
			unfinished: c.Unfinished,
		}
		if r.request == "" {
			r.step = b.schedule.byID[c.Step]
			r.step.view.State, r.step.rollback = protocol.StepFailed, r
		}
		b.due = append(b.due, r)
	}
}

// resume restores what the previous run carried over, except for the saga. A worker that does not know the format fails the
// workflow task, which then waits for one that does: the ledger is in there.
func (t *agentTask) resume(ctx workflow.Context, c protocol.Carry) {
	if why := c.WrongVersion(); why != "" {
		panic(fmt.Sprintf("%s: this run was %s", activities.UnknownFormat, why))
	}
	t.began, t.phase, t.ending.cause, t.compiled, t.notes = c.Began, c.Phase, c.Cause, c.Compiled, c.Notes
	t.unknown, t.redoable = c.Unknown, c.Redoable
	t.alerts.waiting, t.alerts.dropped = c.Alerts, c.Untold
	t.schedule.keepOrder(c.Order)
	t.schedule.past, t.schedule.size, t.schedule.done = c.Past, c.Size, c.Done
	t.pivot.seq, t.pivot.committed = c.Pivot, c.Committed
	t.inbox.Restore(c.Ignored)
	t.runner.redoes = c.Redoes
	maps.Copy(t.runner.outputs, c.Outputs)
	maps.Copy(t.rollbacks.unwound, c.Unwound)
	t.configure(ctx)
	for _, step := range c.Compiled.Steps {
		s := t.addStep(step)
		if carry, begun := c.Steps[step.ID]; begun {
			s.resume(carry)
		}
		if s.park != nil {
			t.parks.reopen(s)
		}
	}
	t.rollbacks.resume(c.Rollbacks)
	t.resumeSession(ctx, c)
	t.room.reset(c.Bytes())
	t.schedule.arrangeSteps()
	t.alerts.flush(ctx)
}
