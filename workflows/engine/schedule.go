package engine

import (
	"slices"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// schedule holds the steps of a run and decides which of them may start. It is independent of
// Temporal.
type schedule struct {
	Steps []*Step // in file order, without those that ended in earlier runs
	ByID  map[string]*Step
	// referred are the ids of the steps whose outputs others refer to; only looked up.
	referred map[string]bool
	Ready    []*Step // steps whose needs are done
	latest   int     // the highest index of a step that has started

	// the ids of all steps in file order, also of those that ended in earlier runs; empty in a session
	order  []string
	places map[string]int // in it; only looked up

	past []protocol.StepView // steps that ended in earlier runs and that a report must mention
	Open bool                // more steps may come: the task is a session that has not been told to finish
	Live bool                // it is one, also when it has
	Size int                 // the number of steps in the task, in all runs
	done int                 // the number of those that are done

	changed func() // called when the state of a step has changed
}

func newSchedule(changed func()) *schedule {
	return &schedule{ByID: map[string]*Step{}, referred: map[string]bool{}, changed: changed}
}

func (c *schedule) addStep(step task.Step) *Step {
	s := &Step{Step: step, index: len(c.Steps), Generation: 1, View: protocol.StepView{
		ID: step.ID, Name: step.Name, Uses: step.Uses, State: protocol.NotStarted, Host: step.Place.Host,
	}}
	c.Steps = append(c.Steps, s)
	c.ByID[step.ID] = s
	for _, id := range step.References() {
		c.referred[id] = true
	}
	return s
}

// keepOrder remembers the order of the file, which a run no longer knows from its own steps once
// some have ended in earlier runs.
func (c *schedule) keepOrder(order []string) {
	c.order, c.places = order, make(map[string]int, len(order))
	for i, id := range order {
		c.places[id] = i
	}
}

// arrangeSteps works out what each step waits for. Steps are left out if they need one that will
// never be done.
func (c *schedule) arrangeSteps() {
	c.Ready = nil
	for _, s := range c.Steps {
		s.pendingNeeds, s.dependents = 0, nil
	}
	for _, s := range c.Steps { // a step comes after those that it needs
		c.Place(s)
	}
}

// Place works out what a step waits for, if that is known of those that it needs.
func (c *schedule) Place(s *Step) {
	for _, need := range s.Step.Needs {
		n := c.ByID[need]
		switch {
		case n == nil || n.IsSatisfied(): // n == nil: it ended in an earlier run
			continue
		case s.View.State == protocol.NotStarted && (n.View.State == protocol.RolledBack || n.View.State == protocol.LeftOut):
			s.AddNotes("left out: it needs " + need)
			c.setState(s, protocol.LeftOut)
		}
		s.pendingNeeds++
		n.dependents = append(n.dependents, s)
	}
	if s.View.State == protocol.NotStarted && s.pendingNeeds == 0 {
		c.Ready = append(c.Ready, s)
	}
}

func (c *schedule) setState(s *Step, state protocol.StepState) {
	s.View.State = state
	if state == protocol.StepFailed && s.err != nil {
		s.View.Error = s.reason()
	}
	s.row = ""
	c.changed()
}

// holdBack makes a step ready again that was about to go on when starting was suspended: without
// it, the task could seem to be over.
func (c *schedule) holdBack(s *Step) {
	c.setState(s, protocol.NotStarted)
	c.Ready = append([]*Step{s}, c.Ready...)
}

// takeReady takes the first step that may start; nil if there is none.
func (c *schedule) takeReady() *Step {
	if len(c.Ready) == 0 {
		return nil
	}
	s := c.Ready[0]
	c.Ready = c.Ready[1:]
	return s
}

// unlockDependents makes the steps that waited only for s ready.
func (c *schedule) unlockDependents(s *Step) {
	for _, next := range s.dependents {
		if next.pendingNeeds--; next.pendingNeeds == 0 && next.View.State == protocol.NotStarted {
			c.Ready = append(c.Ready, next)
		}
	}
}

// restartStep resets an undone step, as its next generation. It becomes ready only by arrangeSteps.
func (c *schedule) restartStep(s *Step) {
	if s.View.State == protocol.Done {
		c.done--
	}
	s.Generation++
	s.err, s.Rollback, s.Undone, s.approved, s.isApproved, s.assents, s.mustAsk, s.Seq, s.restarting = nil, nil, nil,
		"", false, nil, false, 0, false
	s.View, s.futile = s.View.Next(s.Generation), protocol.FutileNotes{}
	c.setState(s, protocol.NotStarted)
}

// repeatStep begins the next generation of a parked step, unless what it needs was rolled back
// meanwhile.
func (c *schedule) repeatStep(s *Step) {
	c.restartStep(s)
	for _, need := range s.Step.Needs {
		if n := c.ByID[need]; n != nil && (n.View.State == protocol.RolledBack || n.View.State == protocol.LeftOut) {
			c.leaveOut(s, need)
			return
		}
	}
	if s.pendingNeeds == 0 {
		c.Ready = append(c.Ready, s)
	}
}

// missedNeeds are the ids of steps that will not be done, and that one needs which is not over.
func (c *schedule) missedNeeds() map[string]bool {
	missed := map[string]bool{}
	for _, s := range c.Steps {
		if s.IsOver() {
			continue
		}
		for _, need := range s.Step.Needs {
			if n := c.ByID[need]; n != nil && (n.View.State == protocol.RolledBack || n.View.State == protocol.LeftOut) {
				missed[need] = true
			}
		}
	}
	return missed
}

// TakeOut takes a step that is over out of the schedule, since it is added again, and returns what
// there is to tell of it.
func (c *schedule) TakeOut(id string) (view protocol.StepView) {
	if i := slices.IndexFunc(c.past, func(v protocol.StepView) bool { return v.ID == id }); i >= 0 {
		view = c.past[i]
		c.past = slices.Delete(slices.Clone(c.past), i, i+1)
	}
	s := c.ByID[id]
	if s == nil {
		return view
	}
	delete(c.ByID, id)
	c.Steps = slices.Delete(c.Steps, s.index, s.index+1)
	for _, later := range c.Steps[s.index:] {
		later.index--
	}
	if c.latest >= s.index {
		c.latest--
	}
	return s.View
}

// waiting returns the steps that wait for s, or for one that does.
func (s *Step) waiting() map[*Step]bool {
	all, queue := map[*Step]bool{}, slices.Clone(s.dependents)
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		if !all[next] {
			all[next] = true
			queue = append(queue, next.dependents...)
		}
	}
	return all
}

