package workflows

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// ask has a part of a session undone. Steps that are still running in it are canceled, and those that have not begun are left out.
func (b *rollbacks) ask(r *rollback) {
	covered := map[string]bool{}
	for _, e := range compensations.Closure(b.saga.Entries(), r.covers) {
		covered[e.Step] = true
	}
	for _, s := range b.schedule.steps { // a step comes after those that it needs
		isCovered := covered[s.step.ID] || s.step.ID == r.only || r.only == "" && s.seq == 0 ||
			slices.ContainsFunc(s.step.Needs, func(need string) bool { return covered[need] })
		if !isCovered {
			continue
		}
		covered[s.step.ID] = true
		if !s.isOver() {
			r.unfinished = append(r.unfinished, s.step.ID)
		}
		switch s.view.State {
		case protocol.NotStarted:
			s.addNotes("left out: " + r.cause.Text)
			b.schedule.setState(s, protocol.LeftOut)
		case protocol.Planning, protocol.AtGate, protocol.Running:
			s.withdrawn = true
			s.addNotes(r.cause.Text)
			s.cancel()
		case protocol.StepParked:
			b.parks.withdraw(s, r.cause.Text)
		case protocol.Done, protocol.StepFailed, protocol.Canceled, protocol.RolledBack, protocol.LeftOut:
		}
	}
	b.schedule.ready = slices.DeleteFunc(b.schedule.ready, func(s *stepRun) bool { return s.view.State != protocol.NotStarted })
	b.due = append(b.due, r)
}

// undoAsked undoes a part that the agent of a session has asked to undo.
func (b *rollbacks) undoAsked(ctx workflow.Context, r *rollback) (finished bool) {
	_ = workflow.Await(ctx, func() bool {
		return b.isQuiet() && !slices.ContainsFunc(b.gates.open, func(s *stepRun) bool { return s.withdrawn })
	})
	entries := slices.Clone(b.saga.Entries())
	report := b.saga.UnwindSteps(ctx, r.cause, r.covers)
	finished = report.Status != compensations.Open
	b.noteUndone(report)
	isTaken := map[string]bool{}
	for _, u := range report.Steps {
		state := compensations.UndoState(u.State)
		isUndone := state == compensations.Settled || state == compensations.Accepted
		if isUndone || finished {
			r.undone = append(r.undone, u)
		}
		if isUndone {
			isTaken[u.Step] = true
			b.markUndone(u.Step, r)
		}
	}
	r.take(slices.DeleteFunc(entries, func(e activities.Entry) bool { return !isTaken[e.Step] }))
	if more := len(r.undone) - compensations.MaxReported; more > 0 { // the report of the session counts them all
		r.undone = r.undone[more:]
	}
	if finished {
		r.over = true
		b.savepoints.drop(r.from)
		b.took(r)
	}
	return finished
}

// noteUndone keeps the outcome of undone steps for the requests that wait for them.
func (b *rollbacks) noteUndone(report compensations.Report) {
	for i, u := range report.Steps {
		b.undone++
		if s := b.schedule.byID[u.Step]; s != nil {
			s.undone = &report.Steps[i]
		}
	}
}

// markUndone no longer counts a step as done.
func (b *rollbacks) markUndone(id string, r *rollback) {
	delete(b.outputs, id)
	s := b.schedule.byID[id]
	if s == nil { // it ended in an earlier run
		i := slices.IndexFunc(b.schedule.past, func(v protocol.StepView) bool { return v.ID == id })
		if i < 0 || b.schedule.past[i].State == protocol.Done {
			b.schedule.done--
		}
		if i >= 0 {
			b.schedule.past[i].State = protocol.RolledBack
		}
		return
	}
	if s.view.State == protocol.Done {
		b.schedule.done--
		s.addNotes(r.cause.Text)
	}
	s.rollback = nil
	b.schedule.setState(s, protocol.RolledBack)
}
