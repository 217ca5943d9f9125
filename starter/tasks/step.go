package tasks

import (
	"context"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows"
)

// Step is one step of a task with all that its history tells. Secrets are masked there already.
// Its outputs, such as the standard output of a command, are whole.
type Step struct {
	workflows.StepView
	// Undo is what became of its undo; absent where none was tried since it ran last.
	Undo *compensations.StepReport `json:"undo,omitempty"`
}

// Step reads one step of a task from its history.
func (c *Client) Step(ctx context.Context, t Run, id string) (Step, error) {
	r, err := c.replayHistory(ctx, t)
	if err != nil {
		return Step{}, err
	}
	i := slices.IndexFunc(r.state.Steps, func(v workflows.StepView) bool { return v.ID == id })
	if i < 0 {
		var known []string
		for _, v := range r.state.Steps {
			known = append(known, v.ID)
		}
		return Step{}, usage.Errorf("the history of task %s tells of no step %q; it tells of %s", t.ID, id, strings.Join(known, ", "))
	}
	s := r.step(r.state.Steps[i])
	if !t.Closed() {
		progress, err := c.Progress(ctx, t.ID)
		if err != nil {
			return Step{}, err
		}
		s.Progress = progress.Lines[id]
	}
	return s, nil
}

// step adds to the view of a step what else the history tells of it.
func (r *historyReader) step(v workflows.StepView) Step {
	s := Step{StepView: v}
	s.Outputs = r.outputs[v.ID]
	if u, undone := r.undos[v.ID]; undone {
		s.Undo = &r.state.Report.Steps[u]
	}
	return s
}

func (s Step) isUndone() bool {
	return s.Undo != nil && compensations.UndoState(s.Undo.State) == compensations.Settled
}