// leaveOutDependents leaves out the steps that wait for s, which will not be done. A parked one is
// left out if it is to run again.
func (c *schedule) leaveOutDependents(s *Step) {
	for _, next := range s.dependents {
		if next.View.State == protocol.NotStarted {
			c.leaveOut(next, s.Step.ID)
		}
	}
}

func (c *schedule) leaveOut(s *Step, need string) {
	s.AddNotes("left out: it needs " + need)
	c.setState(s, protocol.LeftOut)
	c.leaveOutDependents(s)
}

// savepoints returns the sequence number of each savepoint, also of steps that are no longer on the
// ledger.
func (c *schedule) savepoints() map[string]int {
	places := map[string]int{}
	for _, s := range c.Steps {
		if s.Step.Savepoint != "" && s.Seq > 0 {
			places[s.Step.Savepoint] = s.Seq
		}
	}
	return places
}

// isPartial reports whether the task went on although some step is not done. The agent of a session
// knows what was rolled back, and has gone on from there.
func (c *schedule) isPartial() bool {
	isMissing := func(s protocol.StepState) bool {
		return s == protocol.StepFailed || !c.Live && (s == protocol.RolledBack || s == protocol.LeftOut)
	}
	return slices.ContainsFunc(c.past, func(v protocol.StepView) bool { return isMissing(v.State) }) ||
		slices.ContainsFunc(c.Steps, func(s *Step) bool { return isMissing(s.View.State) })
}

// isBeforePivot reports whether a pivot comes after s in the ledger, or is still to be started.
func (c *schedule) isBeforePivot(s *Step) bool {
	return slices.ContainsFunc(c.Steps, func(o *Step) bool {
		return o.Step.Pivot && o != s && (o.Seq == 0 || o.Seq > s.Seq)
	})
}
