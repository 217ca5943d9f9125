package tasks

import (
	"context"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Changed is a step with what a person was shown before it ran.
type Changed struct {
	Step
	// Planned is nil where nobody was asked.
	Planned *activities.Change
	// Forward is what it was given when it was planned or run last.
	Forward activities.Forward
	// Acted is when it was sent to act; zero if it never was, or if it was kept from acting.
	Acted time.Time
}

// Stands reports whether what the step did is still there, as far as its history tells.
func (c Changed) Stands() bool {
	return !c.isUndone() && (c.State == protocol.Done || c.State == protocol.StepFailed)
}

// Changes reads the steps of a task from its history, in the order in which they began.
func (c *Client) Changes(ctx context.Context, t Run) ([]Changed, error) {
	r, err := c.replayHistory(ctx, t)
	if err != nil {
		return nil, err
	}
	var all []Changed
	for _, v := range r.state.Steps {
		all = append(all, Changed{r.step(v), r.planned[v.ID], r.forwards[v.ID], r.acted[v.ID]})
	}
	return all, nil
}
