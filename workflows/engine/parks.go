package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// parks are the steps that have failed and wait for a person, as their on_failure says. What such a
// step did is undone; what needs it waits, and all else goes on.
type parks struct {
	schedule *schedule
	ending   *ending
	replaced func(id string, with json.RawMessage) // called when a person has given a step other parameters
	correct  func(workflow.Context, *Step, json.RawMessage) (task.Step, error)
	alert    func(workflow.Context, compensations.StepReport)

	AgentDecides bool // the agent of the session may decide as well

	open       []*Step // in the order in which they parked
	correcting int     // the number of corrections that are being checked
}

// add parks a step whose undo has ended. Where it was skipped, what the step did is still there,
// and nothing may run on top of that.
func (p *parks) add(ctx workflow.Context, s *Step, isUndone bool) {
	ways := []compensations.Do{compensations.Retry, compensations.Skip, protocol.DoUnwind}
	if !isUndone {
		ways = ways[1:]
	}
	token := activities.NewToken(workflow.GetInfo(ctx).FirstRunID, s.Step.ID, s.Generation)
	s.park = &park{view: protocol.ParkView{
		Step: s.Step.ID, Uses: s.Step.Uses, Try: s.Generation, Reason: s.View.Error, Ways: ways, Since: workflow.Now(ctx),
		AgentDecides: p.AgentDecides,
		Digest:       activities.DigestOf([]byte(token), s.Step.With, []byte(s.View.Error)),
		Signed:       s.Step.Place.Signed, Token: token,
	}}
	s.AddNotes(fmt.Sprintf("try %d failed and was parked: %s", s.Generation, s.View.Error))
	s.Seq = 0 // its entry has left the ledger
	p.reopen(s)
	if p.AgentDecides { // a person is alerted of its silence instead
		return
	}
	p.alert(ctx, compensations.StepReport{
		Step: s.Step.ID, Action: s.Step.Uses, State: string(compensations.Parked), Reason: s.View.Error,
		Digest: s.park.view.Digest,
	})
}

// reopen has a step wait, also in the next run.
func (p *parks) reopen(s *Step) {
	p.open = append(p.open, s)
	p.schedule.setState(s, protocol.StepParked)
}

func (p *parks) remove(s *Step) {
	s.park = nil
	p.open = slices.DeleteFunc(p.open, func(o *Step) bool { return o == s })
}

func (p *parks) IsOpen() bool { return len(p.open) > 0 }

// first is the step that has waited for longest; empty if none waits.
func (p *parks) first() string {
	if len(p.open) == 0 {
		return ""
	}
	return p.open[0].Step.ID
}

// Views returns the parks that nobody has decided.
func (p *parks) Views() []protocol.ParkView {
	var views []protocol.ParkView
	for _, s := range p.open {
		if s.park.decision == nil && p.ending.Cause == nil {
			view := s.park.view
			view.With = s.Step.With
			views = append(views, view)
		}
	}
	return views
}

// Holds reports whether a step is parked.
func (p *parks) Holds(step string) bool {
	s := p.schedule.ByID[step]
	return s != nil && s.park != nil
}

// check returns the parked step that a resolution decides about. An error says why it decides
// nothing.
func (p *parks) check(r protocol.Resolution) (*Step, error) {
	s := p.schedule.ByID[r.Step]
	view := s.park.view
	var ways []string
	for _, do := range view.Ways {
		ways = append(ways, string(do))
	}
	switch {
	case p.ending.Cause != nil:
		return nil, fmt.Errorf("the task goes no further: %s", p.ending.Cause.Text)
	case s.park.decision != nil:
		return nil, fmt.Errorf("step %q is decided already: %s", r.Step, s.park.decision.Do)
	case r.Digest != view.Digest:
		return nil, fmt.Errorf("digest %s is not that of the present park of step %q, %s", r.Digest.Short(), r.Step,
			view.Digest.Short())
	case r.Do == compensations.Retry && !slices.Contains(view.Ways, r.Do):
		return nil, fmt.Errorf("do: what step %q did is still there, because its undo was skipped: it cannot run again; %s",
			r.Step, strings.Join(ways, " or "))
	case !slices.Contains(view.Ways, r.Do):
		return nil, fmt.Errorf("do: %q is not one of %s: the step failed, and was undone", r.Do, strings.Join(ways, ", "))
	case r.HasWith() && r.Do != compensations.Retry:
		return nil, fmt.Errorf("with: only retry takes other parameters, not %s", r.Do)
	}
	return s, nil
}

