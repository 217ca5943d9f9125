package engine

import (
	"encoding/json"
	"fmt"
	"maps"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// carryOver returns what the next run of the chain is handed. No activity is pending. Signals are
// handled first, and the run ends with no yield after that, so that none is lost. The error says
// why the next run cannot be handed so much: then this one goes on.
func (t *Task) carryOver() (json.RawMessage, error) {
	t.Inbox.HandleSignals()
	c := t.takeCarry()
	c.Saga = t.Saga.Carry()
	return c.Fit()
}

// measureCarry returns the approximate compressed size of the carry.
func (t *Task) measureCarry() (int, error) {
	c := t.takeCarry()
	c.Saga.Entries, c.Saga.Results = t.Saga.Entries(), t.Saga.Known()
	if c.Session != nil {
		c.Session.ForgetSteps() // there need be no room for them
	}
	return c.PackedSize()
}

// takeCarry returns the present state of the task, without its saga.
func (t *Task) takeCarry() protocol.Carry {
	c := protocol.Carry{
		Version: protocol.CarryVersion, Began: t.began, Phase: t.Phase, Cause: t.Ending.Cause,
		Outputs: map[string]map[string]any{}, Steps: map[string]protocol.StepCarry{}, Redoes: map[string]string{},
		Size: t.Schedule.Size, Done: t.Schedule.done, Pivot: t.Pivot.Seq, Committed: t.Pivot.committed,
		Unwound: t.Rollbacks.unwound,
		Unknown: t.unknown, Redoable: t.redoable, Ignored: t.Inbox.Ignored(), Notes: t.notes,
		Order: t.Schedule.order,
	}
	if t.Phase == protocol.Forward {
		c.Rollbacks = t.Rollbacks.toCarry()
	}
	c.Compiled = t.Compiled
	c.Compiled.Steps = nil
	c.Past = append(c.Past, t.Schedule.past...)
	first, missed := t.Rollbacks.firstReachable(), t.Schedule.missedNeeds()
	for _, s := range t.Schedule.Steps {
		if t.Phase == protocol.Forward && (!s.IsOver() || s.Seq >= first || missed[s.Step.ID]) {
			c.Compiled.Steps = append(c.Compiled.Steps, s.Step)
			t.runner.carryStep(&c, s)
		} else if s.isNotable() {
			c.Past = append(c.Past, s.View)
		}
	}
	c.Alerts, c.Untold = t.alerts.toCarry()
	t.extension.Carry(&c)
	return c
}

// carryStep adds to c a step that goes on in the next run, or may be repeated.
func (r *stepRunner) carryStep(c *protocol.Carry, s *Step) {
	for _, id := range append(s.Step.References(), s.Step.ID) {
		if outputs, known := r.outputs[id]; known {
			c.Outputs[id] = outputs
		}
	}
	if token, redoes := r.redoes[s.Step.ID]; redoes {
		c.Redoes[s.Step.ID] = token
	}
	if carry, begun := s.toCarry(); begun {
		c.Steps[s.Step.ID] = carry
	}
}

// toCarry returns the state of the step, and whether it has begun.
func (s *Step) toCarry() (c protocol.StepCarry, begun bool) {
	c = protocol.StepCarry{
		Generation: s.Generation, Seq: s.Seq, Openings: s.openings, Approved: s.approved, IsApproved: s.isApproved,
		Assents: s.assents, Notes: s.View.Notes, Tried: s.View.Tried,
		Error: s.View.Error, Corrected: s.corrected, Edited: s.edited,
		Futile: s.futile, Refusals: s.refusals,
	}
	if s.IsOver() {
		c.State = s.View.State
	}
	if s.Gate != nil {
		c.Gate = &protocol.GateCarry{View: s.Gate.view, Decision: s.Gate.decision, Approved: s.Gate.approved}
	}
	if s.park != nil {
		c.Park = &protocol.ParkCarry{View: s.park.view}
		if d := s.park.decision; d != nil {
			c.Park.Decision = &d.Resolution
		}
	}
	return c, c.State != "" || s.Generation > 1 || s.Seq > 0 || s.Rollback != nil || s.park != nil
}

func (s *Step) resume(c protocol.StepCarry) {
	s.Generation, s.Seq, s.openings, s.approved, s.isApproved = c.Generation, c.Seq, c.Openings, c.Approved, c.IsApproved
	s.assents, s.edited, s.futile, s.refusals = c.Assents, c.Edited, c.Futile, c.Refusals
	s.View.Notes, s.View.Tried, s.View.Error, s.corrected = c.Notes, c.Tried, c.Error, c.Corrected
	if c.Generation > 1 {
		s.View.Try = c.Generation
	}
	if c.State != "" {
		s.View.State = c.State
	}
	if g := c.Gate; g != nil {
		s.Gate = &gate{view: g.View}
		if g.Decision != nil {
			s.Gate.settle(*g.Decision, g.Approved)
		}
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
	for _, r := range b.Due {
		if r.step == nil || r.step.Rollback == r { // otherwise another rollback has restarted the step
			carries = append(carries, protocol.RollbackCarry{
				Step: r.Only, Cause: r.Cause, Begun: r.Begun, From: r.From, Request: r.Request, Undone: r.Undone, To: r.To,
				Branch: r.Branch, Taken: r.Taken,
				Unfinished: r.Unfinished, Then: r.Then, Edited: r.Edited,
			})
		}
	}
	return carries
}

func (b *rollbacks) resume(carries []protocol.RollbackCarry) {
	for _, c := range carries {
		r := &Rollback{
			Cause: c.Cause, Begun: c.Begun, From: c.From, Only: c.Step, Request: c.Request, Undone: c.Undone, To: c.To,
			Branch: c.Branch, Taken: c.Taken,
			Unfinished: c.Unfinished, Then: c.Then, Edited: c.Edited,
		}
		if r.Request == "" {
			r.step = b.schedule.ByID[c.Step]
			r.step.View.State, r.step.Rollback = protocol.StepFailed, r
			if r.Edited {
				r.step.View.State = protocol.Planning
			}
		}
		b.Due = append(b.Due, r)
	}
}

// resume restores what the previous run carried over, except for the saga. A worker that does not
// know the format fails the workflow task, which then waits for one that does: the ledger is in
// there.
func (t *Task) resume(ctx workflow.Context, c protocol.Carry) {
	if why := c.WrongVersion(); why != "" {
		panic(fmt.Sprintf("%s: this run was %s", activities.UnknownFormat, why))
	}
	t.began, t.Phase, t.Ending.Cause, t.Compiled, t.notes = c.Began, c.Phase, c.Cause, c.Compiled, c.Notes
	t.unknown, t.redoable = c.Unknown, c.Redoable
	t.alerts.waiting, t.alerts.dropped = c.Alerts, c.Untold
	t.Schedule.keepOrder(c.Order)
	t.Schedule.past, t.Schedule.Size, t.Schedule.done = c.Past, c.Size, c.Done
	t.Pivot.Seq, t.Pivot.committed = c.Pivot, c.Committed
	t.Inbox.Restore(c.Ignored)
	t.runner.redoes = c.Redoes
	maps.Copy(t.Outputs, c.Outputs)
	maps.Copy(t.Rollbacks.unwound, c.Unwound)
	t.configure(ctx)
	for _, step := range c.Compiled.Steps {
		s := t.AddStep(step)
		if carry, begun := c.Steps[step.ID]; begun {
			s.resume(carry)
		}
		if s.park != nil {
			t.Parks.reopen(s)
		}
	}
	t.Rollbacks.resume(c.Rollbacks)
	if c.Session != nil {
		t.extension.Resume(ctx, *c.Session)
	}
	t.room.reset(c.Bytes())
	t.Schedule.arrangeSteps()
	t.alerts.flush(ctx)
}
