package tasks

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// Step is one step of a task with all that its history tells. Secrets are masked there already.
// Its outputs, such as the standard output of a command, are whole.
type Step struct {
	protocol.StepView
	// Undo is what became of its undo; absent where none was tried since it ran last.
	Undo *compensations.StepReport `json:"undo,omitempty"`
	// Troubles are what was tried for it without success, and is tried on.
	Troubles []protocol.Trouble `json:"troubles,omitempty"`
	// Horizon is until when the step, with what depends on it, can be rolled back after the end of its
	// task, at the latest: limits of retention may end it sooner.
	Horizon time.Time `json:"horizon,omitzero"`
}

// Step reads one step of a task from its history.
func (c *Client) Step(ctx context.Context, t Run, id string) (Step, error) {
	r, err := c.replayHistory(ctx, t)
	if err != nil {
		return Step{}, err
	}
	i := slices.IndexFunc(r.state.Steps, func(v protocol.StepView) bool { return v.ID == id })
	if i < 0 {
		var known []string
		for _, v := range r.state.Steps {
			known = append(known, v.ID)
		}
		return Step{}, usage.Errorf("the history of task %s has no step %q; it has %s", t.ID, id,
			cmp.Or(strings.Join(known, ", "), "none"))
	}
	s := r.step(r.state.Steps[i])
	now, _, source, err := c.CurrentState(ctx, t)
	if err != nil {
		return Step{}, err
	}
	if source == "" { // else it is that history again
		s.addNotes(now)
	}
	if !t.Closed() {
		progress, err := c.Progress(ctx, t.ID)
		if err != nil {
			return Step{}, err
		}
		progress.AddTo(&now)
		s.Progress = progress.Lines[id]
		s.Troubles = slices.DeleteFunc(now.Troubles, func(t protocol.Trouble) bool { return t.Step != id })
		return s, nil
	}
	if r.canUndo(id) {
		// What cannot be looked up is left out: all else is known from the history.
		s.Horizon, _ = c.horizonOf(ctx, t, id)
	}
	return s, nil
}

// canUndo reports whether a step can be undone after the end of its task, as far as the history tells.
func (r *historyReader) canUndo(step string) bool {
	planned := r.planned[step]
	return r.forwards[step].Entry.UndoType != "" && (planned == nil || planned.Horizon > 0)
}

// horizonOf is until when a step of a closed task can be rolled back; zero if it cannot, or if something
// was done about the task since.
func (c *Client) horizonOf(ctx context.Context, t Run, step string) (time.Time, error) {
	run, err := c.Recoveries().Describe(ctx, t.ID, t.RunID)
	if err != nil {
		return time.Time{}, err
	}
	family, err := c.Recoveries().Family(ctx, run)
	if err != nil {
		return time.Time{}, c.explainMissingAttributes(ctx, err)
	}
	if verb, id := family.Next(run); verb != "rollback" || id != t.ID {
		return time.Time{}, nil
	}
	return c.Horizon(ctx, t.ID, recovery.Part{Step: step})
}

// addNotes adds what no history tells: what was noted of each try, by the task while it is open,
// and by its report at its end.
func (s *Step) addNotes(now protocol.State) {
	if now.Phase != protocol.Closed {
		if i := slices.IndexFunc(now.Steps, func(v protocol.StepView) bool { return v.ID == s.ID }); i >= 0 {
			s.Notes, s.Tried, s.Error = now.Steps[i].Notes, now.Steps[i].Tried, cmp.Or(now.Steps[i].Error, s.Error)
		}
		return
	}
	s.Notes, s.Tried = nil, nil
	for _, row := range now.Report.Steps {
		switch {
		case row.Step != s.ID || len(row.Notes) == 0:
		case max(1, row.Try) == max(1, s.Try):
			s.Notes = append(s.Notes, row.Notes...)
		default:
			s.Tried = append(s.Tried, protocol.Tried{Try: max(1, row.Try), Notes: row.Notes})
		}
	}
}

// step adds to the view of a step what else the history says of it.
func (r *historyReader) step(v protocol.StepView) Step {
	s := Step{StepView: v}
	s.Outputs = r.outputs[v.ID]
	if u, undone := r.undos[v.ID]; undone {
		s.Undo = &r.state.Report.Steps[u]
		if v.State == "" { // it was done elsewhere, as what a rollback undoes
			s.Uses, s.State = s.Undo.Action, protocol.StepState(s.Undo.State)
		}
	}
	return s
}

func (s Step) isUndone() bool {
	return s.Undo != nil && compensations.UndoState(s.Undo.State) == compensations.Settled
}
