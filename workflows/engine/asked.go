package engine

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Ask has a part of a session undone. Steps that are still running in it are canceled, and those
// that have not begun are left out.
func (b *rollbacks) Ask(r *Rollback) {
	covered := map[string]bool{}
	for _, e := range compensations.Closure(b.saga.Entries(), r.covers) {
		covered[e.Step] = true
	}
	for _, s := range b.schedule.Steps { // a step comes after those that it needs
		isCovered := covered[s.Step.ID] || s.Step.ID == r.Only || r.Only == "" && s.Seq == 0 ||
			slices.ContainsFunc(s.Step.Needs, func(need string) bool { return covered[need] })
		if !isCovered {
			continue
		}
		covered[s.Step.ID] = true
		if !s.IsOver() {
			r.Unfinished = append(r.Unfinished, s.Step.ID)
		}
		switch s.View.State {
		case protocol.NotStarted:
			s.AddNotes("left out: " + r.Cause.Text)
			b.schedule.setState(s, protocol.LeftOut)
		case protocol.Planning, protocol.AtGate, protocol.Running:
			s.AddNotes(r.Cause.Text)
			if s.Rollback != nil { // it was edited, and no longer runs
				s.Rollback = nil
				b.schedule.setState(s, protocol.RolledBack)
				continue
			}
			s.withdrawn = true
			s.cancel()
		case protocol.StepParked:
			b.parks.withdraw(s, r.Cause.Text)
		case protocol.Done, protocol.StepFailed, protocol.Canceled, protocol.RolledBack, protocol.LeftOut:
		}
	}
	b.schedule.Ready = slices.DeleteFunc(b.schedule.Ready,
		func(s *Step) bool { return s.View.State != protocol.NotStarted })
	b.Due = append(b.Due, r)
}

// undoAsked undoes a part that the agent of a session has asked to undo.
func (b *rollbacks) undoAsked(ctx workflow.Context, r *Rollback) (finished bool) {
	_ = workflow.Await(ctx, func() bool {
		return b.isQuiet() && !slices.ContainsFunc(b.gates.open, func(s *Step) bool { return s.withdrawn })
	})
	entries := slices.Clone(b.saga.Entries())
	report := b.saga.UnwindSteps(ctx, r.Cause, r.covers)
	finished = report.Status != compensations.Open
	b.noteUndone(report)
	isTaken := map[string]bool{}
	for _, u := range report.Steps {
		if isUndone(u) || finished {
			r.Undone = append(r.Undone, u)
		}
		if isUndone(u) {
			isTaken[u.Step] = true
			b.markUndone(u.Step, r)
		}
	}
	r.take(slices.DeleteFunc(entries, func(e activities.Entry) bool { return !isTaken[e.Step] }))
	if more := len(r.Undone) - compensations.MaxReported; more > 0 { // the report of the session counts them all
		r.Undone = r.Undone[more:]
	}
	if finished {
		r.Over = true
		b.savepoints.drop(r.From)
		b.took(r)
	}
	return finished
}

// noteUndone keeps the outcome of undone steps for the requests that wait for them.
func (b *rollbacks) noteUndone(report compensations.Report) {
	for i, u := range report.Steps {
		b.Undone++
		if s := b.schedule.ByID[u.Step]; s != nil {
			s.Undone = &report.Steps[i]
		}
	}
}

// markUndone no longer counts a step as done.
func (b *rollbacks) markUndone(id string, r *Rollback) {
	delete(b.outputs, id)
	s := b.schedule.ByID[id]
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
	if s.View.State == protocol.Done {
		b.schedule.done--
		s.AddNotes(r.Cause.Text)
	}
	s.Rollback = nil
	b.schedule.setState(s, protocol.RolledBack)
}
