package workflows

import (
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// stepRun is a step in a run of its task.
type stepRun struct {
	step       task.Step
	index      int // in file order, among the steps of this run
	view       StepView
	generation int
	seq        int               // of its entry; 0: it has none
	approved   activities.Digest // the change that was approved, until it is applied
	err        error             // what it ended with

	pendingNeeds int        // how many of its needs are not done
	dependents   []*stepRun // the steps that need it

	gate     *gate // nil: it has none open
	openings int   // how often its gate was opened

	cancel     func()    // while it runs
	rollback   *rollback // nil: none is due
	restarting bool      // it is canceled to be done again

	row string // of the table in the details; empty: it has changed
}

func (s *stepRun) addNotes(notes ...string) { s.view.Notes = append(s.view.Notes, notes...) }

func (s *stepRun) title() string {
	if s.step.Name != "" {
		return s.step.ID + ": " + s.step.Name
	}
	return s.step.ID
}

// isSatisfied says that what needs this step may run.
func (s *stepRun) isSatisfied() bool {
	return s.view.State == Done || s.view.State == StepFailed && s.step.OnFailure.Do == task.FailContinue
}

// isOver says that the step will not run any more, unless it is unwound to a savepoint before it.
func (s *stepRun) isOver() bool {
	if s.rollback != nil {
		return false
	}
	switch s.view.State {
	case NotStarted, Planning, AtGate, Running, Canceled:
		return false
	case Done, StepFailed, RolledBack, LeftOut:
	}
	return true
}

// isNotable says that a report must mention the step: it was not simply done.
func (s *stepRun) isNotable() bool {
	return s.view.State != NotStarted && (s.view.State != Done || len(s.view.Notes) > 0)
}

// schedule is the steps of a run, and which of them may start. It knows no Temporal.
type schedule struct {
	steps  []*stepRun // in file order; those that earlier runs have ended are not among them
	byID   map[string]*stepRun
	ready  []*stepRun // whose needs are done
	latest int        // the index of the last step that has started

	past []StepView // the steps that earlier runs have ended and a report must mention
	size int        // steps of the task, in all runs
	done int        // of these, done

	changed func() // called when the state of a step has changed
}

func newSchedule(changed func()) *schedule {
	return &schedule{byID: map[string]*stepRun{}, changed: changed}
}

func (c *schedule) addStep(step task.Step) *stepRun {
	s := &stepRun{step: step, index: len(c.steps), generation: 1, view: StepView{
		ID: step.ID, Name: step.Name, Uses: step.Uses, State: NotStarted, Host: step.Place.Host,
	}}
	c.steps = append(c.steps, s)
	c.byID[step.ID] = s
	return s
}

// arrange works out what each step waits for. Steps that need one which is not done and never will be are left out.
func (c *schedule) arrange() {
	c.ready = nil
	for _, s := range c.steps {
		s.pendingNeeds, s.dependents = 0, nil
	}
	for _, s := range c.steps { // a step stands behind those that it needs
		for _, need := range s.step.Needs {
			n := c.byID[need]
			switch {
			case n == nil || n.isSatisfied(): // n == nil: an earlier run has ended it
				continue
			case s.view.State == NotStarted && (n.view.State == RolledBack || n.view.State == LeftOut):
				s.addNotes("left out: it needs " + need)
				c.setState(s, LeftOut)
			}
			s.pendingNeeds++
			n.dependents = append(n.dependents, s)
		}
		if s.view.State == NotStarted && s.pendingNeeds == 0 {
			c.ready = append(c.ready, s)
		}
	}
}

func (c *schedule) setState(s *stepRun, state StepState) {
	s.view.State = state
	if state == StepFailed {
		s.view.Error = compensations.Reason(s.err)
	}
	s.row = ""
	c.changed()
}

// takeReady takes the first step that may start; nil where none may.
func (c *schedule) takeReady() *stepRun {
	if len(c.ready) == 0 {
		return nil
	}
	s := c.ready[0]
	c.ready = c.ready[1:]
	return s
}

// unlockDependents has the steps that need s wait for it no longer.
func (c *schedule) unlockDependents(s *stepRun) {
	for _, next := range s.dependents {
		if next.pendingNeeds--; next.pendingNeeds == 0 && next.view.State == NotStarted {
			c.ready = append(c.ready, next)
		}
	}
}

// restartStep puts an undone step back to its start, as its next generation. It is ready only when arrange says so.
func (c *schedule) restartStep(s *stepRun) {
	if s.view.State == Done {
		c.done--
	}
	s.generation++
	s.err, s.rollback, s.approved, s.seq, s.restarting = nil, nil, "", 0, false
	s.view = StepView{ID: s.view.ID, Name: s.view.Name, Uses: s.view.Uses, Host: s.view.Host, Notes: s.view.Notes}
	c.setState(s, NotStarted)
}

// savepoints are the places in the ledger that have a name, also those of steps that are off it.
func (c *schedule) savepoints() map[string]int {
	places := map[string]int{}
	for _, s := range c.steps {
		if s.step.Savepoint != "" && s.seq > 0 {
			places[s.step.Savepoint] = s.seq
		}
	}
	return places
}

// isPartial says that the task went on without something that is not done.
func (c *schedule) isPartial() bool {
	isMissing := func(s StepState) bool { return s == StepFailed || s == RolledBack || s == LeftOut }
	return slices.ContainsFunc(c.past, func(v StepView) bool { return isMissing(v.State) }) ||
		slices.ContainsFunc(c.steps, func(s *stepRun) bool { return isMissing(s.view.State) })
}
