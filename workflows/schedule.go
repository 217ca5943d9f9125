package workflows

import (
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// stepRun is a step in a run of its task.
type stepRun struct {
	step       task.Step
	index      int // in file order, among the steps of this run
	view       protocol.StepView
	generation int
	seq        int               // of its entry; 0 if it has none
	approved   activities.Digest // the change that may be made, until it is applied
	isApproved bool              // a person has approved it
	mustAsk    bool              // its worker makes no change that a person has not approved
	err        error             // what it ended with

	pendingNeeds int        // the number of its needs that are not done
	dependents   []*stepRun // the steps that need it

	gate     *gate // nil unless it is open
	openings int   // how often the gate was opened

	park      *park // nil unless it has failed and waits for a person
	corrected bool  // a person has given it other parameters than its document

	cancel     func()                    // while it runs
	rollback   *rollback                 // nil if none is due
	restarting bool                      // it is being canceled in order to be repeated
	withdrawn  bool                      // it is being canceled because the agent of its session rolls it back
	undone     *compensations.StepReport // what became of it, if it was undone while the task went on

	row string // its row in the table of the details; empty if that is out of date
}

func (s *stepRun) addNotes(notes ...string) { s.view.Notes = append(s.view.Notes, notes...) }

func (s *stepRun) title() string {
	if s.step.Name != "" {
		return s.step.ID + ": " + s.step.Name
	}
	return s.step.ID
}

// reason says why the step has failed, and by which limit if it was one.
func (s *stepRun) reason() string {
	return compensations.Limits{Attempt: s.step.Timeout, Heartbeat: s.step.Heartbeat}.Reason(s.err)
}

// isSatisfied reports whether steps that need this one may run.
func (s *stepRun) isSatisfied() bool {
	return s.view.State == protocol.Done || s.view.State == protocol.StepFailed && s.step.OnFailure.Do == task.FailContinue
}

// isOver reports whether the step will not run any more, unless the task unwinds to a savepoint before it.
func (s *stepRun) isOver() bool {
	if s.rollback != nil {
		return false
	}
	switch s.view.State {
	case protocol.NotStarted, protocol.Planning, protocol.AtGate, protocol.Running, protocol.StepParked, protocol.Canceled:
		return false
	case protocol.Done, protocol.StepFailed, protocol.RolledBack, protocol.LeftOut:
	}
	return true
}

// isNotable reports whether a report must mention the step: it began and was not simply done.
func (s *stepRun) isNotable() bool {
	return s.view.State != protocol.NotStarted && (s.view.State != protocol.Done || len(s.view.Notes)+len(s.view.Tried) > 0)
}

// schedule holds the steps of a run and decides which of them may start. It is independent of Temporal.
type schedule struct {
	steps []*stepRun // in file order, without those that ended in earlier runs
	byID  map[string]*stepRun
	// referred are the ids of the steps whose outputs others refer to; only looked up.
	referred map[string]bool
	ready    []*stepRun // steps whose needs are done
	latest   int        // the highest index of a step that has started

	order  []string       // the ids of all steps in file order, also of those that ended in earlier runs; empty in a session
	places map[string]int // in it; only looked up

	past []protocol.StepView // steps that ended in earlier runs and that a report must mention
	open bool                // more steps may come: the task is a session that has not been told to finish
	live bool                // it is one, also when it has
	size int                 // the number of steps in the task, in all runs
	done int                 // the number of those that are done

	changed func() // called when the state of a step has changed
}

func newSchedule(changed func()) *schedule {
	return &schedule{byID: map[string]*stepRun{}, referred: map[string]bool{}, changed: changed}
}

func (c *schedule) addStep(step task.Step) *stepRun {
	s := &stepRun{step: step, index: len(c.steps), generation: 1, view: protocol.StepView{
		ID: step.ID, Name: step.Name, Uses: step.Uses, State: protocol.NotStarted, Host: step.Place.Host,
	}}
	c.steps = append(c.steps, s)
	c.byID[step.ID] = s
	for _, id := range step.References() {
		c.referred[id] = true
	}
	return s
}

// keepOrder remembers the order of the file, which a run no longer knows from its own steps once some have ended in earlier runs.
func (c *schedule) keepOrder(order []string) {
	c.order, c.places = order, make(map[string]int, len(order))
	for i, id := range order {
		c.places[id] = i
	}
}

// arrangeSteps works out what each step waits for. Steps are left out if they need one that will never be done.
func (c *schedule) arrangeSteps() {
	c.ready = nil
	for _, s := range c.steps {
		s.pendingNeeds, s.dependents = 0, nil
	}
	for _, s := range c.steps { // a step comes after those that it needs
		c.place(s)
	}
}

// place works out what a step waits for, if that is known of those that it needs.
func (c *schedule) place(s *stepRun) {
	for _, need := range s.step.Needs {
		n := c.byID[need]
		switch {
		case n == nil || n.isSatisfied(): // n == nil: it ended in an earlier run
			continue
		case s.view.State == protocol.NotStarted && (n.view.State == protocol.RolledBack || n.view.State == protocol.LeftOut):
			s.addNotes("left out: it needs " + need)
			c.setState(s, protocol.LeftOut)
		}
		s.pendingNeeds++
		n.dependents = append(n.dependents, s)
	}
	if s.view.State == protocol.NotStarted && s.pendingNeeds == 0 {
		c.ready = append(c.ready, s)
	}
}

func (c *schedule) setState(s *stepRun, state protocol.StepState) {
	s.view.State = state
	if state == protocol.StepFailed && s.err != nil {
		s.view.Error = s.reason()
	}
	s.row = ""
	c.changed()
}

// holdBack makes a step ready again that was about to go on when starting was suspended: without it, the task could seem to be over.
func (c *schedule) holdBack(s *stepRun) {
	c.setState(s, protocol.NotStarted)
	c.ready = append([]*stepRun{s}, c.ready...)
}

// takeReady takes the first step that may start; nil if there is none.
func (c *schedule) takeReady() *stepRun {
	if len(c.ready) == 0 {
		return nil
	}
	s := c.ready[0]
	c.ready = c.ready[1:]
	return s
}

// unlockDependents makes the steps that waited only for s ready.
func (c *schedule) unlockDependents(s *stepRun) {
	for _, next := range s.dependents {
		if next.pendingNeeds--; next.pendingNeeds == 0 && next.view.State == protocol.NotStarted {
			c.ready = append(c.ready, next)
		}
	}
}

// restartStep resets an undone step, as its next generation. It becomes ready only by arrangeSteps.
func (c *schedule) restartStep(s *stepRun) {
	if s.view.State == protocol.Done {
		c.done--
	}
	s.generation++
	s.err, s.rollback, s.undone, s.approved, s.isApproved, s.mustAsk, s.seq, s.restarting = nil, nil, nil, "", false, false, 0, false
	s.view = s.view.Next(s.generation)
	c.setState(s, protocol.NotStarted)
}

// repeatStep begins the next generation of a parked step, unless what it needs was rolled back meanwhile.
func (c *schedule) repeatStep(s *stepRun) {
	c.restartStep(s)
	for _, need := range s.step.Needs {
		if n := c.byID[need]; n != nil && (n.view.State == protocol.RolledBack || n.view.State == protocol.LeftOut) {
			c.leaveOut(s, need)
			return
		}
	}
	if s.pendingNeeds == 0 {
		c.ready = append(c.ready, s)
	}
}

// takeOut takes a step that is over out of the schedule, since it is added again, and returns what there is to tell of it.
func (c *schedule) takeOut(id string) (view protocol.StepView) {
	if i := slices.IndexFunc(c.past, func(v protocol.StepView) bool { return v.ID == id }); i >= 0 {
		view = c.past[i]
		c.past = slices.Delete(slices.Clone(c.past), i, i+1)
	}
	s := c.byID[id]
	if s == nil {
		return view
	}
	delete(c.byID, id)
	c.steps = slices.Delete(c.steps, s.index, s.index+1)
	for _, later := range c.steps[s.index:] {
		later.index--
	}
	if c.latest >= s.index {
		c.latest--
	}
	return s.view
}

// leaveOutDependents leaves out the steps that wait for s, which will not be done. A parked one is left out if it is to run again.
func (c *schedule) leaveOutDependents(s *stepRun) {
	for _, next := range s.dependents {
		if next.view.State == protocol.NotStarted {
			c.leaveOut(next, s.step.ID)
		}
	}
}

func (c *schedule) leaveOut(s *stepRun, need string) {
	s.addNotes("left out: it needs " + need)
	c.setState(s, protocol.LeftOut)
	c.leaveOutDependents(s)
}

// savepoints returns the sequence number of each savepoint, also of steps that are no longer on the ledger.
func (c *schedule) savepoints() map[string]int {
	places := map[string]int{}
	for _, s := range c.steps {
		if s.step.Savepoint != "" && s.seq > 0 {
			places[s.step.Savepoint] = s.seq
		}
	}
	return places
}

// isPartial reports whether the task went on although some step is not done. The agent of a session knows what was rolled back, and
// has gone on from there.
func (c *schedule) isPartial() bool {
	isMissing := func(s protocol.StepState) bool {
		return s == protocol.StepFailed || !c.live && (s == protocol.RolledBack || s == protocol.LeftOut)
	}
	return slices.ContainsFunc(c.past, func(v protocol.StepView) bool { return isMissing(v.State) }) ||
		slices.ContainsFunc(c.steps, func(s *stepRun) bool { return isMissing(s.view.State) })
}