// Decide records a decision, which the executor then carries out.
func (p *parks) Decide(r protocol.Resolution) (*parkDecision, error) {
	s, err := p.check(r)
	if err != nil {
		return nil, err
	}
	r.Resolution = r.Clip()
	s.park.decision = &parkDecision{Resolution: r}
	p.schedule.changed()
	return s.park.decision, nil
}

// hasDue reports whether a decision waits to be carried out.
func (p *parks) hasDue() bool {
	return slices.ContainsFunc(p.open, func(s *Step) bool { return s.park.decision != nil && s.park.decision.isDue() })
}

// carryOut carries out what was decided. A correction is checked first, beside all else.
func (p *parks) carryOut(ctx workflow.Context) {
	for _, s := range slices.Clone(p.open) {
		d := s.park.decision
		switch {
		case d == nil || !d.isDue():
		case d.Refusal != nil:
			s.addFutile(fmt.Sprintf("%s by %s decided nothing: %s", d.Do, activities.Signer(protocol.OrSomebody(d.Who), d.Key),
				compensations.Reason(d.Refusal)))
			s.park.decision = nil
			p.schedule.changed()
		case d.HasWith() && d.corrected == nil:
			d.checking = true
			p.correcting++
			workflow.GoNamed(ctx, "correction of "+s.Step.ID, func(ctx workflow.Context) {
				defer func() { p.correcting-- }()
				if step, err := p.correct(ctx, s, d.With); err != nil {
					d.Refusal = err
				} else {
					d.corrected = &step
				}
			})
		default:
			p.apply(s, *d)
		}
	}
}

// apply ends a park as a person has decided.
func (p *parks) apply(s *Step, d parkDecision) {
	note := fmt.Sprintf("%s by %s", d.Do, activities.Signer(protocol.OrSomebody(d.Who), d.Key))
	if d.corrected != nil {
		if changed := changedParams(s.Step.With, d.corrected.With); len(changed) > 0 {
			note += " (changed: " + strings.Join(changed, ", ") + ")"
		}
		s.Step, s.corrected = *d.corrected, true
		p.replaced(s.Step.ID, d.With)
	}
	if d.Why != "" {
		note += ": " + d.Why
	}
	s.AddNotes(note)
	reason := s.park.view.Reason
	p.remove(s)
	switch d.Do {
	case compensations.Retry:
		p.schedule.repeatStep(s)
	case compensations.Skip:
		p.schedule.setState(s, protocol.RolledBack)
		p.schedule.leaveOutDependents(s)
	default:
		p.schedule.setState(s, protocol.StepFailed)
		p.ending.Cause = &compensations.Cause{Kind: compensations.Failure, Step: s.Step.ID, Text: reason + "; " + note}
	}
}

// withdraw ends a park because its step is rolled back: it is undone already.
func (p *parks) withdraw(s *Step, why string) {
	s.AddNotes(why)
	p.remove(s)
	p.schedule.setState(s, protocol.RolledBack)
}

// close ends all parks, because the task goes no further.
func (p *parks) close() {
	for _, s := range slices.Clone(p.open) {
		p.remove(s)
		p.schedule.setState(s, protocol.StepFailed)
	}
}

// changedParams returns the names of the parameters that differ, sorted.
func changedParams(before, after json.RawMessage) []string {
	var a, b map[string]json.RawMessage
	_, _ = json.Unmarshal(before, &a), json.Unmarshal(after, &b) // compiled parameters are a map
	var names []string
	for name, value := range b {
		if string(a[name]) != string(value) {
			names = append(names, name)
		}
	}
	for name := range a {
		if _, stays := b[name]; !stays {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
